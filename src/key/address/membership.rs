//! Whether an address is in a network.

use std::net::IpAddr;

use http::request::Parts;

use super::networks::Networks;
use crate::predicate::Predicate;

/// What finds one address in a request.
pub trait Finds: Send + Sync + 'static {
    fn find(&self, parts: &Parts) -> Option<IpAddr>;
}

/// Whether the address that an extractor finds is in one of some networks, as a [`Predicate`].
///
/// [`PeerIp::is_in`](super::PeerIp::is_in), [`ClientIp::is_in`](super::ClientIp::is_in) and
/// [`Address::is_in`](super::Address::is_in) make it. The whole address counts, whatever prefix keys have. IPv4
/// addresses that arrive as IPv6 are IPv4. A request whose address is not known is in no network.
///
/// ```
/// use http::Request;
/// use tollgate::{Predicate, key};
///
/// # fn main() -> Result<(), key::CidrError> {
/// let internal = key::PeerIp.is_in(["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"])?;
///
/// let peer = key::PeerAddr(([10, 1, 2, 3], 4711).into());
/// let (request, ()) = Request::get("/").extension(peer).body(()).unwrap().into_parts();
/// assert!(internal.holds(&request));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InNetworks<A> {
    pub(super) address: A,
    pub(super) networks: Networks,
}

impl<A: Finds> Predicate for InNetworks<A> {
    fn holds(&self, request: &Parts) -> bool {
        let address = self.address.find(request);
        address.is_some_and(|address| self.networks.contains(address.to_canonical()))
    }
}

/// The method of an extractor that [`Finds`] an address.
macro_rules! is_in {
    () => {
        /// Whether the address is in one of these networks (`10.0.0.0/8`, `2001:db8::/32`) or is one of these
        /// addresses, as a [`Predicate`](crate::Predicate).
        ///
        /// # Errors
        ///
        /// If a text is neither.
        pub fn is_in(
            self,
            networks: impl IntoIterator<Item = impl AsRef<str>>,
        ) -> Result<InNetworks<Self>, CidrError> {
            let networks = crate::key::address::networks::Networks::parse(networks)?;
            Ok(InNetworks {
                address: self,
                networks,
            })
        }
    };
}
pub(super) use is_in;

#[cfg(test)]
mod tests {
    use http::Request;
    use http::request::Parts;

    use crate::Predicate;
    use crate::key::testing::{parts, peer};
    use crate::key::{Address, ClientIp, PeerIp};

    const NETWORKS: [&str; 3] = ["10.0.0.0/8", " 2001:db8::/32", "::ffff:192.0.2.1"];

    fn from(address: &str) -> Parts {
        parts(Request::get("/").extension(peer(address)))
    }

    #[test]
    fn peers_are_in_networks() {
        let inside = PeerIp.is_in(NETWORKS).unwrap();
        for (address, expected) in [
            ("10.1.2.3:80", true),
            ("[::ffff:10.1.2.3]:80", true),
            ("11.1.2.3:80", false),
            ("[2001:db8:1::1]:80", true),
            ("[2001:db9::1]:80", false),
            ("192.0.2.1:80", true),
            ("192.0.2.2:80", false),
        ] {
            assert_eq!(inside.holds(&from(address)), expected, "{address}");
        }
        assert!(!inside.holds(&parts(Request::get("/"))));
        assert!(!PeerIp.is_in([""; 0]).unwrap().holds(&from("10.0.0.1:80")));
    }

    #[test]
    fn every_address_of_a_family_is_a_network_too() {
        let ipv4 = PeerIp.is_in(["0.0.0.0/0"]).unwrap();
        assert!(ipv4.holds(&from("[::ffff:192.0.2.1]:80")) && !ipv4.holds(&from("[::1]:80")));
    }

    #[test]
    fn whole_addresses_count() {
        let client = ClientIp::trusted_hops(1).ipv4_prefix(8).ipv6_prefix(8);
        let one = client.is_in(["198.51.100.7", "2001:db8::7"]).unwrap();
        for (forwarded, expected) in [
            ("10.0.0.1, 198.51.100.7", true),
            ("198.51.100.8", false),
            ("198.51.100.7, 10.0.0.1", false),
            ("2001:db8::7", true),
            ("2001:db8::8", false),
            ("unknown", false),
        ] {
            let request = Request::get("/").header("x-forwarded-for", forwarded);
            assert_eq!(one.holds(&parts(request)), expected, "{forwarded}");
        }
    }

    #[test]
    fn addresses_from_elsewhere_are_unmapped() {
        let found = Address::new(|_: &Parts| "::ffff:10.0.0.1".parse().ok());
        assert!(found.is_in(NETWORKS).unwrap().holds(&from("[::1]:80")));
        let nothing = Address::new(|_: &Parts| None);
        assert!(
            !nothing
                .is_in(["::/0", "0.0.0.0/0"])
                .unwrap()
                .holds(&from("[::1]:80"))
        );
    }

    #[test]
    fn bad_networks_are_named() {
        let error = PeerIp.is_in(["10.0.0.1", "10.0.0.0/33"]).unwrap_err().to_string();
        assert!(error.starts_with("`10.0.0.0/33` is not a network"), "{error}");
    }
}
