//! Calls that are not batched: corrections, looks, and charges that are settled up.

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::call;
use super::cause::Unreadable;
use super::class::Class;
use super::clock::ServerClock;
use super::dispatch::Dispatch;
use super::link::Report;
use super::order::Wanted;
use super::queue::Answered;
use super::reply::Reply;
use super::script::By;
use crate::store::{Stamp, StoreError, StoreErrorKind};

impl Dispatch {
    pub(super) async fn charge_in_one(&self, ask: &Wanted) -> Answered {
        let command = |by, clock: &_| call::charge(self.scripts, by, clock, ask);
        let (now, value) = self.single(ask.deadline, command).await?;
        outcome(&value, now, ask, 1)
    }

    pub(super) async fn peek_in_one(&self, ask: &Wanted) -> Answered {
        let command = |by, clock: &_| call::peek(self.scripts, by, clock, ask);
        let (now, value) = self.single(ask.deadline, command).await?;
        let mut outcome = outcome(&value, now, ask, ask.want)?;
        for state in &mut outcome.states {
            state.charged = 0;
        }
        Ok(outcome)
    }

    pub(super) async fn give_back_in_one(&self, ask: &Wanted, stamp: Stamp) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::give_back(self.scripts, by, clock, ask, stamp);
        self.single(ask.deadline, command).await.map(drop)
    }

    pub(super) async fn reset_in_one(&self, ask: &Wanted) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::reset(self.scripts, by, clock, ask);
        self.single(ask.deadline, command).await.map(drop)
    }

    /// A call that is not batched.
    async fn single(
        &self,
        deadline: Instant,
        command: impl Fn(By, &ServerClock) -> Cmd,
    ) -> Result<(u64, Value), StoreError> {
        self.note_runtime();
        let asked = Instant::now();
        let (mut by, mut was_late, mut was_sent_away) = (By::Hash, false, false);
        loop {
            if deadline <= Instant::now() {
                return Err(self.timed_out(asked, None));
            }
            let route = self.link.route()?;
            let sent = Instant::now();
            let Ok(result) = timeout_at(deadline, route.send(command(by, route.clock()))).await else {
                self.stats.note_timeout();
                route.report(sent, Report::TimedOut);
                return Err(self.timed_out(asked, None));
            };
            match self.received(&route, sent, result) {
                Ok(Value::Array(values)) => match <[Value; 2]>::try_from(values) {
                    Ok([Value::Int(now), Value::Int(-1)]) if now > 0 => {
                        if was_late {
                            return Err(StoreError::new(StoreErrorKind::Overloaded));
                        }
                        was_late = true;
                    }
                    Ok([Value::Int(now), answer]) if now > 0 => return Ok((now.unsigned_abs(), answer)),
                    _ => return Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
                },
                Ok(_) => return Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
                Err((Class::NoScript, _)) if by == By::Hash => by = By::Text,
                // Once more on whatever route there is now. A script's text cannot be missing.
                Err((class, _))
                    if !was_sent_away && class != Class::NoScript && class.may_be_sent_again() =>
                {
                    was_sent_away = true;
                }
                Err((class, error)) => return Err(StoreError::with_source(class.kind(), error)),
            }
        }
    }
}

fn outcome(value: &Value, now: u64, ask: &Wanted, want: u32) -> Answered {
    match Reply::read(value, now, &ask.order, want) {
        Ok(Reply::Answer(answer)) => Ok(answer.outcome(&ask.order, 0, answer.granted)),
        Ok(Reply::TooLate) | Err(_) => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
    }
}
