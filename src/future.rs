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

use crate::layer::{Assessment, Config, Passed, Waiting};
use crate::lookup::LookingUp;
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
        /// The inner service is at work, and its response is told of the decision.
        Calling {
            #[pin]
            inner: F,
            passed: Passed,
        },
        Refused {
            response: Option<Res>,
        },
        /// Something has to be looked up, or the store is asked. Boxed: it is several times as large as the rest, and
        /// requests that need no waiting would pay for its size too, with every move of the future.
        Waiting {
            pending: Box<Pending<S, B, R>>,
        },
    }
}

/// What waits. The service was ready when it was taken.
struct Pending<S, B, R> {
    step: Step,
    request: Option<(Parts, B)>,
    service: Option<S>,
    config: Arc<Config>,
    rejection: Arc<R>,
}

/// What is waited for.
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub(crate) enum Step {
    LookingUp(LookingUp),
    Deciding(Waiting),
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) const fn calling(inner: S::Future, passed: Passed) -> Self {
        Self {
            state: State::Calling { inner, passed },
        }
    }

    pub(crate) const fn refused(response: S::Response) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    pub(crate) fn waiting(
        step: Step,
        request: (Parts, B),
        service: S,
        config: Arc<Config>,
        rejection: Arc<R>,
    ) -> Self {
        let pending = Box::new(Pending {
            step,
            request: Some(request),
            service: Some(service),
            config,
            rejection,
        });
        Self {
            state: State::Waiting { pending },
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
                StateProj::Calling { inner, passed } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(charge) = &passed.settling {
                        let (parts, body) = response.into_parts();
                        charge.settle_by(&parts);
                        response = Response::from_parts(parts, body);
                    }
                    passed.note.write(&mut response);
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect("polled after completion")));
                }
                StateProj::Waiting { pending } => ready!(pending.poll(cx)),
            };
            this.state.set(next);
        }
    }
}

type Next<S, B, Res, R> = State<<S as Service<Request<B>>>::Future, Res, S, B, R>;

impl<S, B, R> Pending<S, B, R> {
    /// What follows when there is nothing more to wait for.
    fn poll<ResBody>(&mut self, cx: &mut Context<'_>) -> Poll<Next<S, B, Response<ResBody>, R>>
    where
        S: Service<Request<B>, Response = Response<ResBody>>,
        R: ResponseForRejection<ResBody>,
    {
        let (parts, _) = self.request.as_mut().expect("taken once, when decided");
        let rejection = loop {
            let assessment = match &mut self.step {
                Step::LookingUp(looking_up) => {
                    ready!(looking_up.poll(parts, cx));
                    self.config.assess(parts)
                }
                Step::Deciding(waiting) => ready!(waiting.poll(&self.config, parts, cx)),
            };
            match assessment {
                Assessment::Wait(waiting) => self.step = Step::Deciding(waiting),
                Assessment::Refuse(rejection) => break rejection,
                Assessment::Pass(passed) => {
                    let (parts, body) = self.request.take().expect("taken once, when decided");
                    let mut service = self.service.take().expect("taken once, when decided");
                    let inner = service.call(Request::from_parts(parts, body));
                    return Poll::Ready(State::Calling { inner, passed });
                }
            }
        };
        let response = refuse(&*self.rejection, rejection, parts, &self.config);
        Poll::Ready(State::Refused {
            response: Some(response),
        })
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
