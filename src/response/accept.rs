//! Which of the two forms of a refusal a client wants (RFC 9110, section 12.5.1).

use http::HeaderMap;
use http::header::ACCEPT;

/// How much a client wants a form: its weight in thousandths, then how precisely it was named, then how early.
/// Weight 0 is not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    weight: u16,
    precision: u8,
    earliness: usize,
}

/// Whether `application/problem+json` is preferred to `text/plain`. `*/*` alone does not ask for JSON: browsers and
/// command lines send it, and people read what they show.
pub(super) fn prefers_json(headers: &HeaderMap) -> bool {
    let (mut problem, mut json, mut application) = (None, None, None);
    let (mut plain, mut text, mut anything) = (None, None, None);
    let ranges = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| Split::new(line, b','));
    for (place, range) in ranges.enumerate() {
        let mut parts = Split::new(range, b';');
        let name = parts.next().unwrap_or_default();
        let Some(weight) = weight(parts) else { continue };
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let (slot, precision) = if is("application/problem+json") {
            (&mut problem, 2)
        } else if is("application/json") {
            (&mut json, 2)
        } else if is("application/*") {
            (&mut application, 1)
        } else if is("text/plain") {
            (&mut plain, 2)
        } else if is("text/*") {
            (&mut text, 1)
        } else if is("*/*") {
            (&mut anything, 0)
        } else {
            continue;
        };
        slot.get_or_insert(Wish {
            weight,
            precision,
            earliness: usize::MAX - place,
        });
    }
    // The most precise range decides, not the one with the highest weight.
    let json = problem.or(json).or(application).unwrap_or_default();
    let text = plain.or(text).or(anything).unwrap_or_default();
    json.weight > 0 && json > text
}

/// The weight among a range's parameters, 1 if there is none. `None` if it is not a weight.
fn weight<'a>(mut parameters: impl Iterator<Item = &'a str>) -> Option<u16> {
    let weight = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(weight) = weight else { return Some(1_000) };
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths = decimals
        .bytes()
        .chain([b'0'; 3])
        .take(3)
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match (whole, thousandths) {
        ("0", _) => Some(thousandths),
        ("1", 0) => Some(1_000),
        _ => None,
    }
}

/// The trimmed parts of a text between separators outside of quotes.
struct Split<'a> {
    rest: Option<&'a str>,
    separator: u8,
}

impl<'a> Split<'a> {
    const fn new(text: &'a str, separator: u8) -> Self {
        Self {
            rest: Some(text),
            separator,
        }
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.bytes().position(|b| {
            let separates = b == self.separator && !quoted;
            quoted ^= b == b'"' && !escaped;
            escaped = quoted && b == b'\\' && !escaped;
            separates
        });
        Some(match end {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                rest[..end].trim()
            }
            None => rest.trim(),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn json(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, HeaderValue::from_str(line).expect("ASCII"));
        }
        prefers_json(&headers)
    }

    #[test]
    fn negotiates() {
        const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, expected) in [
            (&[][..], false),
            (&[""], false),
            (&["*/*"], false),
            (&[BROWSER], false),
            (&["text/*"], false),
            (&["text/plain"], false),
            (&["image/png"], false),
            (&["application/json"], true),
            (&["Application/JSON"], true),
            (&["application/problem+json"], true),
            (&["application/*"], true),
            (&["application/json; charset=utf-8"], true),
            // The usual defaults of clients in browsers: JSON is named first.
            (&["application/json, text/plain, */*"], true),
            (&["text/plain, application/json"], false),
            (&["application/json, */*"], true),
            (&["*/*, application/json"], true),
            (&["*/*, application/json;q=0.9"], false),
            (&["*/*;q=0.1, application/json;q=0.9"], true),
            (&["application/json;q=0.5, text/plain;q=0.4"], true),
            (&["application/json;q=0.5, text/plain;q=0.501"], false),
            (&["application/json;q=0"], false),
            (&["application/json;q=0.001"], true),
            (&["application/json;q=0.000"], false),
            (&["application/json ; Q=1.000 , text/plain;q=0.999"], true),
            (&["application/problem+json;q=0, application/json"], false),
            (
                &["application/problem+json;q=0.5, application/json, text/plain;q=0.8"],
                false,
            ),
            (&["application/*, text/plain"], false),
            (&["text/plain;q=0.5, application/*"], true),
            (&["text/plain;q=0, application/json;q=0.1"], true),
            // Several lines are one list.
            (&["text/plain;q=0.2", "application/json"], true),
            (&["application/json;q=0.2", "text/plain"], false),
            // Separators in quotes separate nothing.
            (
                &["application/json;profile=\"a,text/plain;q=1\\\",\";q=0.9"],
                true,
            ),
            (
                &["image/png;x=\"application/json\", text/plain;x=\", application/json\""],
                false,
            ),
            (&["image/png;x=\"\\\", application/json, \""], false),
            // What is no weight takes its range out.
            (&["application/json;q=2"], false),
            (&["application/json;q=1.001"], false),
            (&["application/json;q=0.1234"], false),
            (&["application/json;q=-1"], false),
            (&["application/json;q="], false),
            (&["application/json;q=.5"], false),
            (&["application/json;q=0.x"], false),
            (&["application/jsonp"], false),
            (&["application/json;q=x, application/json"], true),
        ] {
            assert_eq!(json(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_passed_over() {
        let mut headers = HeaderMap::new();
        headers.append(
            ACCEPT,
            HeaderValue::from_bytes(b"text/plain\xff").expect("opaque"),
        );
        assert!(!prefers_json(&headers));
        headers.append(ACCEPT, HeaderValue::from_static("application/json"));
        assert!(prefers_json(&headers));
    }

    proptest! {
        #[test]
        fn nothing_panics(line in "[a-z/*;,=q.0-9\"\\\\ ]{0,60}") {
            json(&[&line]);
        }

        #[test]
        fn weights_are_compared(ours in 1..=1_000_u16, theirs in 0..=1_000_u16) {
            prop_assume!(ours != theirs);
            let weight = |weight| format!("{}.{:03}", weight / 1_000, weight % 1_000);
            let line = format!("text/plain;q={}, application/json;q={}", weight(theirs), weight(ours));
            prop_assert_eq!(json(&[&line]), ours > theirs);
        }
    }
}
