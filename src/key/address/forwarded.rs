//! Elements of the `Forwarded` header, RFC 7239.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::node::parse_node;

type Value = SmallVec<[u8; 64]>;

/// The address that an element's `for` names. `None` if it names none (`unknown`, `_hidden`), two, or the
/// element breaks the grammar anywhere.
///
/// More than the grammar is taken in one point: values may hold `:`, `[` and `]` without quotes, as several
/// proxies write addresses so.
pub(super) fn parse_for(element: &[u8]) -> Option<IpAddr> {
    let mut node = None;
    let mut rest = element;
    loop {
        rest = rest.trim_ascii();
        match rest.split_first() {
            None => break,
            Some((b';', after)) => {
                rest = after;
                continue;
            }
            Some(_) => {}
        }
        let (name, value, after) = parse_pair(rest)?;
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
        rest = after;
    }
    parse_node(&node?)
}

/// Splits the first pair off. What remains is empty or starts with `;`.
fn parse_pair(input: &[u8]) -> Option<(&[u8], Value, &[u8])> {
    let equals = input.iter().position(|&b| b == b'=')?;
    let (name, value) = (&input[..equals], &input[equals + 1..]);
    if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
        return None;
    }
    let (value, rest) = match value.split_first() {
        Some((b'"', quoted)) => parse_quoted(quoted)?,
        _ => parse_plain(value)?,
    };
    let rest = rest.trim_ascii_start();
    (rest.is_empty() || rest[0] == b';').then_some((name, value, rest))
}

/// Reads up to and over the closing quote.
fn parse_quoted(input: &[u8]) -> Option<(Value, &[u8])> {
    let mut value = Value::new();
    let mut bytes = input.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, &input[at + 1..])),
            b'\\' => value.push(*bytes.next()?.1),
            _ => value.push(byte),
        }
    }
    None
}

fn parse_plain(input: &[u8]) -> Option<(Value, &[u8])> {
    let end = input.iter().position(|&b| !is_token(b) && !b"[]:".contains(&b));
    let (value, rest) = input.split_at(end.unwrap_or(input.len()));
    (!value.is_empty()).then(|| (Value::from_slice(value), rest))
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_for_parameter_is_found() {
        for (element, expected) in [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            (r#"For="[2001:db8:cafe::17]:4711""#, "2001:db8:cafe::17"),
            (r#" proto=https ; FOR="192.0.2.1:80" "#, "192.0.2.1"),
            (r#"host="a;for=198.51.100.1\"";for=192.0.2.1"#, "192.0.2.1"),
            (r#"for="192.0.2.\1""#, "192.0.2.1"),
            ("for=[2001:db8::1]:80;;by=_proxy;", "2001:db8::1"),
            ("for=\"::ffff:192.0.2.1\"", "192.0.2.1"),
        ] {
            assert_eq!(parse_for(element.as_bytes()), expected.parse().ok(), "{element}");
        }
    }

    #[test]
    fn what_names_no_address_is_refused() {
        for element in [
            "",
            ";",
            "for",
            "for=",
            "for=\"\"",
            "for=unknown",
            "for=_hidden",
            "for=\"_hidden:80\"",
            "by=192.0.2.1",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1;For=192.0.2.1",
            "for =192.0.2.1",
            "for= 192.0.2.1",
            "=192.0.2.1",
            "for=\"192.0.2.1",
            "for=\"192.0.2.1\\",
            "for=\"192.0.2.1\"x",
            "for=192.0.2.1 x",
            "for=192.0.2.1 by=x",
            "for=\"192.0.2.1\"by=x",
            "for=192.0.2.1;x",
            "for=192.0.2.1;by=\"",
            "for=192.0.2.1,for=192.0.2.2",
            "192.0.2.1",
        ] {
            assert_eq!(parse_for(element.as_bytes()), None, "{element}");
        }
    }
}
