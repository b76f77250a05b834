//! What responses say about limits.

mod draft;
mod fields;
mod ietf;
mod inner;
mod note;
mod number;
#[cfg(test)]
mod proptests;
mod shadow;
mod shown;
#[cfg(test)]
mod tests;
mod x_ratelimit;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, Response, StatusCode};

pub use self::draft::Draft;
pub(crate) use self::note::Note;
pub(crate) use self::shown::{UNAVAILABLE_RETRY, retry_after, retry_secs};

use self::inner::Inner;
use self::shown::Shown;
use self::x_ratelimit::Reset;
use crate::decision::Decision;
use crate::rejection::Rejection;
use crate::store::{Charge, KnownOutcome};

/// Which header fields a layer writes, on responses that pass and on refusals: any combination of families.
///
/// | family | fields | written |
/// |---|---|---|
/// | [`x_ratelimit`](Self::x_ratelimit) | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | by default; the reset as seconds from now |
/// | [`ietf`](Self::ietf) | `RateLimit`, `RateLimit-Policy` and their forerunners | if set |
/// | [`shadow`](Self::shadow) | `X-RateLimit-Shadow` | if set |
/// | [`retry_after`](Self::retry_after) | `Retry-After` (RFC 9110, section 10.2.3) | on refusals, unless switched off |
///
/// The numbers are those of the decision's [leading policy](Decision::leading). Times are whole seconds, rounded up,
/// and the reset of a refused request is when it may be retried; `Retry-After` is at least 1. A request that is
/// refused [however long it waits](Decision::is_never) gets neither of the two. Nothing is written where nothing
/// limits a request, or nothing is known of its counters.
///
/// Stacked layers agree on one decision: the fields of an inner layer stay if it refused the request, if fewer
/// requests remain by them, or as many and the reset is later. Else all of them are replaced. A 429 of the service's
/// own, from which no more can be told, stays as it is too.
///
/// ```
/// use tollgate::{Draft, Headers};
///
/// let default = Headers::default();
/// assert_eq!(default, Headers::x_ratelimit());
///
/// let like_github = Headers::x_ratelimit().reset_as_epoch();
/// let both = Headers::x_ratelimit().ietf(Draft::V8);
/// let standard = Headers::from(Draft::V8);
/// assert_eq!(standard, Headers::none().ietf(Draft::default()));
/// # let _ = (like_github, both);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Headers {
    x_ratelimit: Option<Reset>,
    ietf: Option<Draft>,
    retry_after: bool,
    shadow: bool,
}

impl Headers {
    /// No family: only `Retry-After`, on refusals.
    pub const fn none() -> Self {
        Self {
            x_ratelimit: None,
            ietf: None,
            retry_after: true,
            shadow: false,
        }
    }

    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, the last in seconds from now: what is
    /// written if nothing is set.
    pub const fn x_ratelimit() -> Self {
        Self {
            x_ratelimit: Some(Reset::Delta),
            ..Self::none()
        }
    }

    /// Writes `X-RateLimit-Reset`, if that family is written, as seconds since the Unix epoch, by the store's clock.
    /// Seconds from now, if not set; those need no clock that is right on the client.
    pub const fn reset_as_epoch(self) -> Self {
        self.reset(Reset::Epoch)
    }

    /// Leaves `X-RateLimit-Reset` out.
    pub const fn without_reset(self) -> Self {
        self.reset(Reset::None)
    }

    const fn reset(mut self, reset: Reset) -> Self {
        if self.x_ratelimit.is_some() {
            self.x_ratelimit = Some(reset);
        }
        self
    }

    /// Adds the IETF's `RateLimit` fields in the form of a draft. Not written if not set.
    pub const fn ietf(mut self, draft: Draft) -> Self {
        self.ietf = Some(draft);
        self
    }

