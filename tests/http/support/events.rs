//! The events that the crate logs, caught on this thread.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Level, Metadata, Subscriber};

/// An event of this crate: its level, and all its fields as text.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// Catches events until it is dropped. Only those of this thread: for tests whose runtime has no other.
pub(crate) struct Events {
    events: Arc<Mutex<Vec<Event>>>,
    _guard: DefaultGuard,
}

impl Events {
    pub(crate) fn catch() -> Self {
        let events = Arc::default();
        let catcher = Catcher {
            events: Arc::clone(&events),
        };
        Self {
            events,
            _guard: tracing::subscriber::set_default(catcher),
        }
    }

    /// The events of a level so far.
    pub(crate) fn of(&self, level: Level) -> Vec<String> {
        let events = self.events.lock().expect("no test has failed under it");
        events
            .iter()
            .filter(|event| event.level == level)
            .map(|event| event.text.clone())
            .collect()
    }

    /// All events so far.
    pub(crate) fn all(&self) -> Vec<Event> {
        self.events.lock().expect("no test has failed under it").clone()
    }
}

struct Catcher {
    events: Arc<Mutex<Vec<Event>>>,
}

impl Subscriber for Catcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let event = Event {
            level: *event.metadata().level(),
            text: text.0,
        };
        self.events
            .lock()
            .expect("no test has failed under it")
            .push(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?};");
    }
}
