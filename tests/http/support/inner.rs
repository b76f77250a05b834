//! A service that watches how it is used.

use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

/// Answers `hello`, or fails when told to. Counts calls when they are made, not when their futures are polled, and
/// panics when an instance is called that was not made ready.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    ready: bool,
    watched: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    calls: AtomicUsize,
    clones: AtomicUsize,
    behaviour: Mutex<Behaviour>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Behaviour {
    not_ready: bool,
    fails: bool,
    fails_to_be_ready: bool,
}

/// An error that is not `Send`, has no source and converts into nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InnerError {
    text: &'static str,
    _not_send: PhantomData<Rc<()>>,
}

impl InnerError {
    pub(crate) fn new(text: &'static str) -> Self {
        Self {
            text,
            _not_send: PhantomData,
        }
    }
}

impl fmt::Display for InnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl Inner {
    /// How often any clone was called.
    pub(crate) fn calls(&self) -> usize {
        self.watched.calls.load(Ordering::SeqCst)
    }

    /// How often any clone was cloned.
    pub(crate) fn clones(&self) -> usize {
        self.watched.clones.load(Ordering::SeqCst)
    }

    /// A clone for the test to watch, which is not counted.
    pub(crate) fn watch(&self) -> Self {
        Self {
            ready: false,
            watched: Arc::clone(&self.watched),
        }
    }

    pub(crate) fn set_not_ready(&self, not_ready: bool) {
        self.set(|behaviour| behaviour.not_ready = not_ready);
    }

    pub(crate) fn fail(&self) {
        self.set(|behaviour| behaviour.fails = true);
    }

    pub(crate) fn fail_to_be_ready(&self) {
        self.set(|behaviour| behaviour.fails_to_be_ready = true);
    }

    fn set(&self, set: impl FnOnce(&mut Behaviour)) {
        set(&mut self
            .watched
            .behaviour
            .lock()
            .expect("no test has failed under it"));
    }

    fn behaviour(&self) -> Behaviour {
        *self
            .watched
            .behaviour
            .lock()
            .expect("no test has failed under it")
    }
}

impl Clone for Inner {
    fn clone(&self) -> Self {
        self.watched.clones.fetch_add(1, Ordering::SeqCst);
        self.watch()
    }
}

impl<B> Service<Request<B>> for Inner {
    type Response = Response<String>;
    type Error = InnerError;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let behaviour = self.behaviour();
        if behaviour.fails_to_be_ready {
            return Poll::Ready(Err(InnerError::new("never ready")));
        }
        if behaviour.not_ready {
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(self.ready, "called without having been made ready");
        self.ready = false;
        self.watched.calls.fetch_add(1, Ordering::SeqCst);
        ready(if self.behaviour().fails {
            Err(InnerError::new("out of order"))
        } else {
            Ok(Response::new("hello".to_owned()))
        })
    }
}
