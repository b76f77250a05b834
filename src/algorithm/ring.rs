//! Times in a ring.

/// How a [`Ring`] keeps a time of known neighbours.
pub(crate) trait Time: Copy + Default {
    fn new(time: u64) -> Self;

    /// The time, which is not after `newest`.
    fn before(self, newest: u64) -> u64;
}

impl Time for u64 {
    #[inline]
    fn new(time: u64) -> Self {
        time
    }

    #[inline]
    fn before(self, _newest: u64) -> u64 {
        self
    }
}

/// The low half: what lies within 2³² µs, 71 minutes, of the newest needs no more.
impl Time for u32 {
    #[inline]
    fn new(time: u64) -> Self {
        time as Self
    }

    #[inline]
    fn before(self, newest: u64) -> u64 {
        newest - u64::from((newest as Self).wrapping_sub(self))
    }
}

/// A queue of up to 2¹⁶ − 1 times that grows only when told to. Smaller than the standard library's, as every counter
/// holds one.
#[derive(Debug, Default)]
pub(super) struct Ring<T> {
    slots: Box<[T]>,
    head: u16,
    len: u16,
}

impl<T: Clone> Clone for Ring<T> {
    /// The times, and none of the room for more.
    fn clone(&self) -> Self {
        let (end, begin) = self.slots.split_at(self.head.into());
        let times = begin.iter().chain(end).take(self.len.into());
        Self {
            slots: times.cloned().collect(),
            head: 0,
            len: self.len,
        }
    }
}

impl<T: Time> Ring<T> {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) const fn room(&self) -> usize {
        self.slots.len() - self.len()
    }

    /// Where the time at `index` lies.
    #[inline]
    fn slot(&self, index: usize) -> usize {
        let slot = self.head as usize + index;
        if slot < self.slots.len() {
            slot
        } else {
            slot - self.slots.len()
        }
    }

    /// The time at `index`, which is below the length.
    #[inline]
    pub(super) fn get(&self, index: usize) -> T {
        self.slots[self.slot(index)]
    }

    /// Adds a time at the end, for which there is room.
    #[inline]
    pub(super) fn push(&mut self, time: T) {
        debug_assert!(self.room() > 0, "no more than there is room for");
        let slot = self.slot(self.len());
        self.slots[slot] = time;
        self.len += 1;
    }

    /// Drops the first `count`, which are there. An empty ring begins anew, so that a short queue keeps to few cache
    /// lines of a long ring.
    #[inline]
    pub(super) fn drop_front(&mut self, count: usize) {
        self.head = self.slot(count) as u16;
        self.len -= count as u16;
        if self.len == 0 {
            self.head = 0;
        }
    }

    /// Takes `count` out at `index`.
    pub(super) fn remove(&mut self, index: usize, count: usize) {
        for from in index + count..self.len() {
            let (from, to) = (self.slot(from), self.slot(from - count));
            self.slots[to] = self.slots[from];
        }
        self.len -= count as u16;
    }

    /// Sets all times to one.
    pub(super) fn fill(&mut self, time: T) {
        self.slots.fill(time);
    }

    /// How many at the front `are`, where those that are come first.
    pub(super) fn partition_point(&self, are: impl Fn(T) -> bool) -> usize {
        let (mut first, mut end) = (0, self.len());
        while first < end {
            let middle = first.midpoint(end);
            if are(self.get(middle)) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        first
    }

    /// Makes room for `capacity` times in all.
    pub(super) fn grow(&mut self, capacity: usize) {
        if capacity <= self.slots.len() {
            return;
        }
        let mut slots = Vec::with_capacity(capacity);
        slots.extend((0..self.len()).map(|index| self.get(index)));
        slots.resize(capacity, T::default());
        self.slots = slots.into_boxed_slice();
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u64),
        Drop(usize),
        Remove(usize, usize),
        Grow(usize),
        Fill(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u64..1_000).prop_map(Step::Push),
            3 => (0usize..4).prop_map(Step::Drop),
            2 => (0usize..12, 1usize..4).prop_map(|(index, count)| Step::Remove(index, count)),
            1 => (0usize..24).prop_map(Step::Grow),
            1 => (0u64..1_000).prop_map(Step::Fill),
        ]
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec(any_step(), 1..200)) {
            let (mut ring, mut queue) = (Ring::<u64>::default(), VecDeque::new());
            for step in steps {
                match step {
                    Step::Push(time) if ring.room() > 0 => {
                        ring.push(time);
                        queue.push_back(time);
                    }
                    Step::Drop(count) if count <= queue.len() => {
                        ring.drop_front(count);
                        queue.drain(..count);
                    }
                    Step::Remove(index, count) if index + count <= queue.len() => {
                        ring.remove(index, count);
                        queue.drain(index..index + count);
                    }
                    Step::Grow(capacity) => {
                        let before = ring.len() + ring.room();
                        ring.grow(capacity);
                        prop_assert_eq!(ring.len() + ring.room(), before.max(capacity));
                    }
                    Step::Fill(time) => {
                        ring.fill(time);
                        queue.iter_mut().for_each(|each| *each = time);
                    }
                    _ => {}
                }
                let times: VecDeque<u64> = (0..ring.len()).map(|index| ring.get(index)).collect();
                prop_assert_eq!(&times, &queue);
            }
        }
    }
}
