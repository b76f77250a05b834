//! Addresses as proxies write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address with or without port, brackets and zone: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `fe80::1%eth0`, `[2001:db8::1]`, `[2001:db8::1]:80`. Anything else is `None`, `unknown` and names among
/// it.
pub(super) fn parse_node(raw: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(raw).ok()?.trim_matches([' ', '\t']);
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        if !port.is_empty() {
            parse_port(port.strip_prefix(':')?)?;
        }
        parse_ipv6(address)?
    } else if let Some((address, port)) = text.split_once(':') {
        // A second colon means IPv6, which has no port without brackets.
        if port.contains(':') {
            parse_ipv6(text)?
        } else {
            parse_port(port)?;
            parse_ipv4(address)?
        }
    } else {
        parse_ipv4(text)?
    };
    Some(address.to_canonical())
}

fn parse_ipv4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn parse_ipv6(text: &str) -> Option<IpAddr> {
    // A zone names an interface of the host that wrote it, which means nothing here.
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// A port, or one of RFC 7239's obfuscated ones.
fn parse_port(text: &str) -> Option<()> {
    let hidden = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let valid = match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(hidden),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()),
    };
    valid.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (raw, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("\t192.0.2.1 ", "192.0.2.1"),
            ("192.0.2.1:8080", "192.0.2.1"),
            ("192.0.2.1:_hidden", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:1", "fe80::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::FFFF:c000:201]", "192.0.2.1"),
        ] {
            assert_eq!(parse_node(raw.as_bytes()), expected.parse().ok(), "{raw}");
        }
    }

    #[test]
    fn the_rest_is_not_an_address() {
        for raw in [
            "",
            " ",
            "unknown",
            "_hidden",
            "localhost",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.01",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:123456",
            "192.0.2.1:_",
            "192.0.2.1 192.0.2.2",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[::1]x",
            "[::1]80",
            "[]",
            "%eth0",
            "\"192.0.2.1\"",
            "192.0.2.1/32",
        ] {
            assert_eq!(parse_node(raw.as_bytes()), None, "{raw}");
        }
        assert_eq!(parse_node(b"192.0.2.1\xff"), None);
    }
}
