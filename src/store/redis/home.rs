//! The runtime that a store works on in the background.

use std::cell::Cell;
use std::ptr;
use std::task::{RawWakerVTable, Waker};

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::task::{self, AbortHandle};

/// A runtime, and the keeper's task, which ends with it.
pub(super) struct Home {
    runtime: Handle,
    id: Id,
    keeps: AbortHandle,
}

thread_local! {
    /// What wakes tasks that this thread runs, and whose they are: to ask tokio is to count on a number that all threads share.
    static RUNS: Cell<Option<(&'static RawWakerVTable, Id)>> = const { Cell::new(None) };
}

impl Home {
    /// With the task that keeps deadlines there.
    pub(super) fn new(runtime: Handle, keeper: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            keeps: runtime.spawn(keeper).abort_handle(),
            id: runtime.id(),
            runtime,
        }
    }

    /// None, if it has ended.
    pub(super) fn runtime(&self) -> Option<&Handle> {
        (!self.keeps.is_finished()).then_some(&self.runtime)
    }

    /// Whether the keeper runs where somebody is polled with this waker. If it runs elsewhere, it may rest or be held up while others are
    /// not.
    #[inline]
    pub(super) fn keeps_time_of(&self, waker: &Waker) -> bool {
        let runs = RUNS.get();
        let is_known = runs.is_some_and(|(wakes, id)| ptr::eq(wakes, waker.vtable()) && id == self.id);
        (is_known || self.is_here(waker)) && !self.keeps.is_finished()
    }

    #[inline(never)]
    fn is_here(&self, waker: &Waker) -> bool {
        let Ok(here) = Handle::try_current() else {
            // Who is of no runtime has no timer of its own.
            return true;
        };
        // A thread that runs tasks of such a runtime runs those of no other, nor does it become another's; and who blocks on another one
        // there is polled with another waker. Only a set of futures, which has wakers of its own, could be polled with the same: it
        // relies on the keeper then, which is late while all threads of its runtime are held up.
        if here.runtime_flavor() == RuntimeFlavor::MultiThread && task::try_id().is_some() {
            RUNS.set(Some((waker.vtable(), here.id())));
        }
        here.id() == self.id
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.keeps.abort();
    }
}
