//! The thread that lets an idle store shrink.

use std::sync::{OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Shared;

const PERIOD: Duration = Duration::from_secs(1);

/// Buckets looked at under one lock: a few microseconds.
const STEP: usize = 64;

/// Walks all shards about once a second, a few buckets at a time, until the store is dropped. It starts with the
/// first key, needs no async runtime, and takes at most a twentieth of one core.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    thread: OnceLock<Option<Thread>>,
}

impl Sweeper {
    pub(super) fn start(&self, store: &Weak<Shared>) {
        self.thread.get_or_init(|| {
            let store = Weak::clone(store);
            thread::Builder::new()
                .name("tollgate-sweeper".to_owned())
                .spawn(move || run(&store))
                .map(|handle| handle.thread().clone())
                .inspect_err(|error| {
                    tracing::warn!(%error, "no thread for the memory store: it shrinks only while new keys arrive");
                })
                .ok()
        });
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

fn run(store: &Weak<Shared>) {
    let mut pause = PERIOD;
    loop {
        thread::park_timeout(pause);
        let Some(store) = store.upgrade() else { return };
        let start = Instant::now();
        for shard in &store.shards {
            let mut swept = false;
            while !swept {
                swept = {
                    let mut shard = shard.lock();
                    shard.sweep(store.clock.now(), STEP, &store.budget)
                };
            }
            swept = false;
            while !swept {
                swept = {
                    let mut shard = shard.lock();
                    let penalties = &mut shard.penalties;
                    penalties.sweep(store.clock.now(), STEP, &store.budget)
                };
            }
        }
        pause = PERIOD.max(start.elapsed() * 20);
    }
}
