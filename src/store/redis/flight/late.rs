//! What becomes of a call that nobody waits for any more.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{timeout, timeout_at};

use super::super::attempts::Attempts;
use super::super::cause::TooLate;
use super::{Flight, UnderWay};
use crate::store::StoreErrorKind;

/// How long a reply is awaited after its deadline, so that what it grants can be given back.
const GRACE: Duration = Duration::from_secs(10);

impl Flight {
    /// Leaves what is under way to the background.
    pub(in super::super) fn leave(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            let late = Self {
                dispatch: Arc::clone(&self.dispatch),
                place: self.place.take(),
                asks: mem::take(&mut self.asks),
                answers: mem::take(&mut self.answers),
                attempts: Attempts::default(),
                under_way: None,
                keep: self.keep.take(),
            };
            self.dispatch.spawn(late.outlast(under_way));
        }
        self.land();
    }

    /// Awaits a reply that nobody polls any more.
    async fn outlast(mut self, mut under_way: UnderWay) {
        let deadline = under_way.deadline;
        let in_time = poll_fn(|context| under_way.reply.as_mut().poll_reply(context));
        let result = match timeout_at(deadline, in_time).await {
            Ok(result) => Some(result),
            Err(_) => {
                under_way.report_timeout(&self.dispatch);
                self.land();
                let late = poll_fn(|context| under_way.reply.as_mut().poll_reply(context));
                timeout(GRACE, late).await.ok()
            }
        };
        self.land();
        match result.map(|result| self.receive(&under_way, result)) {
            Some(Ok(_)) => self.fail(StoreErrorKind::Overloaded, TooLate),
            Some(Err((class, cause))) => self.fail(class.kind(), cause),
            None => self.fail(StoreErrorKind::Timeout, TooLate),
        }
        if let Some(keep) = self.keep.take()
            && keep.await.unwrap_or(false)
        {
            self.answers.clear();
        }
        self.hand_out();
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.leave();
        if !self.answers.is_empty() {
            self.hand_out();
        }
    }
}
