//! Lists of networks.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

#[derive(Clone, Debug)]
pub(super) struct Networks(Arc<[IpNet]>);

impl Networks {
    pub(super) fn parse(list: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, CidrError> {
        list.into_iter().map(|text| parse_cidr(text.as_ref())).collect()
    }

    /// `address` is canonical.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&address))
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Self {
        Self(nets.into_iter().collect())
    }
}

pub(super) fn parse_cidr(text: &str) -> Result<IpNet, CidrError> {
    let trimmed = text.trim();
    match trimmed.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address.to_canonical())),
        Err(_) => trimmed.parse().map(unmapped).map_err(|_| CidrError::syntax(text)),
    }
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

/// Why a text is not a network, or not one of trusted proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CidrError {
    text: String,
    everyone: bool,
}

impl CidrError {
    fn syntax(text: &str) -> Self {
        Self {
            text: text.chars().take(80).collect(),
            everyone: false,
        }
    }

    pub(super) fn everyone(text: &str) -> Self {
        Self {
            everyone: true,
            ..Self::syntax(text)
        }
    }
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
