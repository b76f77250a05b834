//! Waiting for a share of a call that others make.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::dispatch::Dispatch;
use super::order::Order;
use super::queue::Answered;
use crate::store::{Late, Outcome, StoreError, StoreErrorKind};

/// Waits for a share of somebody's call. Dropped, it gives back what it had got without anybody having seen it.
pub(super) struct Waiting {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) order: Order,
    pub(super) receiver: Option<oneshot::Receiver<Answered>>,
}

impl Waiting {
    pub(super) async fn answer(&mut self, asked: Instant, deadline: Instant) -> Answered {
        let answered = match &mut self.receiver {
            Some(receiver) => timeout_at(deadline, receiver).await.ok(),
            None => None,
        };
        match answered {
            Some(answered) => {
                self.receiver = None;
                // The task that had the call is gone with its runtime.
                answered.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Unavailable)))
            }
            None => {
                let late = self.outlast();
                // A call that nobody polls any more may have lost its place meanwhile.
                self.dispatch.take_along();
                Err(self.dispatch.timed_out(asked, Some(late)))
            }
        }
    }

    /// Awaits in the background what comes too late.
    fn outlast(&mut self) -> Late {
        let (late, keep) = Late::new();
        if let Some(receiver) = self.receiver.take() {
            let (dispatch, order) = (Arc::clone(&self.dispatch), self.order.clone());
            self.dispatch.spawn(async move {
                if let Ok(Ok(outcome)) = receiver.await
                    && outcome.granted > 0
                    && !keep.await.unwrap_or(false)
                {
                    dispatch.give_back_unseen(order, &outcome);
                }
            });
        }
        late
    }
}

impl Dispatch {
    fn give_back_unseen(self: &Arc<Self>, order: Order, outcome: &Outcome) {
        self.stats.count_late(outcome.granted);
        let charged = outcome.states.iter().map(|state| state.charged).collect();
        self.give_back_charged(order, charged, outcome.granted, outcome.stamp);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else {
            return;
        };
        receiver.close();
        if let Ok(Ok(outcome)) = receiver.try_recv()
            && outcome.granted > 0
        {
            self.dispatch.give_back_unseen(self.order.clone(), &outcome);
        }
    }
}
