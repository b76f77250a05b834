//! Tasks that ask as fast as they get answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::contestant::{Answer, Contestant};

/// Decisions on one key that a task takes at a time: where they are that fast, a number that all tasks counted on for each one would
/// be a part of what is measured.
const TURN: usize = 16;

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: usize,
    /// Asked in turn, so that tasks that ask at the same time ask for different ones.
    pub(crate) keys: usize,
    pub(crate) decisions: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) allowed: usize,
    pub(crate) degraded: usize,
    pub(crate) elapsed: Duration,
}

impl Load {
    pub(crate) async fn put_on(self, contestant: &Contestant) -> Outcome {
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let tasks: Vec<_> = (0..self.tasks)
            .map(|_| tokio::spawn(self.task(contestant.clone(), Arc::clone(&next))))
            .collect();
        let mut outcome = Outcome::default();
        for task in tasks {
            let of_task = task.await.expect("no task panics");
            outcome.allowed += of_task.allowed;
            outcome.degraded += of_task.degraded;
        }
        outcome.elapsed = start.elapsed();
        outcome
    }

    async fn task(self, mut contestant: Contestant, next: Arc<AtomicUsize>) -> Outcome {
        let turn = if self.keys == 1 { TURN } else { 1 };
        let mut outcome = Outcome::default();
        loop {
            let first = next.fetch_add(turn, Ordering::Relaxed);
            if first >= self.decisions {
                return outcome;
            }
            for index in first..self.decisions.min(first + turn) {
                match contestant.decide(index % self.keys).await {
                    Answer::Allowed => outcome.allowed += 1,
                    Answer::Denied => {}
                    Answer::Degraded => outcome.degraded += 1,
                }
            }
        }
    }
}

/// How long the decision on each key takes, in microseconds; one after another in a task of its own.
pub(crate) async fn latencies(contestant: &Contestant, keys: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut contestant = contestant.clone();
    let keys: Vec<usize> = keys.collect();
    let asking = tokio::spawn(async move {
        let mut micros = Vec::with_capacity(keys.len());
        for key in keys {
            let start = Instant::now();
            contestant.decide(key).await;
            micros.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
        micros
    });
    asking.await.expect("it does not panic")
}
