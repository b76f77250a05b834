//! Addresses of clients behind proxies.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::request::Parts;

use super::chain::{Elements, MAX_ELEMENTS};
use super::forwarded::parse_for;
use super::membership::{Finds, InNetworks, is_in};
use super::network::{Network, network_setters};
use super::networks::CidrError;
use super::node::parse_node;
use super::peer::{NO_PEER, peer_ip};
use super::proxies::{Proxies, Trust};
use super::source::{ForwardedHeader, only_address};
use crate::key::{KeyBuilder, KeyExtractor, Missing};

/// Counts by the client's address as trusted proxies report it: one IPv4 address, or one IPv6 /64.
///
/// Proxies append the address that they see to a header; clients can send that header too. So only what
/// trusted proxies wrote counts, which is on the right:
///
/// 1. The chain is the elements of all lines of one header, in their order, and then the peer (see
///    [`PeerIp`](super::PeerIp)).
/// 2. From its right end, trusted addresses are skipped. The first that is not trusted is the client.
/// 3. A chain that ends before (fewer hops than expected, a value that is no address, such as `unknown`)
///    makes the last address that was reached the client: a proxy's, so such requests share one key. What a
///    client sends on its left is never used.
///
/// Which addresses are trusted is either a number or a list of networks:
///
/// ```
/// use tollgate::key::{ClientIp, ForwardedHeader};
///
/// # fn main() -> Result<(), tollgate::key::CidrError> {
/// // One load balancer in front, and no way around it.
/// let client = ClientIp::trusted_hops(1);
///
/// // Proxies with known addresses; requests that come in another way count by their peer.
/// let client = ClientIp::trusted_proxies(["10.0.0.0/8", "2001:db8:ffff::/48"])?
///     .forwarded_header(ForwardedHeader::Forwarded)
///     .ipv6_prefix(56);
///
/// let error = ClientIp::trusted_proxies(["10.0.0.0/33"]).unwrap_err();
/// assert!(error.to_string().starts_with("`10.0.0.0/33` is not a network"));
/// # Ok(())
/// # }
/// ```
///
/// At most 16 elements are read, and none over 256 bytes.
#[derive(Clone, Debug)]
pub struct ClientIp {
    trust: Trust,
    header: ForwardedHeader,
    network: Network,
}

impl ClientIp {
    /// Trusts as many proxies as stand between clients and this service, the peer being the first.
    ///
    /// With two, `X-Forwarded-For: 198.51.100.7, 203.0.113.9` from the inner proxy means client
    /// `198.51.100.7`. Right only where every request takes that many hops: whoever gets around a proxy
    /// chooses an address. The peer's own address is not needed as long as the header has one.
    ///
    /// # Panics
    ///
    /// If `hops` is 0 (use [`PeerIp`](super::PeerIp)) or over 16.
    #[must_use]
    #[track_caller]
    pub const fn trusted_hops(hops: usize) -> Self {
        assert!(
            Self::can_trust(hops),
            "trust 1 to 16 hops; without a proxy in front, use `key::PeerIp`"
        );
        Self::new(Trust::Hops(hops))
    }

    /// Whether there can be so many hops.
    pub(crate) const fn can_trust(hops: usize) -> bool {
        hops >= 1 && hops <= MAX_ELEMENTS
    }