    /// Whether refusals say when to retry. They do if not set.
    pub const fn retry_after(mut self, retry_after: bool) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Whether `X-RateLimit-Shadow` lists the policies in [shadow mode](crate::PolicyMode::Shadow), as a structured field:
    /// `"tried";r=0;t=12;denied` is one that has nothing left, would fit the request in 12 seconds, and would have refused
    /// it. They do not, if not set.
    pub const fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// The fields that may be written. Browsers show none of them to scripts of other origins unless the response
    /// lists them in `Access-Control-Expose-Headers`; a CORS layer does that, and it must wrap the limiting layer so
    /// that refusals are listed too.
    ///
    /// ```
    /// use tollgate::Headers;
    ///
    /// let names = Headers::default().names();
    /// // CorsLayer::new().expose_headers(names)
    /// assert!(names.contains(&http::header::RETRY_AFTER));
    /// assert_eq!(names.len(), 4);
    /// ```
    #[must_use]
    pub fn names(&self) -> Vec<HeaderName> {
        let mut names = Vec::new();
        if let Some(reset) = self.x_ratelimit {
            names.extend_from_slice(x_ratelimit::names(reset));
        }
        if let Some(draft) = self.ietf {
            names.extend_from_slice(ietf::names(draft));
        }
        if self.retry_after {
            names.push(RETRY_AFTER);
        }
        if self.shadow {
            names.push(shadow::SHADOW.clone());
        }
        names
    }

    /// Whether there may be fields that list policies.
    #[inline]
    pub(crate) const fn lists_policies(self) -> bool {
        self.ietf.is_some() || self.shadow
    }

    /// What a response that lists no policies says of a grant.
    #[inline]
    pub(crate) fn note_of_grant(self, charge: &Charge<'_>, known: &KnownOutcome) -> Note {
        Note {
            headers: self,
            shown: self.x_ratelimit.map(|_| Shown::of_grant(charge, known)),
            decision: None,
        }
    }

    /// Keeps what a decision says until its response is there.
    #[inline]
    pub(crate) fn note(self, decision: &Decision) -> Note {
        let shown = self.shown(decision);
        let lists = self.ietf.is_some() && shown.is_some() || self.shadow && shadow::lists(decision);
        Note {
            headers: self,
            shown,
            decision: lists.then(|| Box::new(decision.clone())),
        }
    }

    #[inline]
    fn shown(self, decision: &Decision) -> Option<Shown> {
        match self.x_ratelimit.is_some() || self.ietf.is_some() {
            true => Shown::of(decision),
            false => None,
        }
    }

    /// Writes what `decision` says into its response, be that the service's or a refusal.
    pub(crate) fn write<B>(self, decision: &Decision, response: &mut Response<B>) {
        if self.retry_after
            && let Some(secs) = retry_after(decision)
        {
            // Whoever builds the refusal may know better, or spread its clients.
            let retry_after = response.headers_mut().entry(RETRY_AFTER);
            retry_after.or_insert_with(|| number::number(secs));
        }
        self.write_said(self.shown(decision).as_ref(), Some(decision), response);
    }

    #[inline]
    fn write_said<B>(self, shown: Option<&Shown>, decision: Option<&Decision>, response: &mut Response<B>) {
        if self.shadow
            && let Some(decision) = decision
        {
            shadow::write(decision, response.headers_mut());
        }
        let Some(shown) = shown else { return };
        // With gRPC, or a response that the user builds, a refusal has another status, but it always carries its
        // reason.
        let refused_inside = shown.is_allowed
            && (response.status() == StatusCode::TOO_MANY_REQUESTS
                || response.extensions().get::<Rejection>().is_some());
        if !refused_inside {
            self.write_families(shown, decision, response.headers_mut());
        }
    }

    /// Writes the families' fields, unless those of an inner layer are more binding.
    fn write_families(self, shown: &Shown, decision: Option<&Decision>, headers: &mut HeaderMap) {
        if fields::any_in(headers) {
            let inner = Inner::read(headers, shown.now_secs()).filter(|_| shown.is_allowed);
            if inner.is_some_and(|inner| inner.is_more_binding(shown)) {
                return;
            }
            for name in &fields::ALL {
                headers.remove(name);
            }
        }
        if let Some(reset) = self.x_ratelimit {
            x_ratelimit::write(shown, reset, headers);
        }
        if let (Some(draft), Some(decision)) = (self.ietf, decision) {
            ietf::write(shown, decision, draft, headers);
        }
    }
}

impl Default for Headers {
    /// [`Headers::x_ratelimit`].
    fn default() -> Self {
        Self::x_ratelimit()
    }
}

impl From<Draft> for Headers {
    /// The IETF's fields alone.
    fn from(draft: Draft) -> Self {
        Self::none().ietf(draft)
    }
}
