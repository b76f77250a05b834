//! What is sent again, and how often: each reason counts once.

use super::class::Class;
use super::script::By;

/// The attempts of one call.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    without_script: bool,
    was_sent_away: bool,
    was_late: bool,
}

impl Attempts {
    /// How the script is named.
    pub(super) const fn by(&self) -> By {
        if self.without_script { By::Text } else { By::Hash }
    }

    /// Whether to send again after an error: with the script's text, which cannot be missing, or on whatever route there is
    /// now.
    pub(super) fn once_more_after(&mut self, class: Class) -> bool {
        match class {
            Class::NoScript => !std::mem::replace(&mut self.without_script, true),
            class if class.may_be_sent_again() => !std::mem::replace(&mut self.was_sent_away, true),
            _ => false,
        }
    }

    /// Whether to send again what the server came to too late: the clock is known better then.
    pub(super) fn once_late(&mut self) -> bool {
        !std::mem::replace(&mut self.was_late, true)
    }
}
