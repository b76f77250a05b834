//! What has to be looked up before a request can be decided on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Extensions;
use http::request::Parts;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::engine::MAX_DEADLINE;

type Found = Box<dyn FnOnce(&mut Extensions) + Send>;
type Finding = Pin<Box<dyn Future<Output = Option<Found>> + Send>>;

/// A function of a request that has to be waited for, and whose value becomes one of the request's extensions.
#[derive(Clone)]
pub(crate) struct Lookup {
    find: Arc<dyn Fn(&Parts) -> Finding + Send + Sync>,
    /// Whether it was said that it takes too long.
    has_warned: Arc<AtomicBool>,
}

impl Lookup {
    pub(crate) fn new<F, Fut, T>(find: F) -> Self
    where
        F: Fn(&Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<T>> + Send + 'static,
        T: Clone + Send + Sync + 'static,
    {
        Self {
            find: Arc::new(move |request| {
                let finding = find(request);
                Box::pin(async move {
                    let found = finding.await?;
                    Some(Box::new(move |extensions: &mut Extensions| {
                        extensions.insert(found);
                    }) as Found)
                })
            }),
            has_warned: Arc::default(),
        }
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookup")
    }
}

/// The lookups of one request, one after another, and no longer than the deadline.
pub(crate) struct LookingUp {
    lookups: Arc<[Lookup]>,
    /// The one that is under way.
    at: usize,
    finding: Option<Finding>,
    until: Instant,
    /// Made when something has to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl LookingUp {
    pub(crate) fn new(lookups: Arc<[Lookup]>, deadline: Duration) -> Self {
        Self {
            lookups,
            at: 0,
            finding: None,
            until: Instant::now() + deadline.min(MAX_DEADLINE),
            timer: None,
        }
    }

    /// Ready when all has been looked up, or there is no more time.
    pub(crate) fn poll(&mut self, request: &mut Parts, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(lookup) = self.lookups.get(self.at) {
            let finding = self.finding.get_or_insert_with(|| (lookup.find)(request));
            match finding.as_mut().poll(cx) {
                Poll::Ready(found) => {
                    if let Some(found) = found {
                        found(&mut request.extensions);
                    }
                    self.finding = None;
                    self.at += 1;
                }
                Poll::Pending => {
                    let timer = self
                        .timer
                        .get_or_insert_with(|| Box::pin(sleep_until(self.until)));
                    ready!(timer.as_mut().poll(cx));
                    if !lookup.has_warned.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "a lookup took longer than the deadline: such requests are limited without what it looks for"
                        );
                    }
                    return Poll::Ready(());
                }
            }
        }
        Poll::Ready(())
    }
}
