//! Calls that are not batched: charges whose outcome is awaited, looks, and resets.

use redis::Cmd;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::call;
use super::cause::Unreadable;
use super::clock::ServerClock;
use super::dispatch::Dispatch;
use super::link::Report;
use super::order::{Amend, Amendment, Wanted};
use super::queue::Answered;
use super::reply::{Replies, Reply, Share, is_too_late};
use super::script::By;
use crate::store::{StoreError, StoreErrorKind};

impl Dispatch {
    pub(super) async fn charge_in_one(&self, ask: &Wanted) -> Answered {
        let amendment = [Amendment {
            ask: ask.clone(),
            amend: Amend::Charge,
        }];
        let command = |by, clock: &_| call::settle(self.scripts, by, clock, &amendment);
        outcome(&self.single(ask.deadline, command).await?, ask, 1)
    }

    pub(super) async fn peek_in_one(&self, ask: &Wanted) -> Answered {
        let command = |by, clock: &_| call::peek(self.scripts, by, clock, ask);
        let mut outcome = outcome(&self.single(ask.deadline, command).await?, ask, ask.want)?;
        for state in &mut outcome.states {
            state.charged = 0;
        }
        Ok(outcome)
    }

    pub(super) async fn reset_in_one(&self, ask: &Wanted) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::reset(self.scripts, by, clock, ask);
        self.single(ask.deadline, command).await.map(drop)
    }

    pub(super) async fn block_in_one(&self, ask: &Wanted, time: u64) -> Result<(), StoreError> {
        let command = |by, clock: &_| call::block(self.scripts, by, clock, ask, time);
        self.single(ask.deadline, command).await.map(drop)
    }

    /// A call that is not batched.
    async fn single(
        &self,
        deadline: Instant,
        command: impl Fn(By, &ServerClock) -> Cmd,
    ) -> Result<Replies, StoreError> {
        self.note_runtime();
        let asked = Instant::now();
        let mut attempts = Attempts::default();
        loop {
            if deadline <= Instant::now() {
                return Err(self.timed_out(asked, None));
            }
            let route = self.link.route()?;
            let sent = Instant::now();
            let command = command(attempts.by(), route.clock());
            let Ok(result) = route.send(command, deadline).await else {
                self.stats.note_timeout();
                route.report(sent, Instant::now(), Report::TimedOut);
                return Err(self.timed_out(asked, None));
            };
            match self.received(&route, sent, result) {
                Ok(replies) => match replies.each() {
                    [reply] if !is_too_late(reply) => return Ok(replies),
                    [_] if attempts.once_late() => {}
                    [_] => return Err(StoreError::new(StoreErrorKind::Overloaded)),
                    _ => return Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
                },
                Err((class, _)) if attempts.once_more_after(class) => {}
                Err((class, error)) => return Err(StoreError::with_source(class.kind(), error)),
            }
        }
    }
}

fn outcome(replies: &Replies, ask: &Wanted, want: u32) -> Answered {
    match Reply::read(&mut replies.each(), replies.now, &ask.order, want) {
        Ok(Reply::Answer(answer)) => Ok(answer.outcome(&ask.order, Share::new(0, answer.granted, want))),
        _ => Err(StoreError::with_source(StoreErrorKind::Protocol, Unreadable)),
    }
}
