//! Which proxies are trusted.

use std::net::IpAddr;

use super::networks::{CidrError, Networks, parse_cidr};

#[derive(Clone, Debug)]
pub(super) enum Trust {
    Hops(usize),
    Proxies(Proxies),
}

impl Trust {
    /// The client's address. `addresses` are those to the left of the peer, from the right, up to the first
    /// that cannot be read.
    pub(super) fn walk(
        &self,
        peer: Option<IpAddr>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Option<IpAddr> {
        let addresses = addresses.into_iter();
        match self {
            Self::Hops(hops) => addresses.take(*hops).last().or(peer),
            Self::Proxies(proxies) => {
                let mut client = peer?;
                for address in addresses {
                    if !proxies.contains(client) {
                        break;
                    }
                    client = address;
                }
                Some(client)
            }
        }
    }
}

/// Networks that are not everybody's.
#[derive(Clone, Debug)]
pub(super) struct Proxies(Networks);

impl Proxies {
    pub(super) fn parse(list: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, CidrError> {
        let parse = |text: &str| match parse_cidr(text) {
            Ok(net) if net.prefix_len() == 0 => Err(CidrError::everyone(text)),
            result => result,
        };
        let networks = list.into_iter().map(|text| parse(text.as_ref()));
        networks.collect::<Result<_, _>>().map(Self)
    }

    /// `address` is canonical.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(cidr: &str, address: &str) -> bool {
        let proxies = Proxies::parse([cidr]).unwrap();
        proxies.contains(address.parse().unwrap())
    }

    #[test]
    fn networks_and_addresses_are_taken() {
        assert!(contains("10.0.0.0/8", "10.1.2.3"));
        assert!(contains(" 10.9.9.9/8 ", "10.1.2.3"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("192.0.2.1", "192.0.2.1"));
        assert!(!contains("192.0.2.1", "192.0.2.2"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(contains("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!Proxies::parse([""; 0]).unwrap().contains([10, 0, 0, 1].into()));
    }

    #[test]
    fn bad_networks_are_named() {
        for bad in [
            "10.0.0.0/33",
            "10.0.0/8",
            "",
            "proxy.internal",
            "10.0.0.0-10.0.0.9",
        ] {
            let error = Proxies::parse(["192.0.2.1", bad]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
            assert!(error.contains("such as `10.0.0.0/8`"), "{error}");
        }
        for everyone in ["0.0.0.0/0", "::/0", "::ffff:0:0/96"] {
            let error = Proxies::parse([everyone]).unwrap_err().to_string();
            assert!(error.contains("trusts everyone"), "{error}");
        }
    }
}
