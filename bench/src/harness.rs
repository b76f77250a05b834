//! What every measurement runs on.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Runtime};

/// The same for all.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads can be started")
}

/// Polls a future that is ready at once.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("nothing here waits"),
    }
}
