//! Waiting for several answers at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::{StoreError, StoreFuture};

/// Awaits all together, so that one that hangs takes no time of the others, and answers in their order.
pub(super) async fn join<F: Future + Unpin>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<F> = futures.into_iter().collect();
    let mut answers: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_done = true;
        for (future, answer) in waiting.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(ready) => *answer = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// What all say together, at once if all are ready.
pub(super) fn all(answers: Vec<StoreFuture<()>>) -> StoreFuture<()> {
    let mut waiting = Vec::new();
    let mut ready = Vec::new();
    for answer in answers {
        match answer.into_ready() {
            Ok(answer) => ready.push(answer),
            Err(answer) => waiting.push(answer),
        }
    }
    if waiting.is_empty() {
        return StoreFuture::ready(StoreError::of_all(ready));
    }
    StoreFuture::waiting(async move { StoreError::of_all(ready.into_iter().chain(join(waiting).await)) })
}
