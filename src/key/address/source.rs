//! Where addresses are reported.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};

use super::node::parse_node;

/// Where proxies report addresses. Never two of them together: a proxy that appends to one passes the other
/// on as the client sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses, with or without port, brackets and zone.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239: the addresses in its `for` parameters.
    Forwarded,
    /// A header of one line with one address that the proxy overwrites, such as `cf-connecting-ip`. It counts
    /// only if the peer is trusted.
    Vendor(HeaderName),
}

/// The address in a field of one line.
pub(super) fn only_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).into_iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => parse_node(line.as_bytes()),
        _ => None,
    }
}
