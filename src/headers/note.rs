//! What a response is going to say.

use http::Response;

use super::Headers;
use super::shown::Shown;
use crate::decision::Decision;

/// What the response to a request is going to say of its decision. It waits for the response with the request's future,
/// which is moved about: so it holds no more than the numbers where these are all that is said.
#[derive(Debug)]
pub(crate) struct Note {
    pub(super) headers: Headers,
    pub(super) shown: Option<Shown>,
    /// For the fields that list policies.
    pub(super) decision: Option<Box<Decision>>,
}

impl Note {
    /// Writes what there is to say, except what the response itself knows better.
    #[inline]
    pub(crate) fn write<B>(&self, response: &mut Response<B>) {
        self.headers
            .write_said(self.shown.as_ref(), self.decision.as_deref(), response);
    }
}
