//! What rules look at in a request.

use std::cell::OnceCell;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;

use super::segment::Segment;
use crate::key::{named_host, original_path, route_of};

/// What stands for the path of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The pattern of the matched route.
    Route(&'a str),
    /// The path that the client sent.
    Path(&'a str),
}

impl<'a> Place<'a> {
    /// The route, if there is one that tells where a request goes. One that ends in `{*rest}` does not: the service
    /// behind it, such as a gRPC server, looks at the path.
    fn of(request: &'a Parts) -> Self {
        match route_of(request) {
            Some(route) if !is_catch_all(route) => Self::Route(route),
            _ => Self::Path(original_path(request)),
        }
    }

    pub(super) const fn text(self) -> &'a str {
        match self {
            Self::Route(text) | Self::Path(text) => text,
        }
    }
}

fn is_catch_all(route: &str) -> bool {
    let last = route.rsplit_once('/').map_or(route, |(_, last)| last);
    matches!(Segment::parse(last), Ok(Segment::Rest(_)))
}

/// A request, with what is found in it once.
pub(super) struct Request<'a> {
    parts: &'a Parts,
    pub(super) place: Place<'a>,
    host: OnceCell<Option<SmallVec<[u8; 64]>>>,
}

impl<'a> Request<'a> {
    pub(super) fn new(parts: &'a Parts) -> Self {
        Self {
            parts,
            place: Place::of(parts),
            host: OnceCell::new(),
        }
    }

    pub(super) const fn method(&self) -> &'a Method {
        &self.parts.method
    }

    /// As [`Host`](crate::key::Host) counts it.
    pub(super) fn host(&self) -> Option<&str> {
        let host = self.host.get_or_init(|| named_host(self.parts)).as_deref()?;
        str::from_utf8(host).ok()
    }
}
