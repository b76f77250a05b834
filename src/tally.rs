//! Costs that become known little by little.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::charge::ChargeHandle;

/// Counts what a request takes of a policy, and settles it when dropped, however that comes about: at the end of the
/// response, or when its client goes away. Made by [`ChargeHandle::tally`].
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let tokens = Limiter::new(MemoryStore::new(), Quota::per_minute(10_000)).name("tokens");
/// let charge = tokens.reserve("alice", 4_000).await.expect("enough is left");
///
/// let mut tally = charge.tally("tokens");
/// for token in ["to", "be", "or"] {
///     tally.add(1);
///     # let _ = token;
/// }
/// drop(tally);
/// assert_eq!(tokens.peek("alice").await.remaining(), Some(9_997));
/// # }
/// ```
pub struct Tally {
    /// What is settled: the handle, and which of its policies. `None` if there is nothing to settle.
    settles: Option<(ChargeHandle, usize)>,
    units: u64,
}

impl Tally {
    pub(crate) const fn new(settles: Option<(ChargeHandle, usize)>) -> Self {
        Self { settles, units: 0 }
    }

    /// Adds units.
    pub const fn add(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// Units so far.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Counts the bytes of a body, `bytes_per_unit` to a unit, rounded up at the end; on top of what was added before.
    /// The policy is settled when the body has been sent or is dropped.
    ///
    /// # Panics
    ///
    /// If `bytes_per_unit` is 0.
    #[track_caller]
    pub fn metered<B>(self, body: B, bytes_per_unit: u64) -> Metered<B> {
        assert!(
            bytes_per_unit > 0,
            "a unit of 0 bytes: every body would be endless; use 1 or more"
        );
        Metered {
            body,
            meter: Meter {
                tally: self,
                bytes: 0,
                bytes_per_unit,
            },
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some((charge, index)) = self.settles.take() {
            charge.settle_claimed(index, self.units);
        }
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally")
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A body whose bytes a policy counts. Made by [`Tally::metered`].
    #[derive(Debug)]
    pub struct Metered<B> {
        #[pin]
        body: B,
        meter: Meter,
    }
}

#[derive(Debug)]
struct Meter {
    tally: Tally,
    bytes: u64,
    bytes_per_unit: u64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.tally.add(self.bytes.div_ceil(self.bytes_per_unit));
    }
}

impl<B: Body> Body for Metered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = u64::try_from(data.remaining()).unwrap_or(u64::MAX);
            this.meter.bytes = this.meter.bytes.saturating_add(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
