//! Plain asks: one enforced charge each, not held, on a counter that no other ask of the call charges. `lua/acquire.lua`
//! answers them on the shortest way.

use redis::Cmd;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::call::are_near;
use super::clock::ServerClock;
use super::order::{Order, OrderCharge, OrderCounter, Wanted};
use super::packed::Packed;
use crate::algorithm::Terms;
use crate::quota::Layout;
use crate::store::Mode;

/// The plain asks of one call, in groups that differ in their keys alone.
#[derive(Default)]
pub(super) struct Plain {
    groups: SmallVec<[Group; 2]>,
}

struct Group {
    cost: u64,
    want: u32,
    terms: Terms,
    deadline: Instant,
    members: SmallVec<[u16; 16]>,
}

/// The charge of an ask that is plain, if no other charges its counter. Slots are for [`Several`](super::several::Several).
pub(super) fn charge_of(order: &Order) -> Option<(u64, &OrderCounter)> {
    match &*order.charges {
        [
            OrderCharge {
                mode: Mode::Enforce,
                cost,
                counter: Some(counter),
                penalty: None,
            },
        ] if order.hold == 0 && !matches!(counter.terms.layout, Layout::Slots(_)) => Some((*cost, counter)),
        _ => None,
    }
}

impl Plain {
    /// Takes an ask with the [charge](charge_of) that makes it plain.
    pub(super) fn push(&mut self, ask: &Wanted, (cost, counter): (u64, &OrderCounter), index: u16) {
        let group = self.groups.iter_mut().find(|group| {
            group.terms == counter.terms
                && group.cost == cost
                && group.want == ask.want
                && are_near(group.deadline, ask.deadline)
        });
        match group {
            Some(group) => {
                group.deadline = group.deadline.min(ask.deadline);
                group.members.push(index);
            }
            None => self.groups.push(Group {
                cost,
                want: ask.want,
                terms: counter.terms,
                deadline: ask.deadline,
                members: SmallVec::from_slice(&[index]),
            }),
        }
    }

    /// In the order of their keys and of the reply.
    pub(super) fn asks(&self) -> impl Iterator<Item = u16> {
        self.groups.iter().flat_map(|group| &group.members).copied()
    }

    pub(super) fn write(&self, command: &mut Cmd, clock: &ServerClock) {
        let mut text = Packed::default();
        for group in &self.groups {
            let (layout, extra) = layout_of(&group.terms);
            text.push(2, group.members.len() as u64);
            text.push(1, layout);
            text.push(5, group.cost);
            text.push(4, group.want.into());
            text.push(7, clock.not_after(group.deadline));
            text.push(5, group.terms.capacity);
            text.push(7, group.terms.window);
            text.push(5, group.terms.rate);
            text.push(7, extra);
            text.push(1, group.terms.shift().into());
        }
        command.arg(text.as_bytes());
    }
}

/// A layout's number in `lua/states.lua`, and how many slots it has, or where its windows begin.
pub(super) const fn layout_of(terms: &Terms) -> (u64, u64) {
    match terms.layout {
        Layout::Log => (1, 0),
        Layout::Slots(slots) => (2, slots as u64),
        Layout::Counter => (3, 0),
        Layout::Fixed | Layout::FixedPerKey => (4, terms.offset),
        Layout::Bucket => (5, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::ask::Heeds;
    use crate::store::{Ask, Charge};
    use crate::{Key, PolicyName, Quota};

    /// An ask of a group would be charged after its own deadline, if it had the one of another.
    #[test]
    fn c8_a_group_has_the_earliest_deadline_of_its_asks() {
        let (key, policy) = (Key::from("a"), PolicyName::new("p").expect("a name"));
        let charges = [Charge::new(&key, &policy, Quota::per_minute(100))];
        let order = Order::new("t", &Ask::new(&charges), Heeds::None);
        let now = Instant::now();
        let deadlines = [7, 3, 5].map(|millis| now + Duration::from_millis(millis));
        let mut plain = Plain::default();
        for (index, deadline) in deadlines.into_iter().enumerate() {
            let (order, want) = (order.clone(), 1);
            let ask = Wanted {
                order,
                want,
                deadline,
            };
            let charge = charge_of(&ask.order).expect("it is plain");
            plain.push(&ask, charge, index as u16);
        }
        let groups: Vec<Instant> = plain.groups.iter().map(|group| group.deadline).collect();
        assert_eq!(groups, [deadlines[1]]);
    }
}
