//! A bound on how long a store may take to answer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Wakes the suite in real time, so that it sees for itself that an answer is late.
///
/// The suite knows nothing of the runtime that it runs in, whose timers may be missing, paused or at rest because
/// the store is: hence a thread, which only a store that makes the suite wait gets.
pub(super) struct Alarm {
    patience: Duration,
    ticker: OnceLock<Ticker>,
}

struct Ticker {
    waiting: Arc<Mutex<Option<Waker>>>,
    /// The thread ends with this.
    _running: Sender<()>,
}

impl Ticker {
    fn new(every: Duration) -> Self {
        let (running, ended) = channel();
        let waiting = Arc::new(Mutex::new(None::<Waker>));
        let waiter = Arc::clone(&waiting);
        thread::spawn(move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let waker = waiter.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        });
        Self {
            waiting,
            _running: running,
        }
    }
}

impl Alarm {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            ticker: OnceLock::new(),
        }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// What the future answers; `None` if it does not in time.
    pub(super) async fn within<T>(&self, mut future: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut since = None;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = Pin::new(&mut future).poll(cx) {
                return Poll::Ready(Some(answer));
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= self.patience {
                return Poll::Ready(None);
            }
            self.wake_soon(cx.waker());
            Poll::Pending
        })
        .await
    }

    fn wake_soon(&self, waker: &Waker) {
        let every = (self.patience / 10).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let ticker = self.ticker.get_or_init(|| Ticker::new(every));
        *ticker.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
    }
}
