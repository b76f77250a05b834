//! Which of several places of its own a thread writes to.

use std::sync::atomic::{AtomicU16, Ordering};

/// The place of a thread: what all threads wrote to would be slower than what they do there. As many as [`OWN`](Self::OWN) threads at a
/// time have one to themselves, all others share the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stripe(usize);

thread_local! {
    static HERE: Held = Held(TAKEN.take());
}

static TAKEN: Taken = Taken(AtomicU16::new(0));

impl Stripe {
    const OWN: usize = u16::BITS as usize;
    pub(crate) const COUNT: usize = Self::OWN + 1;
    const SHARED: Self = Self(Self::OWN);

    /// That of the thread that asks.
    #[inline]
    pub(crate) fn here() -> Self {
        HERE.try_with(|held| held.0).unwrap_or(Self::SHARED)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0
    }

    /// Whether no other thread has it now.
    #[inline]
    pub(crate) const fn is_own(self) -> bool {
        self.0 < Self::OWN
    }
}

/// A thread's, until it ends.
struct Held(Stripe);

impl Drop for Held {
    fn drop(&mut self) {
        TAKEN.give_back(self.0);
    }
}

/// A bit for each that a thread has to itself.
struct Taken(AtomicU16);

impl Taken {
    /// What its last thread has written there is seen.
    fn take(&self) -> Stripe {
        let with_one = |taken: u16| (taken != u16::MAX).then(|| taken | (taken + 1));
        let before = self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, with_one);
        before.map_or(Stripe::SHARED, |taken| Stripe(taken.trailing_ones() as usize))
    }

    fn give_back(&self, stripe: Stripe) {
        if stripe.is_own() {
            self.0.fetch_and(!(1 << stripe.index()), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_one_to_itself_while_there_are_any_and_leaves_it_to_another() {
        let taken = Taken(AtomicU16::new(0));
        let all: Vec<Stripe> = (0..Stripe::COUNT + 2).map(|_| taken.take()).collect();
        let (own, others) = all.split_at(Stripe::OWN);
        assert!(
            own.iter()
                .enumerate()
                .all(|(index, stripe)| *stripe == Stripe(index))
        );
        assert!(
            others
                .iter()
                .all(|stripe| *stripe == Stripe::SHARED && !stripe.is_own())
        );
        for left in [9, 3] {
            taken.give_back(own[left]);
        }
        taken.give_back(Stripe::SHARED);
        let again = [taken.take(), taken.take(), taken.take()];
        assert_eq!(again, [own[3], own[9], Stripe::SHARED]);
    }

    #[test]
    fn a_thread_keeps_its_own() {
        let here = std::thread::spawn(|| [Stripe::here(), Stripe::here()]);
        let [first, second] = here.join().expect("it ends");
        assert_eq!(first, second);
    }
}
