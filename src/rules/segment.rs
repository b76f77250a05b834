//! The parts of patterns between slashes.

use std::borrow::Cow;

/// A part of a pattern between two slashes. The names of parameters do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    Literal(Cow<'a, str>),
    /// `{id}`, or `v{version}` with a prefix.
    Param(Cow<'a, str>),
    /// `{*rest}`, with what stands in front.
    Rest(Cow<'a, str>),
}

impl<'a> Segment<'a> {
    /// Reads axum's syntax, in which `{{` and `}}` stand for braces.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub(super) fn parse(text: &'a str) -> Result<Self, &'static str> {
        if !text.bytes().any(|byte| matches!(byte, b'{' | b'}')) {
            return Ok(Self::Literal(text.into()));
        }
        let mut literal = String::new();
        let mut left = text;
        while let Some(at) = left.find(['{', '}']) {
            literal.push_str(&left[..at]);
            let brace = &left[at..];
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                literal.push_str(&brace[..1]);
                left = after;
                continue;
            }
            let (name, after) = brace
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'))
                .ok_or("a brace has no partner (write `{{` or `}}` for the character)")?;
            if !after.is_empty() {
                return Err("nothing may follow a parameter in its segment");
            }
            let (name, rest) = name.strip_prefix('*').map_or((name, false), |name| (name, true));
            if name.is_empty() || name.contains(['*', '{']) {
                return Err("a parameter is `{name}` or `{*name}`");
            }
            let literal = literal.into();
            return Ok(if rest {
                Self::Rest(literal)
            } else {
                Self::Param(literal)
            });
        }
        literal.push_str(left);
        Ok(Self::Literal(literal.into()))
    }

    pub(super) fn into_owned(self) -> Segment<'static> {
        match self {
            Self::Literal(text) => Segment::Literal(text.into_owned().into()),
            Self::Param(prefix) => Segment::Param(prefix.into_owned().into()),
            Self::Rest(prefix) => Segment::Rest(prefix.into_owned().into()),
        }
    }
}

/// Whether a parameter with this prefix takes a segment of a path. As axum's router does it, the value may be empty
/// if another segment follows: `//edit` is a path of `/{id}/edit`.
pub(super) fn takes(prefix: &str, segment: &str, last: bool) -> bool {
    segment
        .strip_prefix(prefix)
        .is_some_and(|value| !value.is_empty() || !last)
}

/// The first segment of a path without its slash, and what comes after the next slash.
pub(super) fn split_first(path: &str) -> (&str, Option<&str>) {
    path.split_once('/')
        .map_or((path, None), |(first, rest)| (first, Some(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axums_syntax_is_read() {
        for (text, expected) in [
            ("", Segment::Literal("".into())),
            ("users", Segment::Literal("users".into())),
            ("{{a}}", Segment::Literal("{a}".into())),
            ("a}}{{", Segment::Literal("a}{".into())),
            ("{id}", Segment::Param("".into())),
            ("v{version}", Segment::Param("v".into())),
            ("{{{id}", Segment::Param("{".into())),
            ("{*rest}", Segment::Rest("".into())),
            ("a{*rest}", Segment::Rest("a".into())),
        ] {
            assert_eq!(Segment::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_axum_refuses_is_refused() {
        for text in [
            "{", "}", "{}", "{*}", "{id", "id}", "{a}b", "{a}{b}", "{a*}", "{{id}", "{id}}",
        ] {
            assert!(Segment::parse(text).is_err(), "{text}");
        }
    }
}
