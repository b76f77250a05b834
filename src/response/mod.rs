//! What a refused client gets.
//!
//! A layer answers with [`DefaultResponse`] unless it is given another [`ResponseForRejection`]; a closure is one.
//! Rate headers and `Retry-After` are not its business: the layer writes them into whatever it returns
//! ([`Headers`](crate::Headers)).
//!
//! ```
//! use http::Response;
//! use http::request::Parts;
//! use tollgate::Rejection;
//! use tollgate::response::{DefaultResponse, ResponseForRejection, is_grpc};
//!
//! let in_house_style = |rejection: &Rejection, request: &Parts| {
//!     if is_grpc(request) {
//!         return DefaultResponse::new().response(rejection, request);
//!     }
//!     let mut response = Response::new(format!("Sorry, {rejection}."));
//!     *response.status_mut() = rejection.status();
//!     response
//! };
//! # fn is_one(_: impl ResponseForRejection<String>) {}
//! # is_one(in_house_style);
//! ```

mod accept;
mod body;
mod default;
mod grpc;
mod grpc_details;

use http::Response;
use http::request::Parts;

pub use self::default::DefaultResponse;
pub use self::grpc::is_grpc;

use crate::rejection::Rejection;

/// Builds the response to a refused request. Implemented for closures and functions.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not build responses to refused requests with the body `{B}`",
    note = "use `DefaultResponse` with a body that implements `Default`, or a `Fn(&Rejection, &Parts) -> Response<_>`"
)]
pub trait ResponseForRejection<B>: Send + Sync + 'static {
    /// The response. The layer adds the rate headers and, if it has none yet, `Retry-After`.
    fn response(&self, rejection: &Rejection, request: &Parts) -> Response<B>;
}

impl<F, B> ResponseForRejection<B> for F
where
    F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
{
    fn response(&self, rejection: &Rejection, request: &Parts) -> Response<B> {
        self(rejection, request)
    }
}
