//! How a quota counts, and how its state is laid out.

/// How a [`Quota`](super::Quota) counts.
///
/// | algorithm | guarantee for limit L and window W |
/// |---|---|
/// | [`SlidingWindow`](Self::SlidingWindow) | never more than L units in any window W |
/// | [`SlidingCounter`](Self::SlidingCounter) | less than 2L in any window W |
/// | [`FixedWindow`](Self::FixedWindow) | L per window; up to 2L across an edge |
/// | [`TokenBucket`](Self::TokenBucket) | at most burst + rate × x in any time x |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// An exact log up to [`MAX_LOG_UNITS`](super::MAX_LOG_UNITS); above, or by [`Quota::slots`](super::Quota::slots), a number of slots with the
    /// oldest, partly covered one counted in full: never over the limit, at most one slot too strict.
    SlidingWindow,
    /// Two counters, the earlier one weighted by how much of it the window still covers.
    SlidingCounter,
    /// One counter per window.
    FixedWindow,
    /// A bucket that holds a burst and refills at a steady rate (GCRA is the same limiter, seen from the
    /// other side). It never owes more than its burst: units settled beyond that are forgotten.
    TokenBucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Unlimited,
    /// 0 slots: as the limit asks.
    Sliding {
        slots: u16,
    },
    Counter,
    Fixed(Phase),
    Bucket {
        burst: u64,
    },
}

/// Which [`Kind`], without what it says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Unlimited,
    Sliding,
    Counter,
    Fixed,
    FixedPerKey,
    Bucket,
}

/// Where a fixed window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// At multiples of the window since the UTC epoch, plus this many microseconds.
    Utc(u64),
    /// At an offset that is a hash of the key.
    PerKey,
}

/// How the state of a quota is laid out: with the window and the offset, a part of what identifies a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    Log,
    Slots(u16),
    Counter,
    Fixed,
    FixedPerKey,
    Bucket,
}
