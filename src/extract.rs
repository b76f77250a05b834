//! [`Decision`] and [`ChargeHandle`] as axum extractors.

use std::convert::Infallible;
use std::fmt;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::charge::ChargeHandle;
use crate::decision::Decision;

/// The decision of the innermost layer that limits the request; without one, that it is exempt. `Option<Decision>`
/// where there may be no layer.
impl<S: Sync> FromRequestParts<S> for Decision {
    type Rejection = MissingDecision;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or(MissingDecision(()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// A handler takes a [`Decision`], and no layer has made one: status 500.
#[derive(Clone, Copy, Debug)]
pub struct MissingDecision(());

impl fmt::Display for MissingDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no rate-limit decision in the request's extensions: put a tollgate::RateLimitLayer around this route, \
             or extract Option<Decision>",
        )
    }
}

impl std::error::Error for MissingDecision {}

impl IntoResponse for MissingDecision {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

/// The charge of the innermost layer that limits the request and has
/// [`charge_extension`](crate::RateLimitLayer::charge_extension) set. `Option<ChargeHandle>` where there may be none.
impl<S: Sync> FromRequestParts<S> for ChargeHandle {
    type Rejection = MissingCharge;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get().cloned().ok_or(MissingCharge(()))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for ChargeHandle {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// A handler takes a [`ChargeHandle`], and no layer has made one: status 500.
#[derive(Clone, Copy, Debug)]
pub struct MissingCharge(());

impl fmt::Display for MissingCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no rate-limit charge in the request's extensions: set `charge_extension(true)` on the \
             tollgate::RateLimitLayer around this route, or extract Option<ChargeHandle>",
        )
    }
}

impl std::error::Error for MissingCharge {}

impl IntoResponse for MissingCharge {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::fixtures::{Said, decision, ready};

    #[test]
    fn a_handler_gets_the_decision() {
        let decision = decision(true, &[Said::new(7)]);
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.extensions.insert(decision.clone());
        let found = ready(<Decision as FromRequestParts<()>>::from_request_parts(
            &mut parts,
            &(),
        ));
        assert_eq!(found.ok(), Some(decision.clone()));
        let found = ready(<Decision as OptionalFromRequestParts<()>>::from_request_parts(
            &mut parts,
            &(),
        ));
        assert_eq!(found, Ok(Some(decision)));
    }

    #[test]
    fn a_missing_layer_is_named() {
        let (mut parts, ()) = Request::new(()).into_parts();
        let found = ready(<Decision as FromRequestParts<()>>::from_request_parts(
            &mut parts,
            &(),
        ));
        let error = found.expect_err("there is none");
        assert!(error.to_string().contains("RateLimitLayer"), "{error}");
        assert_eq!(error.into_response().status(), StatusCode::INTERNAL_SERVER_ERROR);
        let found = ready(<Decision as OptionalFromRequestParts<()>>::from_request_parts(
            &mut parts,
            &(),
        ));
        assert_eq!(found, Ok(None));
    }
}
