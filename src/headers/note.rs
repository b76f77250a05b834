//! What a response is going to say.

use http::{Response, StatusCode};

use super::shown::Shown;
use super::{Headers, shadow};
use crate::decision::Decision;
use crate::rejection::Rejection;

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
        let decision = self.decision.as_deref();
        if self.headers.shadow
            && let Some(decision) = decision
        {
            shadow::write(decision, response.headers_mut());
        }
        let Some(shown) = &self.shown else { return };
        // With gRPC, or a response that the user builds, a refusal has another status, but it always carries its
        // reason.
        let refused_inside = shown.is_allowed
            && (response.status() == StatusCode::TOO_MANY_REQUESTS
                || response.extensions().get::<Rejection>().is_some());
        if !refused_inside {
            self.headers
                .write_families(shown, decision, response.headers_mut());
        }
    }
}
