//! Addresses of connections.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;
use http::request::Parts;

use super::membership::{Finds, InNetworks, is_in};
use super::network::Network;
use super::networks::CidrError;
use crate::key::{KeyBuilder, KeyExtractor, Missing};

/// The address at the other end of the connection, as a request extension.
///
/// Whoever accepts connections without axum inserts it into every request; [`PeerIp`] and
/// [`ClientIp`](super::ClientIp) read it before anything else.
///
/// ```
/// use std::net::SocketAddr;
/// use tollgate::key::PeerAddr;
///
/// # let address = SocketAddr::from(([192, 0, 2, 1], 4711));
/// // `let (stream, address) = listener.accept().await?;`, then in the connection's service:
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr(address));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// Counts by the address at the other end of the connection: one IPv4 address, or one IPv6 /64.
///
/// The right key where clients connect directly. Behind a proxy every request comes from the proxy: use
/// [`ClientIp`](super::ClientIp) there. IPv4 addresses that arrive as IPv6 (`::ffff:192.0.2.1`) count as
/// IPv4.
///
/// The address comes from [`PeerAddr`], else, with the feature `axum`, from axum's `ConnectInfo<SocketAddr>`,
/// which `into_make_service_with_connect_info::<SocketAddr>()` provides, or from
/// `MockConnectInfo<SocketAddr>` in tests. Without any of them the request has no key. A tonic server tells
/// addresses in its own way: see [`Address`](super::Address).
///
/// ```
/// use tollgate::key::{self, KeyExtractor};
///
/// let wider = key::PeerIp.ipv6_prefix(56).ipv4_prefix(24);
/// let in_plain_sight = wider.readable();
/// # let _ = in_plain_sight;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerIp;

impl PeerIp {
    /// Counts IPv4 addresses with the same first `bits` bits together (default 32).
    ///
    /// # Panics
    ///
    /// If `bits` exceeds 32.
    #[must_use]
    #[track_caller]
    pub const fn ipv4_prefix(self, bits: u8) -> PeerNetwork {
        PeerNetwork(Network::DEFAULT).ipv4_prefix(bits)
    }

    /// Counts IPv6 addresses with the same first `bits` bits together (default 64).
    ///
    /// # Panics
    ///
    /// If `bits` exceeds 128.
    #[must_use]
    #[track_caller]
    pub const fn ipv6_prefix(self, bits: u8) -> PeerNetwork {
        PeerNetwork(Network::DEFAULT).ipv6_prefix(bits)
    }

    is_in!();
}

impl Finds for PeerIp {
    fn find(&self, parts: &Parts) -> Option<IpAddr> {
        peer_ip(&parts.extensions)
    }
}

/// [`PeerIp`] with other prefixes.
#[derive(Clone, Copy, Debug)]
pub struct PeerNetwork(Network);

impl PeerNetwork {
    /// Counts IPv4 addresses with the same first `bits` bits together (default 32).
    ///
    /// # Panics
    ///
    /// If `bits` exceeds 32.
    #[must_use]
    #[track_caller]
    pub const fn ipv4_prefix(self, bits: u8) -> Self {
        Self(self.0.ipv4(bits))
    }

    /// Counts IPv6 addresses with the same first `bits` bits together (default 64).
    ///
    /// # Panics
    ///
    /// If `bits` exceeds 128.
    #[must_use]
    #[track_caller]
    pub const fn ipv6_prefix(self, bits: u8) -> Self {
        Self(self.0.ipv6(bits))
    }
}

impl From<PeerIp> for PeerNetwork {
    /// With the default prefixes.
    fn from(_: PeerIp) -> Self {
        Self(Network::DEFAULT)
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        PeerNetwork(Network::DEFAULT).extract(parts, key)
    }
}

impl KeyExtractor for PeerNetwork {
    #[inline]
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        self.0.write(peer_ip(&parts.extensions).ok_or(NO_PEER)?, key);
        Ok(())
    }
}

#[cfg(feature = "axum")]
pub(super) const NO_PEER: Missing = Missing::new(
    "the peer's address is unknown: serve the router with \
     `into_make_service_with_connect_info::<SocketAddr>()`; when serving with hyper, insert \
     `tollgate::key::PeerAddr` into the request's extensions; with tonic, use `tollgate::key::Address` with its \
     `TcpConnectInfo`",
);

#[cfg(not(feature = "axum"))]
pub(super) const NO_PEER: Missing = Missing::new(
    "the peer's address is unknown: insert `tollgate::key::PeerAddr` into the request's extensions where the \
     connection is accepted; with tonic, use `tollgate::key::Address` with its `TcpConnectInfo` (tollgate's \
     feature `axum` reads axum's `ConnectInfo`)",
);

#[inline]
pub(super) fn peer_ip(extensions: &Extensions) -> Option<IpAddr> {
    let address = match extensions.get::<PeerAddr>() {
        Some(PeerAddr(address)) => *address,
        None => connect_info(extensions)?,
    };
    Some(address.ip().to_canonical())
}

#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<SocketAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    match extensions.get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(address)) => Some(*address),
        None => extensions
            .get::<MockConnectInfo<SocketAddr>>()
            .map(|MockConnectInfo(address)| *address),
    }
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<SocketAddr> {
    None
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts, peer};

    #[test]
    fn the_peer_is_found() {
        let peer_ip = PeerIp.readable();
        let parts = parts(Request::get("/").extension(peer("[::ffff:192.0.2.1]:80")));
        assert_eq!(key_of(&peer_ip, &parts), Ok("ip=192.0.2.1".to_owned()));
        let hashed = key_of(&PeerIp, &parts).unwrap();
        assert!(hashed.starts_with("ip=~"), "{hashed}");
        let network = PeerIp.ipv6_prefix(48).ipv4_prefix(16).readable();
        assert_eq!(key_of(&network, &parts), Ok("ip=192.0.0.0/16".to_owned()));
    }

    #[cfg(feature = "axum")]
    #[test]
    fn axum_knows_the_peer() {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        let address = |last| SocketAddr::from(([192, 0, 2, last], 80));
        let mut parts = parts(Request::get("/").extension(MockConnectInfo(address(3))));
        let found = |parts: &Parts| key_of(&PeerIp.readable(), parts).unwrap();
        assert_eq!(found(&parts), "ip=192.0.2.3");
        parts.extensions.insert(ConnectInfo(address(2)));
        assert_eq!(found(&parts), "ip=192.0.2.2");
        parts.extensions.insert(PeerAddr(address(1)));
        assert_eq!(found(&parts), "ip=192.0.2.1");
    }

    #[test]
    fn no_peer_says_what_to_do() {
        let missing = key_of(&PeerIp, &parts(Request::get("/"))).unwrap_err();
        assert!(missing.hint().contains("tollgate::key::PeerAddr"), "{missing}");
        assert_eq!(
            missing.hint().contains("into_make_service_with_connect_info"),
            cfg!(feature = "axum"),
            "{missing}"
        );
    }
}
