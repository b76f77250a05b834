//! Keys from hosts.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use http::header::HOST;
use http::request::Parts;

use super::builder::KeyBuilder;
use super::encoding::{Buffer, Escape};
use super::extractor::KeyExtractor;
use super::header::only_value;
use super::missing::Missing;

/// Counts by the host that the request names, readable: lower case, without port and final dot.
///
/// The host is the authority of the request's URI (HTTP/2 and later) or the `Host` field (HTTP/1). If both
/// are there they must agree, or the request has no key; nor has one with several `Host` lines or with a name
/// that is none.
///
/// **Clients choose what they send here.** Unless something outside has refused unknown hosts, a client can
/// invent a fresh key for every request: combine the host with an address or another policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

/// RFC 1035 section 2.3.4, in text.
const MAX_NAME: usize = 253;

impl KeyExtractor for Host {
    fn extract(&self, parts: &Parts, key: &mut KeyBuilder<'_>) -> Result<(), Missing> {
        const NO_HOST: Missing = Missing::new(
            "it names no host, an impossible one, or different ones in its URI and its `Host` field",
        );

        key.plain("host", &named_host(parts).ok_or(NO_HOST)?);
        Ok(())
    }
}

/// The host that a request names, normalised.
pub(crate) fn named_host(parts: &Parts) -> Option<Buffer> {
    let authority = parts.uri.authority().map(|authority| {
        // The user name in front of `@` is no part of the host.
        let authority = authority.as_str();
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    });
    match (authority, parts.headers.contains_key(HOST)) {
        (Some(authority), false) => normalise(authority.as_bytes()),
        (None, true) => only_value(parts, &HOST).and_then(normalise),
        (Some(authority), true) => {
            let host = only_value(parts, &HOST).and_then(normalise);
            normalise(authority.as_bytes()).filter(|authority| host.as_ref() == Some(authority))
        }
        (None, false) => None,
    }
}

/// A host without a port, normalised as those of requests are.
pub(crate) fn normalised_host(text: &str) -> Option<String> {
    let (host, port) = split(text)?;
    let host = String::from_utf8(host.to_vec()).ok()?;
    port.is_none().then_some(host)
}

fn normalise(raw: &[u8]) -> Option<Buffer> {
    let (host, port) = split(str::from_utf8(raw).ok()?)?;
    port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()))
        .then_some(host)
}

/// The host, normalised, and the port.
fn split(text: &str) -> Option<(Buffer, Option<&str>)> {
    let mut host = Buffer::new();
    let port = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        // An address has many spellings and one canonical one.
        let address: Ipv6Addr = address.parse().ok()?;
        write!(Escape(&mut host), "{address}").ok()?;
        if port.is_empty() {
            None
        } else {
            Some(port.strip_prefix(':')?)
        }
    } else {
        let (name, port) = text
            .split_once(':')
            .map_or((text, None), |(name, port)| (name, Some(port)));
        let name = name.strip_suffix('.').unwrap_or(name);
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
            return None;
        }
        host.extend_from_slice(name.as_bytes());
        host.make_ascii_lowercase();
        port
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::key::testing::{key_of, parts};

    fn host(uri: &str, lines: &[&str]) -> Option<String> {
        let request = lines
            .iter()
            .fold(Request::get(uri), |request, line| request.header(HOST, *line));
        let key = key_of(&Host, &parts(request)).ok()?;
        Some(key.strip_prefix("host=")?.to_owned())
    }

    #[test]
    fn spellings_of_a_host_are_one() {
        let expected = Some("api.example.com".to_owned());
        for line in [
            "api.example.com",
            "API.Example.com.",
            "api.example.com:8080",
            "api.example.com.:80",
            "api.example.com:",
        ] {
            assert_eq!(host("/", &[line]), expected, "{line}");
        }
        assert_eq!(host("https://u:p@API.example.com:443/x", &[]), expected);
        assert_eq!(
            host("https://api.example.com/", &["API.example.com:443"]),
            expected
        );
        let ipv6 = Some("2001:db8::1".to_owned());
        assert_eq!(host("/", &["[2001:DB8:0::1]:80"]), ipv6);
        assert_eq!(host("https://[2001:db8::1]/", &["[2001:db8::1]"]), ipv6);
    }

    #[test]
    fn what_is_no_host_is_no_key() {
        for lines in [
            &[][..],
            &[""],
            &["."],
            &["a b"],
            &["a/b"],
            &["a,b"],
            &["user@a"],
            &["a:x"],
            &["[::1"],
            &["[::1]x"],
            &["[a]"],
            &["é"],
            &["a", "a"],
            &["a", "b"],
            &[&"a".repeat(254)],
        ] {
            assert_eq!(host("/", lines), None, "{lines:?}");
        }
        assert_eq!(host("https://a/", &["b"]), None);
        assert_eq!(host("https://a/", &["a", "b"]), None);
        assert_eq!(host("https://a/", &["a b"]), None);
        assert!(host("/", &[&"a".repeat(253)]).is_some_and(|host| host.starts_with('~')));
    }
}
