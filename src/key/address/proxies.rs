//! Which proxies are trusted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

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

#[derive(Clone, Debug)]
pub(super) struct Proxies(Arc<[IpNet]>);

impl Proxies {
    pub(super) fn parse(list: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, CidrError> {
        list.into_iter()
            .map(|text| parse_cidr(text.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// `address` is canonical.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&address))
    }
}

fn parse_cidr(text: &str) -> Result<IpNet, CidrError> {
    let error = |everyone| CidrError {
        text: text.chars().take(80).collect(),
        everyone,
    };
    let trimmed = text.trim();
    let net = match trimmed.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => trimmed.parse().map(unmapped).map_err(|_| error(false))?,
    };
    if net.prefix_len() == 0 {
        return Err(error(true));
    }
    Ok(net)
}

/// Addresses are unmapped before they are looked up, so networks must be too.
fn unmapped(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(bits)) if matches!(net, IpNet::V6(_)) => {
            Ipv4Net::new(address, bits).map_or(net, IpNet::V4)
        }
        _ => net,
    }
}

/// Why a text is not a network of trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError {
    text: String,
    everyone: bool,
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.escape_debug();
        if self.everyone {
            write!(
                f,
                "`{text}` trusts everyone, so clients could choose their own address: list the proxies' \
                 networks, or count hops with `ClientIp::trusted_hops`"
            )
        } else {
            write!(
                f,
                "`{text}` is not a network: write an address and how many of its leading bits count, such as \
                 `10.0.0.0/8` or `2001:db8::/32`, or a single address"
            )
        }
    }
}

impl std::error::Error for CidrError {}

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
