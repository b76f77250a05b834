//! The future of a store's answer.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, sleep_until};

#[cfg(feature = "redis")]
use super::redis::Entered;
use super::{KnownOutcome, Outcome, StoreError, StoreErrorKind};

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// A store's answer: there already, or awaited. In-process stores never box.
pub struct StoreFuture<T> {
    state: State<T>,
}

enum State<T> {
    Ready(Option<Result<T, StoreError>>),
    Waiting(Boxed<T>),
    /// A call, or a share of one that others make, which needs no box; and what makes the answer of it.
    #[cfg(feature = "redis")]
    Entered(Entered, fn(Outcome) -> T),
}

#[cfg(feature = "redis")]
impl StoreFuture<Outcome> {
    pub(super) const fn entered(entered: Entered) -> Self {
        Self {
            state: State::Entered(entered, |outcome| outcome),
        }
    }
}

impl StoreFuture<Outcome> {
    /// The answer, if it needs no waiting, else what is to be waited for.
    #[inline]
    pub(crate) fn into_answering(self) -> Result<Result<Outcome, StoreError>, Answering> {
        match self.state {
            State::Ready(answer) => Ok(answer.expect("polled after completion")),
            State::Waiting(answer) => Err(Answering(How::Boxed(answer))),
            #[cfg(feature = "redis")]
            State::Entered(entered, _) => Err(Answering(How::Entered(entered))),
        }
    }
}

impl<T> StoreFuture<T> {
    /// An answer that needs no waiting.
    #[must_use]
    #[inline]
    pub const fn ready(answer: Result<T, StoreError>) -> Self {
        Self {
            state: State::Ready(Some(answer)),
        }
    }

    /// An answer that has to be waited for.
    #[must_use]
    pub fn waiting(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self {
            state: State::Waiting(Box::pin(answer)),
        }
    }

    /// The answer, if it needs no waiting.
    ///
    /// # Errors
    ///
    /// The future itself, to be awaited.
    #[inline]
    pub fn into_ready(self) -> Result<Result<T, StoreError>, Self> {
        match self.state {
            State::Ready(Some(answer)) => Ok(answer),
            state => Err(Self { state }),
        }
    }
}

impl<T: Send + Unpin + 'static> StoreFuture<T> {
    /// Whether there is an answer, and none of what it says.
    pub(super) fn done(self) -> StoreFuture<()> {
        match self.into_ready() {
            Ok(answer) => StoreFuture::ready(answer.map(drop)),
            Err(answer) => StoreFuture::waiting(async move { answer.await.map(drop) }),
        }
    }
}

impl<T: Unpin> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.state {
            State::Ready(answer) => Poll::Ready(answer.take().expect("polled after completion")),
            State::Waiting(answer) => answer.as_mut().poll(cx),
            #[cfg(feature = "redis")]
            State::Entered(entered, answer) => Pin::new(entered).poll(cx).map_ok(*answer),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Ready(_) => "StoreFuture(ready)",
            _ => "StoreFuture(waiting)",
        })
    }
}

/// A store's answer that is not there yet. Without room for one that is, as those who wait are many.
pub(crate) struct Answering(How);

enum How {
    Boxed(Boxed<Outcome>),
    #[cfg(feature = "redis")]
    Entered(Entered),
}

impl Answering {
    /// The answer no later than `until`, whatever the store does.
    pub(crate) fn until(self, until: Instant) -> Self {
        let (mut answer, mut timer) = (self, None);
        Self(How::Boxed(Box::pin(poll_fn(move |cx| {
            if let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) {
                return Poll::Ready(answer);
            }
            // Who need not wait needs no timer.
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            let timed_out = || Err(StoreError::new(StoreErrorKind::Timeout));
            timer.as_mut().poll(cx).map(|()| timed_out())
        }))))
    }

    /// The answer to the ordinary ask, if the store tells it in such a form; then nobody need make an [`Outcome`] of it. `None`
    /// if the future itself is to be awaited.
    #[inline]
    pub(crate) fn poll_known(&mut self, _cx: &mut Context<'_>) -> Poll<Option<KnownOutcome>> {
        match &mut self.0 {
            How::Boxed(_) => Poll::Ready(None),
            #[cfg(feature = "redis")]
            How::Entered(entered) => entered.poll_known(_cx),
        }
    }
}

impl Future for Answering {
    type Output = Result<Outcome, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            How::Boxed(answer) => answer.as_mut().poll(cx),
            #[cfg(feature = "redis")]
            How::Entered(entered) => Pin::new(entered).poll(cx),
        }
    }
}
