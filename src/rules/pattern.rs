//! The paths that a rule is for.

use std::cmp::Reverse;
use std::fmt;

use super::request::Place;
use super::segment::{Segment, split_first, takes};

/// A pattern in axum's syntax, or one that ends in `/*` and stands for all beneath.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    /// Literals and parameters.
    segments: Vec<Segment<'static>>,
    tail: Tail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tail {
    /// The path ends with the segments.
    Nothing,
    /// `{*rest}`: at least one more byte.
    Rest,
    /// `*`: everything beneath, and what it is beneath of.
    Beneath,
}

impl Pattern {
    /// # Errors
    ///
    /// What is wrong with the text.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut left = Some(text.strip_prefix('/').ok_or("a path starts with `/`")?);
        let mut segments = Vec::new();
        let mut tail = Tail::Nothing;
        while let Some(path) = left {
            let (first, rest) = split_first(path);
            let ended = match first {
                "*" => Some(Tail::Beneath),
                _ if first.starts_with(':') => return Err("write `{id}` for a parameter, not `:id`"),
                _ if first.starts_with('*') => return Err("write `{*rest}` or a single `*`, not `*rest`"),
                _ => match Segment::parse(first)? {
                    Segment::Rest(prefix) if !prefix.is_empty() => {
                        return Err("nothing may precede `{*rest}` in its segment");
                    }
                    Segment::Rest(_) => Some(Tail::Rest),
                    segment => {
                        segments.push(segment.into_owned());
                        None
                    }
                },
            };
            match (ended, rest) {
                (Some(_), Some(_)) => return Err("nothing may follow `*` or `{*rest}`"),
                (Some(ended), None) => tail = ended,
                (None, _) => {}
            }
            left = rest;
        }
        Ok(Self {
            text: text.into(),
            segments,
            tail,
        })
    }

    pub(super) fn segments(&self) -> &[Segment<'static>] {
        &self.segments
    }

    pub(super) const fn tail(&self) -> Tail {
        self.tail
    }

    /// Whether a router could have such a route.
    pub(super) fn is_route(&self) -> bool {
        self.tail != Tail::Beneath
    }

    pub(super) fn matches(&self, place: Place<'_>) -> bool {
        let Some(start) = place.text().strip_prefix('/') else {
            return false;
        };
        let mut left = Some(start);
        for segment in &self.segments {
            let Some(path) = left else { return false };
            let (first, rest) = split_first(path);
            let same = match (place, segment) {
                (Place::Route(_), segment) => Segment::parse(first).as_ref() == Ok(segment),
                (Place::Path(_), Segment::Literal(text)) => text == first,
                (Place::Path(_), Segment::Param(prefix) | Segment::Rest(prefix)) => {
                    takes(prefix, first, rest.is_none())
                }
            };
            if !same {
                return false;
            }
            left = rest;
        }
        match self.tail {
            Tail::Nothing => left.is_none(),
            Tail::Rest => matches!(place, Place::Path(_)) && left.is_some_and(|rest| !rest.is_empty()),
            Tail::Beneath => true,
        }
    }

    /// Whether one path can match both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (shorter, longer) = if self.segments.len() <= other.segments.len() {
            (self, other)
        } else {
            (other, self)
        };
        let more = &longer.segments[shorter.segments.len()..];
        let tails = match (shorter.tail, more) {
            (Tail::Nothing, []) => longer.tail != Tail::Rest,
            (Tail::Rest, []) => longer.tail != Tail::Nothing,
            (Tail::Nothing, _) => false,
            // Of `/users/` nothing is left for a `{*rest}`.
            (Tail::Rest, [Segment::Literal(text)]) => !text.is_empty() || longer.tail != Tail::Nothing,
            (Tail::Rest | Tail::Beneath, _) => true,
        };
        let ends = more.is_empty() && [shorter.tail, longer.tail].contains(&Tail::Nothing);
        let count = shorter.segments.len();
        let mut pairs = shorter.segments.iter().zip(&longer.segments).enumerate();
        tails && pairs.all(|(at, pair)| can_be_one(pair, ends && at + 1 == count))
    }

    /// The order in which axum's router tries routes that match one path: the first segment in which they differ
    /// decides, literals before parameters before `{*rest}`. A `/*` stands where a nested router would, after a
    /// `{*rest}` in its place.
    pub(super) fn precedence(&self) -> impl Iterator<Item = Rank> {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(_) => Rank::Literal,
            Segment::Param(prefix) | Segment::Rest(prefix) => Rank::Param(Reverse(prefix.len())),
        });
        segments.chain([Rank::Tail(self.tail)])
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Literal,
    Param(Reverse<usize>),
    Tail(Tail),
}

