//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::decision::Decision;
use crate::engine::Deciding;
use crate::headers::Headers;
use crate::layer::Config;
use crate::rejection::Rejection;
use crate::response::ResponseForRejection;
use crate::service::refuse;

pin_project! {
    /// The response of [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future, S::Response, S, B, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, Res, S, B, R> {
        /// The inner service is at work, and its response gets the decision's headers.
        Calling {
            #[pin]
            inner: F,
            decided: Option<(Decision, Headers)>,
        },
        Refused {
            response: Option<Res>,
        },
        /// The store is asked. The service was ready when it was taken.
        Deciding {
            deciding: Deciding,
            request: Option<(Parts, B)>,
            service: Option<S>,
            config: Arc<Config>,
            rejection: Arc<R>,
        },
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) const fn passing(inner: S::Future) -> Self {
        Self {
            state: State::Calling { inner, decided: None },
        }
    }

    pub(crate) const fn calling(inner: S::Future, decision: Decision, headers: Headers) -> Self {
        Self {
            state: State::Calling {
                inner,
                decided: Some((decision, headers)),
            },
        }
    }

    pub(crate) const fn refused(response: S::Response) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    pub(crate) const fn deciding(
        deciding: Deciding,
        request: (Parts, B),
        service: S,
        config: Arc<Config>,
        rejection: Arc<R>,
    ) -> Self {
        Self {
            state: State::Deciding {
                deciding,
                request: Some(request),
                service: Some(service),
                config,
                rejection,
            },
        }
    }
}

impl<S, B, ResBody, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: ResponseForRejection<ResBody>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            let next = match this.state.as_mut().project() {
                StateProj::Calling { inner, decided } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some((decision, headers)) = decided {
                        headers.write(decision, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect("polled after completion")));
                }
                StateProj::Deciding {
                    deciding,
                    request,
                    service,
                    config,
                    rejection,
                } => {
                    let decision = ready!(Pin::new(deciding).poll(cx));
                    let (mut parts, body) = request.take().expect("taken once, when decided");
                    let mut service = service.take().expect("taken once, when decided");
                    if decision.is_allowed() {
                        config.tell(&mut parts, &decision);
                        State::Calling {
                            inner: service.call(Request::from_parts(parts, body)),
                            decided: Some((decision, config.headers)),
                        }
                    } else {
                        State::Refused {
                            response: Some(refuse(&**rejection, Rejection::of(decision), &parts, config)),
                        }
                    }
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