    /// Trusts proxies by their networks (`10.0.0.0/8`) or addresses.
    ///
    /// With an empty list, every request counts by its peer.
    ///
    /// # Errors
    ///
    /// If a text is neither, or trusts every address.
    pub fn trusted_proxies(proxies: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, CidrError> {
        Ok(Self::new(Trust::Proxies(Proxies::parse(proxies)?)))
    }

    const fn new(trust: Trust) -> Self {
        Self {
            trust,
            header: ForwardedHeader::XForwardedFor,
            network: Network::DEFAULT,
        }
    }

    /// Reads another header than `X-Forwarded-For`.
    #[must_use]
    pub fn forwarded_header(mut self, header: ForwardedHeader) -> Self {
        self.header = header;
        self
    }

    network_setters!();
    is_in!();
}

impl Finds for ClientIp {
    fn find(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = peer_ip(&parts.extensions);
        match &self.header {
            ForwardedHeader::XForwardedFor => {
                let elements = Elements::new(&parts.headers, "x-forwarded-for", false);
                self.trust.walk(peer, elements.map_while(parse_node))
            }
            ForwardedHeader::Forwarded => {
                let elements = Elements::new(&parts.headers, FORWARDED, true);
                self.trust.walk(peer, elements.map_while(parse_for))
            }
            ForwardedHeader::Vendor(name) => self.trust.walk(peer, only_address(&parts.headers, name)),
        }
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        self.network.write(self.find(parts).ok_or(NO_PEER)?, key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};

    use super::*;
    use crate::key::testing::{key_of, parts, peer};

    const FORWARDED_FOR: &str = "x-forwarded-for";
    const PROXY: &str = "10.0.0.1";

    /// The address found for header lines that `PROXY` passed on.
    fn client(client: &ClientIp, name: &str, lines: &[&[u8]]) -> String {
        let mut request = Request::get("/").extension(peer("10.0.0.1:80"));
        for &line in lines {
            request = request.header(name, line);
        }
        let network = client.clone().ipv6_prefix(128).readable();
        let key = key_of(&network, &parts(request)).unwrap();
        key.strip_prefix("ip=").unwrap().to_owned()
    }

    fn proxies() -> ClientIp {
        ClientIp::trusted_proxies(["10.0.0.0/8"]).unwrap()
    }

    #[test]
    fn forged_first_hops_share_one_key() {
        for extractor in [ClientIp::trusted_hops(1), proxies()] {
            for i in 0..20 {
                let line = format!("198.51.100.{i}, 203.0.113.9");
                assert_eq!(
                    client(&extractor, FORWARDED_FOR, &[line.as_bytes()]),
                    "203.0.113.9"
                );
                let forged = format!("198.51.100.{i}");
                let lines: [&[u8]; 2] = [forged.as_bytes(), b"203.0.113.9"];
                assert_eq!(client(&extractor, FORWARDED_FOR, &lines), "203.0.113.9");
            }
        }
    }

    #[test]
    fn garbage_falls_to_the_trusted_side() {
        for garbage in [
            &b"unknown"[..],
            b"",
            b"_x",
            b"\xff\xfe",
            b"203.0.113.9 x",
            &[b'9'; 300],
        ] {
            for extractor in [ClientIp::trusted_hops(1), ClientIp::trusted_hops(2), proxies()] {
                let lines = [&b"198.51.100.1"[..], garbage];
                assert_eq!(client(&extractor, FORWARDED_FOR, &lines), PROXY);
            }
            let lines = [&b"198.51.100.1"[..], garbage, b"10.0.0.2"];
            assert_eq!(client(&proxies(), FORWARDED_FOR, &lines), "10.0.0.2");
            assert_eq!(
                client(&ClientIp::trusted_hops(2), FORWARDED_FOR, &lines),
                "10.0.0.2"
            );
        }
    }

    #[test]
    fn hops_are_counted_from_the_right() {
        let line = [&b"198.51.100.1, 203.0.113.2"[..], b"203.0.113.3"];
        for (hops, expected) in [
            (1, "203.0.113.3"),
            (2, "203.0.113.2"),
            (3, "198.51.100.1"),
            (16, "198.51.100.1"),
        ] {
            let extractor = ClientIp::trusted_hops(hops);
            assert_eq!(client(&extractor, FORWARDED_FOR, &line), expected, "{hops}");
        }
        assert_eq!(client(&ClientIp::trusted_hops(1), FORWARDED_FOR, &[]), PROXY);
    }

    #[test]
    fn networks_are_walked_to_the_first_untrusted() {
        let lines: [&[u8]; 2] = [
            b"198.51.100.1, 203.0.113.2, [::ffff:10.0.0.3]:80",
            b"10.0.0.2:4711",
        ];
        assert_eq!(client(&proxies(), FORWARDED_FOR, &lines), "203.0.113.2");
        assert_eq!(
            client(&proxies(), FORWARDED_FOR, &[b"10.0.0.3, 10.0.0.2"]),
            "10.0.0.3"
        );
        // A proxy that arrives as IPv4 in IPv6 is the same proxy.
        let mapped = Request::get("/").extension(peer("[::ffff:10.0.0.1]:80"));
        let parts = parts(mapped.header(FORWARDED_FOR, "203.0.113.2"));
        assert_eq!(
            key_of(&proxies().readable(), &parts),
            Ok("ip=203.0.113.2".to_owned())
        );
        // A peer that is no proxy is the client, whatever it sends.
        let elsewhere = ClientIp::trusted_proxies(["192.0.2.0/24"]).unwrap();
        assert_eq!(client(&elsewhere, FORWARDED_FOR, &lines), PROXY);
        let nobody = ClientIp::trusted_proxies([""; 0]).unwrap();
        assert_eq!(client(&nobody, FORWARDED_FOR, &lines), PROXY);
    }

    #[test]
    fn forwarded_is_read_from_the_right() {
        let lines: [&[u8]; 2] = [
            b"for=198.51.100.1;host=\"",
            b"For=\"[2001:db8::1]:80\";proto=https, for=10.0.0.2",
        ];
        let hops = |hops| ClientIp::trusted_hops(hops).forwarded_header(ForwardedHeader::Forwarded);
        assert_eq!(client(&hops(1), "forwarded", &lines), "10.0.0.2");
        assert_eq!(client(&hops(2), "forwarded", &lines), "2001:db8::1");
        assert_eq!(client(&hops(3), "forwarded", &lines), "2001:db8::1");
        let proxies = proxies().forwarded_header(ForwardedHeader::Forwarded);
        assert_eq!(client(&proxies, "forwarded", &lines), "2001:db8::1");
        // An open quote on the same line does not swallow what the proxy appended.
        let line: &[u8] = b"for=\"198.51.100.1, for=\"[2001:db8::2]\"";
        assert_eq!(client(&proxies, "forwarded", &[line]), "2001:db8::2");
        // The other header is not read.
        assert_eq!(client(&proxies, FORWARDED_FOR, &[b"203.0.113.9"]), PROXY);
    }

    #[test]
    fn vendor_headers_need_a_trusted_peer() {
        let vendor = || ForwardedHeader::Vendor(HeaderName::from_static("cf-connecting-ip"));
        let name = "cf-connecting-ip";
        for extractor in [ClientIp::trusted_hops(2), proxies()] {
            let extractor = extractor.forwarded_header(vendor());
            assert_eq!(client(&extractor, name, &[b"203.0.113.9"]), "203.0.113.9");
            assert_eq!(client(&extractor, name, &[b"203.0.113.9, 203.0.113.8"]), PROXY);
            assert_eq!(client(&extractor, name, &[b"203.0.113.9", b"203.0.113.8"]), PROXY);
            assert_eq!(client(&extractor, name, &[]), PROXY);
        }
        let elsewhere = ClientIp::trusted_proxies(["192.0.2.0/24"]).unwrap();
        assert_eq!(
            client(&elsewhere.forwarded_header(vendor()), name, &[b"203.0.113.9"]),
            PROXY
        );
    }

    #[test]
    fn the_peer_is_needed_where_it_decides() {
        let with = |value: &str| parts(Request::get("/").header(FORWARDED_FOR, value));
        let hops = ClientIp::trusted_hops(1).readable();
        assert_eq!(
            key_of(&hops, &with("203.0.113.9")),
            Ok("ip=203.0.113.9".to_owned())
        );
        assert_eq!(key_of(&hops, &with("unknown")), Err(NO_PEER));
        assert_eq!(key_of(&proxies(), &with("203.0.113.9")), Err(NO_PEER));
    }

    #[test]
    #[should_panic(expected = "trust 1 to 16 hops")]
    fn no_hops_is_a_mistake() {
        let _ = ClientIp::trusted_hops(0);
    }
}
