//! The deadlines of all who wait: one task and one timer for a store, on its runtime, which rests while nobody waits.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::callers::Callers;

/// Wakes callers when their deadline has passed.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// The next one first.
    next: BinaryHeap<Reverse<Turn>>,
    /// When so many are there, those that nobody waits for any more are sorted out.
    tidy_at: usize,
    /// When the task looks at them again by itself.
    armed: Option<Instant>,
    task: Option<Waker>,
    is_over: bool,
}

/// When to look after callers.
#[derive(Debug)]
struct Turn {
    at: Instant,
    /// Nobody waits for those that are gone; and they hold the store, which must not hold itself.
    callers: Weak<Callers>,
}

/// Fewer turns than this are not worth sorting out.
const FEW: usize = 64;

impl Keeper {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after callers from then on. If it cannot, it has woken them.
    pub(super) fn watch(&self, callers: &Arc<Callers>, at: Instant) {
        let mut turns = self.turns();
        if turns.is_over {
            drop(turns);
            return callers.wake_unwatched();
        }
        turns.add(Turn {
            at,
            callers: Arc::downgrade(callers),
        });
        if turns.armed.is_none_or(|armed| at < armed) {
            turns.armed = Some(at);
            let task = turns.task.take();
            drop(turns);
            if let Some(task) = task {
                task.wake();
            }
        }
    }

    /// Does so for ever, or until its runtime ends, be that before it was polled.
    pub(super) fn keep(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        let over = Over(self);
        async move {
            let mut timer = None;
            match poll_fn(|context| over.0.poll(&mut timer, context)).await {}
        }
    }

    fn poll(&self, timer: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>) -> Poll<Infallible> {
        loop {
            let now = Instant::now();
            let (due, next) = self.turns().take_due(now, context.waker());
            if !due.is_empty() {
                for Turn { at, callers } in due {
                    if let Some(callers) = callers.upgrade()
                        && let Some(at) = callers.wake_late(at, now)
                    {
                        self.watch(&callers, at);
                    }
                }
                continue;
            }
            let Some(next) = next else {
                return Poll::Pending;
            };
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            ready!(timer.as_mut().poll(context));
        }
    }
}

impl Turns {
    fn add(&mut self, turn: Turn) {
        // Answers come in about the order of deadlines.
        let is_told = |turn: &Turn| turn.callers.upgrade().is_none_or(|callers| callers.are_told());
        while self.next.peek().is_some_and(|Reverse(turn)| is_told(turn)) {
            self.next.pop();
        }
        if self.next.len() >= self.tidy_at {
            let are_over = |turn: &Turn| turn.callers.upgrade().is_none_or(|callers| callers.are_over());
            self.next.retain(|Reverse(turn)| !are_over(turn));
            self.tidy_at = FEW.max(2 * self.next.len());
        }
        self.next.push(Reverse(turn));
    }

    /// The turns that have come. If there are none, when the next one comes, before which `task` is woken if another is
    /// added.
    fn take_due(&mut self, now: Instant, task: &Waker) -> (SmallVec<[Turn; 4]>, Option<Instant>) {
        let mut due = SmallVec::new();
        while self.next.peek().is_some_and(|Reverse(turn)| turn.at <= now)
            && let Some(Reverse(turn)) = self.next.pop()
        {
            due.push(turn);
        }
        if due.is_empty() {
            self.armed = self.next.peek().map(|Reverse(turn)| turn.at);
            self.task = Some(task.clone());
        } else {
            // The task looks again before it rests.
            self.armed = Some(now);
        }
        (due, self.armed)
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Turn {}

/// Tells those who rely on the keeper when it ends.
struct Over(Arc<Keeper>);

impl Drop for Over {
    fn drop(&mut self) {
        let left = {
            let mut turns = self.0.turns();
            turns.is_over = true;
            std::mem::take(&mut turns.next)
        };
        for Reverse(turn) in left {
            if let Some(callers) = turn.callers.upgrade() {
                callers.wake_unwatched();
            }
        }
    }
}