fn can_be_one(pair: (&Segment<'_>, &Segment<'_>), last: bool) -> bool {
    match pair {
        (Segment::Literal(a), Segment::Literal(b)) => a == b,
        (Segment::Literal(text), Segment::Param(prefix) | Segment::Rest(prefix))
        | (Segment::Param(prefix) | Segment::Rest(prefix), Segment::Literal(text)) => {
            takes(prefix, text, last)
        }
        (Segment::Param(a) | Segment::Rest(a), Segment::Param(b) | Segment::Rest(b)) => {
            a.starts_with(&**b) || b.starts_with(&**a)
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.segments == other.segments && self.tail == other.tail
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn paths_match_as_in_axum() {
        for (text, paths, others) in [
            ("/", &["/"][..], &["", "*", "//", "/x"][..]),
            (
                "/users",
                &["/users"],
                &["/users/", "//users", "/Users", "/user%73"],
            ),
            ("/users/", &["/users/"], &["/users", "/users//"]),
            (
                "/users/{id}",
                &["/users/7", "/users/%2F"],
                &["/users/", "/users", "/users/7/", "/users/7/x"],
            ),
            ("/{id}/edit", &["/7/edit", "//edit"], &["/edit", "/7/8/edit"]),
            ("/v{version}", &["/v1"], &["/v", "/1", "/w1"]),
            (
                "/files/{*rest}",
                &["/files/a", "/files/a/b", "/files//", "/files/a/"],
                &["/files", "/files/"],
            ),
            ("/{{id}}", &["/{id}"], &["/7"]),
        ] {
            for path in paths {
                assert!(pattern(text).matches(Place::Path(path)), "{text} {path}");
            }
            for path in others {
                assert!(!pattern(text).matches(Place::Path(path)), "{text} {path}");
            }
        }
    }

    #[test]
    fn beneath_is_the_prefix_and_all_under_it() {
        let api = pattern("/api/*");
        for path in ["/api", "/api/", "/api/users", "/api/users/7", "/api//"] {
            assert!(api.matches(Place::Path(path)), "{path}");
        }
        for path in ["/", "/apis", "/apis/x", "//api/x", "/v1/api/x", "*", ""] {
            assert!(!api.matches(Place::Path(path)), "{path}");
        }
        assert!(pattern("/*").matches(Place::Path("/")) && !pattern("/*").matches(Place::Path("*")));
        assert!(pattern("/{tenant}/api/*").matches(Place::Path("/acme/api/x")));
    }

    #[test]
    fn routes_match_by_their_text() {
        for (text, route, expected) in [
            ("/users/{id}", "/users/{user}", true),
            ("/users/{id}", "/users/me", false),
            ("/users/me", "/users/{id}", false),
            ("/users/v{n}", "/users/v{x}", true),
            ("/users/v{n}", "/users/{x}", false),
            ("/{{id}}", "/{{id}}", true),
            ("/api/*", "/api/users/{id}", true),
            ("/api/*", "/api", true),
            ("/api/*", "/{tenant}/users", false),
            ("/{tenant}/*", "/{name}/users", true),
            ("/{tenant}/*", "/acme/users", false),
            ("/users", "users", false),
        ] {
            assert_eq!(
                pattern(text).matches(Place::Route(route)),
                expected,
                "{text} {route}"
            );
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for (text, why) in [
            ("", "starts with `/`"),
            ("users", "starts with `/`"),
            ("/users/:id", "not `:id`"),
            ("/users/*id", "not `*rest`"),
            ("/*/x", "nothing may follow"),
            ("/{*rest}/x", "nothing may follow"),
            ("/a{*rest}", "nothing may precede"),
            ("/{id", "no partner"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
