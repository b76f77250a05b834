//! The elements of list headers, from the right.

use std::iter::Rev;

use http::HeaderMap;
use http::HeaderValue;
use http::header::{AsHeaderName, ValueIter};

/// As many elements of a list are looked at.
pub(super) const MAX_ELEMENTS: usize = 16;
/// A longer element ends the list. The longest address with its zone and port is shorter by far.
const MAX_ELEMENT: usize = 256;

/// The elements of all lines of a header, the last one first.
///
/// Proxies append, so what they wrote is to the right of whatever the client sent. Reading from the right,
/// nothing that a client sends can change how the elements of proxies are read: not by lines of its own, not
/// by quotes left open, not by size.
pub(super) struct Elements<'a> {
    lines: Rev<ValueIter<'a, HeaderValue>>,
    line: Option<&'a [u8]>,
    quotes: bool,
    left: usize,
}

impl<'a> Elements<'a> {
    /// `quotes`: a comma in a quoted string separates nothing.
    pub(super) fn new(headers: &'a HeaderMap, name: impl AsHeaderName, quotes: bool) -> Self {
        Self {
            lines: headers.get_all(name).into_iter().rev(),
            line: None,
            quotes,
            left: MAX_ELEMENTS,
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next()?.as_bytes(),
        };
        let comma = last_comma(line, self.quotes);
        let start = comma.map_or(0, |comma| comma + 1);
        if line.len() - start > MAX_ELEMENT {
            self.left = 0;
            return None;
        }
        self.line = comma.map(|comma| &line[..comma]);
        Some(&line[start..])
    }
}

fn last_comma(line: &[u8], quotes: bool) -> Option<usize> {
    if !quotes {
        return line.iter().rposition(|&b| b == b',');
    }
    let mut quoted = false;
    line.iter().enumerate().rposition(|(at, &byte)| {
        quoted ^= byte == b'"' && !is_escaped(line, at);
        byte == b',' && !quoted
    })
}

/// Whether an odd number of backslashes precedes.
fn is_escaped(line: &[u8], at: usize) -> bool {
    line[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(lines: &[&str], quotes: bool) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x", line.parse().unwrap());
        }
        Elements::new(&headers, "x", quotes)
            .map(|element| String::from_utf8(element.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn all_lines_are_read_from_the_right() {
        assert_eq!(elements(&["a, b", "c", ",d"], false), ["d", "", "c", " b", "a"]);
        assert!(elements(&[], false).is_empty());
        assert_eq!(elements(&[""], false), [""]);
    }

    #[test]
    fn quoted_commas_separate_nothing() {
        assert_eq!(elements(&[r#"a="x,y",b"#], true), ["b", r#"a="x,y""#]);
        assert_eq!(elements(&[r#"a="x,\"y",b"#], true), ["b", r#"a="x,\"y""#]);
        assert_eq!(elements(&[r#"a="x,y",b"#], false), ["b", "y\"", "a=\"x"]);
    }

    #[test]
    fn open_quotes_on_the_left_change_nothing_on_the_right() {
        for left in ["\"", "a=\"", "a=\"\\", "\"\"\"", "\\"] {
            let line = format!("{left},b=\"[::1]\", c");
            assert_eq!(elements(&[&line], true)[..2], [" c", "b=\"[::1]\""], "{left}");
        }
    }

    #[test]
    fn elements_are_capped() {
        let many = vec!["a"; 40].join(",");
        assert_eq!(elements(&[&many], false).len(), MAX_ELEMENTS);
        let (long, longer) = ("x".repeat(256), "x".repeat(257));
        assert_eq!(elements(&["a", &long, "b"], false), ["b", &long, "a"]);
        assert_eq!(elements(&["a", &longer, "b"], false), ["b"]);
    }
}
