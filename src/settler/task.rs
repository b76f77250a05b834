//! What sends corrections, one call after another.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep, timeout_at};

use super::pushed::Pushed;
use super::{LIFETIME, Settler};
use crate::store::{Ask, Charge, Correction, StoreError, StoreErrorKind, StoreFuture};

/// Corrections that one call carries.
pub(super) const MOST_IN_CALL: usize = 128;

/// What sends. Dropped, because its runtime ends or its store panics, it loses what is under way, and nothing else.
pub(super) struct Task {
    settler: Arc<Settler>,
    generation: u64,
    under_way: Vec<Pushed>,
    has_ended: bool,
}

impl Task {
    pub(super) const fn new(settler: Arc<Settler>, generation: u64, under_way: Vec<Pushed>) -> Self {
        Self {
            settler,
            generation,
            under_way,
            has_ended: false,
        }
    }

    /// Awaits the answer to what is under way, if anything is, then sends what waits until nothing does.
    pub(super) async fn run(mut self, mut answer: Option<StoreFuture<()>>) {
        loop {
            if let Some(answer) = answer.take() {
                let answer = self.in_time(answer).await;
                if self.conclude(answer) {
                    // Sent again, with what has arrived meanwhile.
                    sleep(self.settler.lifetime / LIFETIME).await;
                }
            }
            if !self.take_along() {
                return;
            }
            answer = Some(self.send());
        }
    }

    fn send(&self) -> StoreFuture<()> {
        let now = Instant::now();
        let charges: Vec<[Charge<'_>; 1]> = self
            .under_way
            .iter()
            .map(|pushed| [pushed.correction.charge.borrow()])
            .collect();
        let corrections: Vec<Correction<'_>> = charges
            .iter()
            .zip(&self.under_way)
            .map(|(charge, pushed)| {
                let left = pushed.until.saturating_duration_since(now);
                pushed.correction.of(Ask::new(charge).deadline(left))
            })
            .collect();
        self.settler.store.settle(&corrections)
    }

    async fn in_time(&self, answer: StoreFuture<()>) -> Result<(), StoreError> {
        if self.settler.store.keeps_deadlines() {
            return answer.await;
        }
        let latest = self.under_way.iter().map(|pushed| pushed.until).max();
        timeout_at(latest.unwrap_or_else(Instant::now), answer)
            .await
            .unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::Timeout)))
    }

    /// Whether what was sent is to be sent again: it is certain that nothing of it was done.
    fn conclude(&mut self, answer: Result<(), StoreError>) -> bool {
        match answer {
            Err(error) if error.is_undone() => {
                let mut queue = self.settler.queue();
                for pushed in mem::take(&mut self.under_way).into_iter().rev() {
                    queue.waiting.push_front(pushed);
                }
                true
            }
            answer => {
                let under_way = mem::take(&mut self.under_way);
                self.settler.answered(&under_way, answer.is_ok());
                false
            }
        }
    }

    /// Takes what waits for the next call, and loses what has waited for too long. False if there is nothing: then the task
    /// has ended.
    fn take_along(&mut self) -> bool {
        let settler = Arc::clone(&self.settler);
        let now = Instant::now();
        let (mut late, mut void) = (Vec::new(), Vec::new());
        let mut queue = settler.queue();
        if self.generation != queue.generation {
            self.has_ended = true;
            return false;
        }
        while self.under_way.len() < MOST_IN_CALL
            && let Some(next) = queue.waiting.pop_front()
        {
            if next.until <= now {
                late.push(next);
            } else if settler.is_void(&next.correction) {
                void.push(next);
            } else if !self
                .under_way
                .iter_mut()
                .any(|pushed| pushed.absorb(&next, settler.lifetime / LIFETIME))
            {
                self.under_way.push(next);
            }
        }
        self.has_ended = self.under_way.is_empty();
        if self.has_ended {
            settler.tasks.fetch_sub(1, Ordering::Release);
        }
        drop(queue);
        settler.answered(&late, false);
        settler.answered(&void, true);
        !self.has_ended
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let queue = self.settler.queue();
        if self.generation == queue.generation {
            self.settler.tasks.fetch_sub(1, Ordering::Release);
        }
        drop(queue);
        self.settler.answered(&mem::take(&mut self.under_way), false);
        // Who flushes may have to send what waits.
        self.settler.changed.notify_waiters();
    }
}
