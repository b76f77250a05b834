//! The next call of a task that has made one.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Flight;

impl Flight {
    /// Hands out the answers of a call that is done. Whether there is another one to make in its place, for what waits.
    pub(in super::super) async fn goes_on(&mut self) -> bool {
        // A task that could rest keeps no place meanwhile.
        if !self.pays_to_wait() || !runs_by_itself() {
            self.land();
            self.hand_out();
            return false;
        }
        self.hand_out();
        after_the_ready().await;
        let Some(landed) = self.place.take() else {
            return false;
        };
        let Some((place, asks)) = self.dispatch.next_batch(Some(landed)) else {
            return false;
        };
        *self = Self::new(Arc::clone(&self.dispatch), Some(place), asks);
        // There may be more places, and more that waits.
        self.dispatch.take_along();
        true
    }

    /// Whether those who get the answers are to ask first before the next call leaves: they are likely to share an ask of it, or
    /// more of them ask than wait, so that one call for all is fewer than one for who waits or comes first, and one for the rest.
    fn pays_to_wait(&self) -> bool {
        let is_shared = self.asks.iter().any(|merged| merged.present > 1);
        let answered = self.asks.len();
        is_shared || answered > 1 && self.dispatch.queue().callers() < answered
    }
}

/// Whether tasks go on by themselves here. On other runtimes they rest while nobody drives them.
fn runs_by_itself() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

/// Lets all run that are ready now. Tokio's own way of yielding comes back after a fixed number of them.
async fn after_the_ready() {
    let mut is_first = true;
    poll_fn(|context| match mem::take(&mut is_first) {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}
