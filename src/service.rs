//! The service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use crate::future::{ResponseFuture, Step};
use crate::layer::{Assessment, Config};
use crate::rejection::Rejection;
use crate::response::{DefaultResponse, ResponseForRejection};

/// Limits the requests of `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// The inner service's error and response types stay as they are: a refusal is a response. It is called only for
/// requests that pass, and readiness is its own: nothing is reserved before [`call`](Service::call), and a
/// refusal gives back what the inner service had reserved.
pub struct RateLimit<S, R = DefaultResponse> {
    inner: S,
    config: Arc<Config>,
    rejection: Arc<R>,
}

impl<S, R> RateLimit<S, R> {
    pub(crate) const fn new(inner: S, config: Arc<Config>, rejection: Arc<R>) -> Self {
        Self {
            inner,
            config,
            rejection,
        }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, R> RateLimit<S, R> {
    /// The service that was made ready, leaving a clone that was not: readiness, and what it reserves, belongs to
    /// one instance (<https://docs.rs/tower-service/latest/tower_service/trait.Service.html#be-careful-when-cloning-inner-services>).
    fn take_ready(&mut self) -> S {
        let fresh = self.inner.clone();
        mem::replace(&mut self.inner, fresh)
    }

    #[cold]
    fn wait<B>(&mut self, step: Step, request: (Parts, B)) -> ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        let (config, rejection) = (Arc::clone(&self.config), Arc::clone(&self.rejection));
        ResponseFuture::waiting(step, request, self.take_ready(), config, rejection)
    }
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: ResponseForRejection<ResBody>,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // In one piece: parts are large, and would be moved once more.
        let mut request = request.into_parts();
        let assessment = if self.config.looks_up() {
            match self.config.assess_before_lookups(&mut request.0) {
                Some(exempt) => exempt,
                None => {
                    let step = Step::LookingUp(self.config.look_up());
                    return self.wait(step, request);
                }
            }
        } else {
            self.config.assess(&mut request.0)
        };
        let rejection = match assessment {
            Assessment::Pass(passed) => {
                let inner = self.inner.call(Request::from_parts(request.0, request.1));
                return ResponseFuture::calling(inner, passed);
            }
            Assessment::Wait(waiting) => return self.wait(Step::Deciding(waiting), request),
            Assessment::Refuse(rejection) => rejection,
        };
        // Dropping the ready service returns what it had reserved, a permit for example.
        drop(self.take_ready());
        ResponseFuture::refused(refuse(&*self.rejection, rejection, &request.0, &self.config))
    }
}

/// The response to a refused request.
pub(crate) fn refuse<ResBody>(
    builder: &impl ResponseForRejection<ResBody>,
    rejection: Rejection,
    request: &Parts,
    config: &Config,
) -> Response<ResBody> {
    let mut response = builder.response(&rejection, request);
    if let Some(decision) = rejection.decision() {
        config.headers.write(decision, &mut response);
    }
    response.extensions_mut().insert(rejection);
    response
}

impl<S: Clone, R> Clone for RateLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            rejection: Arc::clone(&self.rejection),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
