//! Corrections of what was charged, off the path of requests.
//!
//! While nothing is under way, a correction is begun at once. A store that answers at once, as the embedded one does, has
//! made it then. For any other, a task awaits the answer; what arrives meanwhile waits for its next call, which takes
//! all of it along, up to [`MOST_IN_CALL`](task::MOST_IN_CALL); the task ends when nothing waits.
//!
//! A correction can be lost: when too many wait, when there is no runtime to send it from, when a call fails of which
//! it is not certain that nothing was done, or when the store has been unavailable for [`LIFETIME`] deadlines. A lost
//! give-back leaves its units charged until they leave the window: the strict side. A lost charge leaves its units
//! uncounted: the loose side. Losses are counted, and the first is logged. Nothing is sent twice that may have been
//! done, so no correction is made more than once. Corrections of one counter become one, if they were pushed within a
//! deadline of each other: what is fresh is not lost with what is old.

mod pushed;
mod resets;
mod task;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

pub(crate) use self::pushed::OwnedCorrection;
use self::pushed::{Pushed, count};
pub(crate) use self::resets::{Age, Resets};
use self::task::Task;
use crate::store::{Ask, CorrectionKind, Store, StoreFuture};

/// Corrections that wait for an answer at once, those under way included.
const MOST_PENDING: usize = 16_384;

/// How long a correction may take from its push on, in deadlines of its store.
const LIFETIME: u32 = 10;

/// Sends corrections in the background.
pub(crate) struct Settler {
    store: Arc<dyn Store>,
    pub(crate) resets: Resets,
    lifetime: Duration,
    queue: Mutex<Queue>,
    /// Tasks of the queue's generation. Changed under the queue's lock alone.
    tasks: AtomicUsize,
    is_loss_logged: AtomicBool,
    /// Nothing is pending any more, or a task has gone.
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pushed>,
    /// Pushed and not answered, those under way included.
    pending: usize,
    /// Not known to have been made, and not pending any more.
    lost: u64,
    /// Of these, those that a flush has told of.
    told: u64,
    /// Grows when tasks are given up that nobody drives any more.
    generation: u64,
}

impl Settler {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let longest = Duration::from_secs(366 * 86_400);
        Self {
            lifetime: store.deadline().saturating_mul(LIFETIME).min(longest),
            store,
            resets: Resets::default(),
            queue: Mutex::default(),
            tasks: AtomicUsize::new(0),
            is_loss_logged: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Makes a correction: in this call, if the store is that fast, else soon.
    pub(crate) fn push(self: &Arc<Self>, correction: OwnedCorrection) {
        if self.tasks.load(Ordering::Acquire) > 0 {
            return self.wait(correction);
        }
        if self.is_void(&correction) {
            return;
        }
        let charge = [correction.charge.borrow()];
        let answer = self
            .store
            .settle(&[correction.of(Ask::new(&charge).deadline(self.lifetime))]);
        match answer.into_ready() {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.lose(1),
            Err(answer) => {
                let pushed = self.pushed(correction);
                let mut queue = self.queue();
                if queue.pending >= MOST_PENDING {
                    drop(queue);
                    return self.lose(1);
                }
                queue.pending += 1;
                self.start(queue, vec![pushed], Some(answer));
            }
        }
    }

    /// Whether what it would give back was reset, so that it could take others' units.
    pub(crate) fn is_void(&self, correction: &OwnedCorrection) -> bool {
        matches!(correction.kind, CorrectionKind::GiveBack { .. })
            && self.resets.is_void(&correction.charge, correction.charged)
    }

    fn pushed(&self, correction: OwnedCorrection) -> Pushed {
        Pushed {
            correction,
            until: Instant::now() + self.lifetime,
            count: 1,
        }
    }

    /// Lets a correction wait for the next call.
    fn wait(self: &Arc<Self>, correction: OwnedCorrection) {
        let mut queue = self.queue();
        if queue.pending >= MOST_PENDING {
            // What fills it up may wait for a task that nobody drives any more.
            self.start_if_nobody_sends(queue);
            return self.lose(1);
        }
        queue.pending += 1;
        queue.waiting.push_back(self.pushed(correction));
        self.start_if_nobody_sends(queue);
    }

    fn start_if_nobody_sends(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        let Some(next) = queue.waiting.front() else {
            return;
        };
        // Tasks take what waits before its time is over, unless nobody drives their runtime.
        if next.until <= Instant::now() {
            queue.generation += 1;
            self.tasks.store(0, Ordering::Relaxed);
        }
        if self.tasks.load(Ordering::Relaxed) == 0 {
            self.start(queue, Vec::new(), None);
        }
    }

    /// Sends, after what is under way, if anything is, what waits.
    fn start(
        self: &Arc<Self>,
        queue: MutexGuard<'_, Queue>,
        under_way: Vec<Pushed>,
        answer: Option<StoreFuture<()>>,
    ) {
        let task = Task::new(Arc::clone(self), queue.generation, under_way);
        self.tasks.fetch_add(1, Ordering::Release);
        drop(queue);
        // Without a runtime, the task is dropped, and what is under way is lost.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task.run(answer));
        }
    }

    /// Waits until all that was pushed has been sent and answered, for at most so long. Returns how many corrections are
    /// [missing](Self::missing).
    pub(crate) async fn flush(self: &Arc<Self>, at_most: Duration) -> u64 {
        if self.queue().pending > 0 {
            let all = async {
                loop {
                    let changed = self.changed.notified();
                    if self.is_idle() {
                        return;
                    }
                    changed.await;
                }
            };
            // What is late is still pending.
            drop(timeout(at_most, all).await);
        }
        self.missing()
    }

    /// Corrections that have been lost since this was asked last, and those that are not answered yet.
    fn missing(&self) -> u64 {
        let mut queue = self.queue();
        let news = queue.lost - queue.told;
        queue.told = queue.lost;
        news + queue.pending as u64
    }

    /// Whether nothing is pending. If something is, somebody sends it.
    fn is_idle(self: &Arc<Self>) -> bool {
        let queue = self.queue();
        let is_idle = queue.pending == 0;
        self.start_if_nobody_sends(queue);
        is_idle
    }

    /// By when a correction that is pushed now has been made or lost.
    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Corrections that are not known to have been made, and will not be.
    #[cfg(test)]
    fn lost(&self) -> u64 {
        self.queue().lost
    }

    /// These are not pending any more: they are made or lost, at one moment for who counts.
    fn answered(&self, pushed: &[Pushed], is_made: bool) {
        let count = count(pushed);
        let mut queue = self.queue();
        queue.pending -= count;
        if !is_made {
            queue.lost += count as u64;
        }
        let is_idle = queue.pending == 0;
        drop(queue);
        if is_idle {
            self.changed.notify_waiters();
        }
        if !is_made && count > 0 {
            self.log_loss();
        }
    }

    /// Loses what has never been pending.
    fn lose(&self, count: u64) {
        self.queue().lost += count;
        self.log_loss();
    }

    fn log_loss(&self) {
        if !self.is_loss_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "corrections of what was charged are lost: units to give back stay charged, units to charge are not counted"
            );
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Settler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.queue();
        f.debug_struct("Settler")
            .field("pending", &queue.pending)
            .field("lost", &queue.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
