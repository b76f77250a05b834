//! What a server's clock says now.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

/// No reply has told the time yet.
const UNKNOWN: i64 = i64::MIN;

/// A server's clock, as seen from this side through its replies.
///
/// A reply that says S was made between sending and receiving, so the server's clock is ahead of ours by something in
/// [S − received, S − sent]. The kept offset starts at the low end, from where it only moves up while the server's clock
/// runs like ours: it is never ahead of the truth, and what it calls the latest time is never too late. A kept offset
/// above a reply's interval is from before a step back, and starts anew.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// Local times are microseconds after this.
    origin: Instant,
    /// Microseconds from a local time to the server's.
    offset: AtomicI64,
}

impl ServerClock {
    pub(super) fn new() -> Self {
        Self {
            origin: Instant::now(),
            offset: AtomicI64::new(UNKNOWN),
        }
    }

    /// A reply said `server` (microseconds since the epoch) to a call sent and received then.
    pub(super) fn observe(&self, sent: Instant, received: Instant, server: u64) {
        let server = i64::try_from(server).unwrap_or(i64::MAX / 2);
        // Both ends rounded outwards.
        let lowest = server.saturating_sub(self.local(received).saturating_add(1));
        let highest = server.saturating_add(1).saturating_sub(self.local(sent));
        let _ = self
            .offset
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |offset| {
                (offset < lowest || offset > highest).then_some(lowest)
            });
    }

    /// The latest server time at which something may still happen that must not happen after `deadline`; 0 while the
    /// clock is unknown.
    pub(super) fn not_after(&self, deadline: Instant) -> u64 {
        match self.offset.load(Ordering::Relaxed) {
            UNKNOWN => 0,
            offset => u64::try_from(self.local(deadline).saturating_add(offset)).unwrap_or(0),
        }
    }

    /// Whole microseconds after the origin, rounded down.
    fn local(&self, at: Instant) -> i64 {
        let micros =
            |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4);
        match at.checked_duration_since(self.origin) {
            Some(after) => micros(after),
            None => -micros(self.origin.duration_since(at)) - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOON: u64 = 1_800_000_000_000_000;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A clock, the local time zero, and the server's time at a local time after zero when it was `NOON` at zero.
    fn clock() -> (ServerClock, Instant, impl Fn(u64) -> u64) {
        let clock = ServerClock::new();
        let zero = clock.origin;
        (clock, zero, |at| NOON + at * 1_000)
    }

    #[test]
    fn is_unknown_until_the_first_reply() {
        let (clock, zero, _) = clock();
        assert_eq!(clock.not_after(zero + ms(100)), 0);
    }

    #[test]
    fn starts_no_later_than_the_truth() {
        let (clock, zero, server) = clock();
        // Read by the server at 10, somewhere between 4 and 30.
        clock.observe(zero + ms(4), zero + ms(30), server(10));
        let latest = clock.not_after(zero + ms(100));
        assert!((server(79)..=server(100)).contains(&latest), "{latest}");
    }

    #[test]
    fn gets_closer_with_faster_replies_and_stays_with_slower_ones() {
        let (clock, zero, server) = clock();
        clock.observe(zero, zero + ms(30), server(1));
        clock.observe(zero + ms(40), zero + ms(42), server(41));
        let latest = clock.not_after(zero + ms(100));
        assert!((server(98)..=server(100)).contains(&latest), "{latest}");

        for (sent, read, received) in [(50, 51, 90), (50, 89, 90), (95, 96, 97)] {
            clock.observe(zero + ms(sent), zero + ms(received), server(read));
            assert_eq!(clock.not_after(zero + ms(100)), latest);
        }
    }

    #[test]
    fn follows_a_step_back_with_the_next_reply() {
        let (clock, zero, server) = clock();
        clock.observe(zero, zero + ms(2), server(1));
        let hour = 3_600_000_000;
        clock.observe(zero + ms(10), zero + ms(12), server(11) - hour);
        let latest = clock.not_after(zero + ms(100));
        assert!(
            (server(98) - hour..=server(100) - hour).contains(&latest),
            "{latest}"
        );
        // A small one, of which only the reply's interval tells.
        clock.observe(zero + ms(20), zero + ms(22), server(21) - hour - 3_000);
        assert!(clock.not_after(zero + ms(100)) <= server(97) - hour);
    }

    #[test]
    fn follows_a_step_forward_with_the_next_reply() {
        let (clock, zero, server) = clock();
        clock.observe(zero, zero + ms(2), server(1));
        let hour = 3_600_000_000;
        clock.observe(zero + ms(10), zero + ms(12), server(11) + hour);
        let latest = clock.not_after(zero + ms(100));
        assert!(
            (server(98) + hour..=server(100) + hour).contains(&latest),
            "{latest}"
        );
    }

    #[test]
    fn knows_times_before_it_was_made() {
        let zero = Instant::now();
        std::thread::sleep(ms(2));
        let clock = ServerClock::new();
        clock.observe(clock.origin, clock.origin + ms(1), NOON);
        assert!(clock.not_after(zero) < NOON - 1_000);
        assert!(clock.not_after(zero) > NOON - 10_000_000);
    }

    #[test]
    fn nonsense_does_no_harm() {
        let (clock, zero, server) = clock();
        clock.observe(zero, zero, u64::MAX);
        let _ = clock.not_after(zero + ms(100));
        clock.observe(zero, zero + ms(1), 0);
        assert!(clock.not_after(zero) < 1_000);
        clock.observe(zero, zero + ms(1), server(0));
        assert!(clock.not_after(zero) > NOON - 10_000);
    }
}
