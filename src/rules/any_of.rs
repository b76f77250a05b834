//! One dimension of a rule.

use std::borrow::Borrow;

/// The values that a rule is for; none said is all there are.
#[derive(Clone, Debug)]
pub(super) struct AnyOf<T>(Vec<T>);

impl<T> AnyOf<T> {
    pub(super) const ALL: Self = Self(Vec::new());

    pub(super) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// A set within another one, and not equal to it, has a lower number.
    pub(super) fn breadth(&self) -> usize {
        if self.is_all() { usize::MAX } else { self.0.len() }
    }

    /// The values that were said.
    pub(super) fn said(&self) -> &[T] {
        &self.0
    }
}

impl<T: Clone + PartialEq> AnyOf<T> {
    pub(super) fn add(&mut self, value: T) {
        if !self.0.contains(&value) {
            self.0.push(value);
        }
    }

    pub(super) fn holds<Q>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: PartialEq + ?Sized,
    {
        self.is_all() || self.0.iter().any(|said| said.borrow() == value)
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        other.is_all() || (!self.is_all() && self.0.iter().all(|value| other.0.contains(value)))
    }

    /// What both are for; `None` if that is nothing.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        if other.is_all() {
            return Some(self.clone());
        }
        let both: Vec<T> = other
            .0
            .iter()
            .filter(|value| self.holds(*value))
            .cloned()
            .collect();
        (!both.is_empty()).then_some(Self(both))
    }

    /// Each value in a set of its own. All there are cannot be listed and stay one set.
    pub(super) fn one_by_one(&self) -> impl Iterator<Item = Self> {
        let all = self.is_all().then_some(Self::ALL);
        all.into_iter()
            .chain(self.0.iter().map(|value| Self(vec![value.clone()])))
    }
}

impl<T: Clone + PartialEq> PartialEq for AnyOf<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_within(other) && other.is_within(self)
    }
}

impl<T: Clone + Eq> Eq for AnyOf<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u8]) -> AnyOf<u8> {
        AnyOf(values.to_vec())
    }

    #[test]
    fn nothing_said_is_everything() {
        assert!(AnyOf::<u8>::ALL.holds(&1) && of(&[1, 2]).holds(&1) && !of(&[2]).holds(&1));
        assert!(of(&[1]).is_within(&AnyOf::ALL) && !AnyOf::ALL.is_within(&of(&[1])));
        assert!(of(&[1]).is_within(&of(&[2, 1])) && !of(&[1, 3]).is_within(&of(&[2, 1])));
        assert_eq!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[1]), AnyOf::ALL);
        assert!(of(&[1, 2]).breadth() < AnyOf::<u8>::ALL.breadth());
    }

    #[test]
    fn sets_meet_in_what_both_hold() {
        assert_eq!(of(&[1, 2]).meet(&of(&[3, 2])), Some(of(&[2])));
        assert_eq!(of(&[1]).meet(&of(&[3])), None);
        assert_eq!(of(&[1]).meet(&AnyOf::ALL), Some(of(&[1])));
        assert_eq!(AnyOf::ALL.meet(&of(&[1])), Some(of(&[1])));
        assert_eq!(AnyOf::<u8>::ALL.meet(&AnyOf::ALL), Some(AnyOf::ALL));
    }
}
