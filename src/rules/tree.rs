//! Rules by path, so that a request need not try them all.

use hashbrown::HashMap;

use super::pattern::{Pattern, Tail};
use super::request::{Place, Request};
use super::rule::Rule;
use super::segment::{Segment, split_first, takes};

type ByText<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// What follows the segments on the way to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    literals: ByText<Self>,
    /// By prefix, longer ones first.
    params: Vec<(Box<str>, Self)>,
    /// The rules that end here, by their tail.
    nothing: Leaf,
    rest: Leaf,
    beneath: Leaf,
}

impl Node {
    pub(super) fn leaf(&mut self, pattern: &Pattern) -> &mut Leaf {
        let node = pattern
            .segments()
            .iter()
            .fold(self, |node, segment| match segment {
                Segment::Literal(text) => node.literals.entry((&**text).into()).or_default(),
                Segment::Param(prefix) | Segment::Rest(prefix) => node.param(prefix),
            });
        match pattern.tail() {
            Tail::Nothing => &mut node.nothing,
            Tail::Rest => &mut node.rest,
            Tail::Beneath => &mut node.beneath,
        }
    }

    fn param(&mut self, prefix: &str) -> &mut Self {
        let at = match self.params.iter().position(|(known, _)| **known == *prefix) {
            Some(at) => at,
            None => {
                let at = self
                    .params
                    .partition_point(|(known, _)| known.len() >= prefix.len());
                self.params.insert(at, (prefix.into(), Self::default()));
                at
            }
        };
        &mut self.params[at].1
    }

    /// What `pick` finds in the leaves of all patterns that match, tried in their order of precedence.
    pub(super) fn find<P>(&self, place: Place<'_>, pick: &P) -> Option<usize>
    where
        P: Fn(&Leaf) -> Option<usize>,
    {
        let left = Some(place.text().strip_prefix('/')?);
        match place {
            Place::Route(_) => self.find_route(left, pick),
            Place::Path(_) => self.find_path(left, pick),
        }
    }

    fn find_route<P>(&self, left: Option<&str>, pick: &P) -> Option<usize>
    where
        P: Fn(&Leaf) -> Option<usize>,
    {
        let found = match left {
            None => pick(&self.nothing),
            Some(route) => {
                let (first, rest) = split_first(route);
                let next = match Segment::parse(first) {
                    Ok(Segment::Literal(text)) => self.literals.get(&*text),
                    Ok(Segment::Param(prefix)) => {
                        let mut params = self.params.iter();
                        params.find(|(known, _)| **known == *prefix).map(|(_, next)| next)
                    }
                    Ok(Segment::Rest(_)) | Err(_) => None,
                };
                next.and_then(|next| next.find_route(rest, pick))
            }
        };
        found.or_else(|| pick(&self.beneath))
    }

    /// Visits no node twice, whatever the path.
    fn find_path<P>(&self, left: Option<&str>, pick: &P) -> Option<usize>
    where
        P: Fn(&Leaf) -> Option<usize>,
    {
        let found = match left {
            None => pick(&self.nothing),
            Some(path) => {
                let (first, rest) = split_first(path);
                let literal = self.literals.get(first).into_iter();
                let params = self
                    .params
                    .iter()
                    .filter(|(prefix, _)| takes(prefix, first, rest.is_none()));
                literal
                    .chain(params.map(|(_, next)| next))
                    .find_map(|next| next.find_path(rest, pick))
                    .or_else(|| if path.is_empty() { None } else { pick(&self.rest) })
            }
        };
        found.or_else(|| pick(&self.beneath))
    }
}

/// Rules for the same paths, by their numbers, the narrower first.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    by_host: ByText<Vec<usize>>,
    any_host: Vec<usize>,
}

impl Leaf {
    pub(super) fn add(&mut self, number: usize, rules: &[Rule]) {
        let hosts = rules[number].hosts.said();
        if hosts.is_empty() {
            insert(&mut self.any_host, number, rules);
        }
        for host in hosts {
            insert(self.by_host.entry(host.clone()).or_default(), number, rules);
        }
    }

    pub(super) fn pick(&self, request: &Request<'_>, rules: &[Rule]) -> Option<usize> {
        let of_host = if self.by_host.is_empty() {
            None
        } else {
            request.host().and_then(|host| self.by_host.get(host))
        };
        let mut numbers = of_host.into_iter().flatten().chain(&self.any_host).copied();
        numbers.find(|&number| rules[number].methods.holds(request.method()))
    }
}

fn insert(numbers: &mut Vec<usize>, number: usize, rules: &[Rule]) {
    let breadth = |number: usize| (rules[number].hosts.breadth(), rules[number].methods.breadth());
    let at = numbers.partition_point(|&known| breadth(known) <= breadth(number));
    numbers.insert(at, number);
}
