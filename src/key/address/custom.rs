//! Addresses from elsewhere.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::membership::{Finds, InNetworks, is_in};
use super::network::{Network, network_setters};
use super::networks::CidrError;
use crate::key::{KeyBuilder, KeyExtractor, Missing};

/// Counts by an address that something else has found: an outer layer that put it into the request's
/// extensions, the PROXY protocol, tonic's `TcpConnectInfo`.
///
/// Networks, hashing and tag are those of [`PeerIp`](super::PeerIp), so both make equal keys of equal
/// addresses.
///
/// ```
/// use std::net::IpAddr;
/// use http::request::Parts;
/// use tollgate::key;
///
/// #[derive(Clone)]
/// struct RealIp(IpAddr);
///
/// let client = key::Address::new(|parts: &Parts| parts.extensions.get::<RealIp>().map(|ip| ip.0));
/// # let _ = client;
/// ```
///
/// The peer of a tonic server:
///
/// ```
/// use http::request::Parts;
/// use tollgate::key;
/// use tonic::transport::server::TcpConnectInfo;
///
/// let peer = key::Address::new(|request: &Parts| {
///     Some(request.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip())
/// });
/// # let _ = peer;
/// ```
#[derive(Clone)]
pub struct Address {
    find: Arc<Find>,
    network: Network,
}

type Find = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

impl Address {
    /// Counts by the address that `find` returns; `None` means that the request has no key.
    pub fn new(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self {
            find: Arc::new(find),
            network: Network::DEFAULT,
        }
    }

    network_setters!();
    is_in!();
}

impl Finds for Address {
    fn find(&self, parts: &Parts) -> Option<IpAddr> {
        (self.find)(parts)
    }
}

impl KeyExtractor for Address {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        let address = (self.find)(parts).ok_or(Missing::new(
            "the function given to `key::Address` found no address: is the layer that provides it outside the \
             rate limit?",
        ))?;
        self.network.write(address, key);
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::PeerIp;
    use crate::key::testing::{key_of, parts, peer};

    #[test]
    fn equal_addresses_make_equal_keys() {
        let mut parts = parts(Request::get("/").extension(peer("192.0.2.1:80")));
        let address = Address::new(|parts: &Parts| parts.extensions.get::<IpAddr>().copied());
        let missing = key_of(&address, &parts).unwrap_err();
        assert!(missing.hint().contains("outside the rate limit"), "{missing}");
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        parts.extensions.insert(mapped);
        assert_eq!(key_of(&address, &parts), key_of(&PeerIp, &parts));
        let network = address.ipv4_prefix(24).ipv6_prefix(48).readable();
        assert_eq!(key_of(&network, &parts), Ok("ip=192.0.2.0/24".to_owned()));
    }
}
