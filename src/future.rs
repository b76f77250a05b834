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

use crate::charge::ChargeHandle;
use crate::decision::Decision;
use crate::headers::Headers;
use crate::layer::{Assessment, Concluded, Config, Waiting};
use crate::lookup::LookingUp;
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
            decision: Decision,
            headers: Headers,
            settling: Option<ChargeHandle>,
        },
        Refused {
            response: Option<Res>,
        },
        /// Something has to be looked up, or the store is asked. The service was ready when it was taken.
        Waiting {
            step: Step,
            request: Option<(Parts, B)>,
            service: Option<S>,
            config: Arc<Config>,
            rejection: Arc<R>,
        },
    }
}

/// What is waited for.
#[allow(
    clippy::large_enum_variant,
    reason = "a box would cost each request to a remote store an allocation"
)]
enum Step {
    LookingUp(LookingUp),
    Deciding(Waiting),
}

impl<F, Res, S, B, R> State<F, Res, S, B, R> {
    fn calling(inner: F, concluded: Concluded, config: &Config) -> Self {
        let Concluded { decision, charge } = concluded;
        let settling = charge.filter(|_| config.settles());
        Self::Calling {
            inner,
            decision,
            headers: config.headers,
            settling,
        }
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<B>>,
{
    pub(crate) fn calling(inner: S::Future, concluded: Concluded, config: &Config) -> Self {
        Self {
            state: State::calling(inner, concluded, config),
        }
    }

    pub(crate) const fn refused(response: S::Response) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    pub(crate) fn looking_up(
        request: (Parts, B),
        service: S,
        config: Arc<Config>,
        rejection: Arc<R>,
    ) -> Self {
        let step = Step::LookingUp(config.look_up());
        Self::waiting(step, request, service, config, rejection)
    }

    pub(crate) const fn deciding(
        waiting: Waiting,
        request: (Parts, B),
        service: S,
        config: Arc<Config>,
        rejection: Arc<R>,
    ) -> Self {
        Self::waiting(Step::Deciding(waiting), request, service, config, rejection)
    }

    const fn waiting(
        step: Step,
        request: (Parts, B),
        service: S,
        config: Arc<Config>,
        rejection: Arc<R>,
    ) -> Self {
        Self {
            state: State::Waiting {
                step,
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
                StateProj::Calling {
                    inner,
                    decision,
                    headers,
                    settling,
                } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(charge) = settling {
                        let (parts, body) = response.into_parts();
                        charge.settle_by(&parts);
                        response = Response::from_parts(parts, body);
                    }
                    headers.write(decision, &mut response);
                    return Poll::Ready(Ok(response));
                }
                StateProj::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect("polled after completion")));
                }
                StateProj::Waiting {
                    step,
                    request,
                    service,
                    config,
                    rejection,
                } => {
                    let (parts, _) = request.as_mut().expect("taken once, when decided");
                    let assessment = match step {
                        Step::LookingUp(looking_up) => {
                            ready!(looking_up.poll(parts, cx));
                            config.assess(parts)
                        }
                        Step::Deciding(waiting) => {
                            Assessment::Decided(ready!(waiting.poll(config, parts, cx)))
                        }
                    };
                    let why = match assessment {
                        Assessment::Wait(waiting) => {
                            *step = Step::Deciding(waiting);
                            continue;
                        }
                        Assessment::Decided(concluded) if concluded.decision.is_allowed() => {
                            let (mut parts, body) = request.take().expect("taken once, when decided");
                            let mut service = service.take().expect("taken once, when decided");
                            config.tell(&mut parts, &concluded);
                            let inner = service.call(Request::from_parts(parts, body));
                            let calling = State::calling(inner, concluded, config);
                            this.state.set(calling);
                            continue;
                        }
                        Assessment::Decided(concluded) => Rejection::of(concluded.decision),
                        Assessment::Refuse(rejection) => rejection,
                    };
                    State::Refused {
                        response: Some(refuse(&**rejection, why, parts, config)),
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
