//! A check of a limiter that could not be decided at once.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::deciding::Asked;
use crate::decision::Decision;
use crate::engine::Learns;
use crate::key::Key;
use crate::limiter::{Begun, Later, Limiter};
use crate::policy::{Policy, Taken};

/// Asks the store when it is first polled. Each task that checks has room for one, and moves it before it begins, so it is kept small;
/// and it is written out, as decisions are large: what an `async` block returns is moved once more, past what it drops.
pub(crate) struct Checking<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    cost: u64,
    waits: Waits<'a>,
}

/// What is waited for.
enum Waits<'a> {
    /// For nothing yet. What is to be learned from the answer of the only policy.
    Not(Option<Learns>),
    /// For what the only policy asked: nearly all.
    One(Asked, &'a Policy, Taken),
    Several(Later),
}

impl<'a> Checking<'a> {
    #[inline]
    pub(crate) const fn new(limiter: &'a Limiter, key: &'a Key, cost: u64, learns: Option<Learns>) -> Self {
        Self {
            limiter,
            key,
            cost,
            waits: Waits::Not(learns),
        }
    }

    /// Asks the store. The decision, if that need not be waited for.
    #[inline(never)]
    fn ask(&mut self, learns: Option<Learns>) -> Option<Decision> {
        let Self {
            limiter, key, cost, ..
        } = *self;
        let asked = limiter.alone().and_then(|policy| {
            policy.with_charge(key, cost, |charge| {
                let (charge, failure) = (charge.ok()?, policy.handling().failure);
                Some(match limiter.engine.ask_one(charge, learns) {
                    Ok(answer) => Some(limiter.engine.conclude_one(charge, failure, learns, answer)),
                    Err(answer) => {
                        let asked = Asked {
                            answer,
                            failure,
                            learns,
                        };
                        self.waits = Waits::One(asked, policy, Taken::of(charge));
                        None
                    }
                })
            })
        });
        asked.unwrap_or_else(|| self.ask_of_all())
    }

    /// Asks what all policies together say, and the hook is told.
    #[inline(never)]
    fn ask_of_all(&mut self) -> Option<Decision> {
        match self.limiter.decide(self.cost, |_| self.key).0 {
            Begun::Now(decision) => Some(decision),
            Begun::Later(later) => {
                self.waits = Waits::Several(later);
                None
            }
        }
    }

    #[inline(never)]
    fn poll_asked(&mut self, context: &mut Context<'_>) -> Poll<Decision> {
        match &mut self.waits {
            Waits::Not(_) => unreachable!("it is asked first"),
            Waits::One(asked, policy, taken) => {
                let charge = policy.charge_taken(*taken, self.key);
                asked.poll(&self.limiter.engine, &charge, context)
            }
            Waits::Several(later) => {
                let decision = ready!(Pin::new(&mut later.deciding).poll(context));
                Poll::Ready(self.limiter.finish(decision, later))
            }
        }
    }
}

impl Future for Checking<'_> {
    type Output = Decision;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        if let Waits::Not(learns) = self.waits
            && let Some(decision) = self.ask(learns)
        {
            return Poll::Ready(decision);
        }
        self.poll_asked(context)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Key, Limiter, MemoryStore, Quota};

    #[test]
    fn a_check_takes_little_room() {
        let limiter = Limiter::new(MemoryStore::new(), Quota::per_minute(1));
        let key = Key::from("k");
        assert!(size_of_val(&limiter.check(&key)) <= 296);
        let of_keys = limiter.check_keys(1, |_| &key);
        assert!(size_of_val(&of_keys) <= 328);
    }
}
