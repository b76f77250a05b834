//! Asks that `lua/several.lua` answers: charges that are all enforced, each on a log or slots of its own; held ones have one
//! charge, on slots.

use hashbrown::HashMap;
use redis::Cmd;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::call::are_near;
use super::clock::ServerClock;
use super::order::{Order, Wanted};
use super::packed::Packed;
use crate::algorithm::Terms;
use crate::quota::Layout;
use crate::store::Mode;

/// The asks of one call, in order, and their counters, kind by kind.
#[derive(Default)]
pub(super) struct Several<'a> {
    kinds: SmallVec<[Kind<'a>; 4]>,
    places: HashMap<&'a [u8], Place, foldhash::fast::RandomState>,
    shapes: SmallVec<[Shape<'a>; 2]>,
    /// Asks one after another that are of one shape.
    runs: SmallVec<[Run; 2]>,
    /// Of all charges, in order.
    charged: SmallVec<[Place; 16]>,
    pub(super) asks: SmallVec<[u16; 16]>,
}

/// Counters that are packed alike.
struct Kind<'a> {
    slots: u16,
    window: u64,
    keys: SmallVec<[&'a [u8]; 16]>,
}

/// A counter's kind, and where it is among those of its kind.
#[derive(Clone, Copy)]
struct Place {
    kind: u16,
    index: u16,
}

/// Asks that differ in their keys alone.
struct Shape<'a> {
    order: &'a Order,
    want: u32,
    deadline: Instant,
}

struct Run {
    shape: u8,
    asks: u8,
}

/// Whether the script knows how to charge such an ask.
pub(super) fn is_fit(order: &Order) -> bool {
    let fits = |(index, charge): (usize, &super::order::OrderCharge)| {
        if charge.penalty.is_some() {
            return false;
        }
        let Some(counter) = &charge.counter else {
            return true;
        };
        let mut others = order.charges[..index]
            .iter()
            .filter_map(|other| other.counter.as_ref());
        charge.mode == Mode::Enforce
            && charge.cost > 0
            && slots_of(&counter.terms).is_some()
            && others.all(|other| other.key != counter.key)
    };
    let mut counters = order.counters();
    let (first, more) = (counters.next(), counters.next());
    let is_held_alone =
        || more.is_none() && first.is_some_and(|counter| matches!(counter.terms.layout, Layout::Slots(_)));
    first.is_some() && (order.hold == 0 || is_held_alone()) && order.charges.iter().enumerate().all(fits)
}

/// Into how many slots a window is cut, 0 for a log; `None` for other layouts.
const fn slots_of(terms: &Terms) -> Option<u16> {
    match terms.layout {
        Layout::Log => Some(0),
        Layout::Slots(slots) => Some(slots),
        _ => None,
    }
}

impl<'a> Several<'a> {
    /// Takes an ask that is [fit](is_fit). False if there is no room for another of its kind.
    pub(super) fn push(&mut self, ask: &'a Wanted, index: u16) -> bool {
        if ask.want == 0 {
            return false;
        }
        let Some(shape) = self.shape(ask) else {
            return false;
        };
        match self.runs.last_mut() {
            Some(run) if run.shape == shape && run.asks < u8::MAX => run.asks += 1,
            _ => self.runs.push(Run { shape, asks: 1 }),
        }
        for counter in ask.order.counters() {
            let kinds = &mut self.kinds;
            let place = self
                .places
                .entry(&counter.key)
                .or_insert_with(|| Place::new(kinds, &counter.key, &counter.terms));
            self.charged.push(*place);
        }
        self.asks.push(index);
        true
    }

    fn shape(&mut self, ask: &'a Wanted) -> Option<u8> {
        let found = self.shapes.iter().position(|shape| {
            shape.want == ask.want
                && are_near(shape.deadline, ask.deadline)
                && are_alike(shape.order, &ask.order)
        });
        if let Some(at) = found {
            let deadline = &mut self.shapes[at].deadline;
            *deadline = ask.deadline.min(*deadline);
        }
        let at = u8::try_from(found.unwrap_or(self.shapes.len())).ok()?;
        let charges = ask.order.charges.len();
        if at == u8::MAX || charges > usize::from(u8::MAX) {
            return None;
        }
        if found.is_none() {
            self.shapes.push(Shape {
                order: &ask.order,
                want: ask.want,
                deadline: ask.deadline,
            });
        }
        // Lua counts from 1.
        Some(at + 1)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.kinds.iter().flat_map(|kind| kind.keys.iter().copied())
    }

    /// What the script is to be told; nothing without asks.
    pub(super) fn write(&self, command: &mut Cmd, clock: &ServerClock) {
        let mut text = Packed::default();
        let mut before: SmallVec<[u16; 4]> = SmallVec::new();
        let mut keys = 1;
        if self.asks.is_empty() {
            command.arg("");
            return;
        }
        text.push(1, self.kinds.len() as u64);
        for kind in &self.kinds {
            before.push(keys);
            keys += kind.keys.len() as u16;
            text.push(2, kind.keys.len() as u64);
            text.push(2, kind.slots.into());
            text.push(7, kind.window);
        }
        text.push(1, self.shapes.len() as u64);
        for shape in &self.shapes {
            text.push(7, clock.not_after(shape.deadline));
            text.push(4, shape.want.into());
            text.push(3, shape.order.held());
            text.push(1, shape.order.counters().count() as u64);
            for charge in &shape.order.charges {
                let Some(counter) = &charge.counter else { continue };
                text.push(5, charge.cost);
                text.push(5, counter.terms.capacity);
                text.push(2, slots_of(&counter.terms).unwrap_or_default().into());
                text.push(7, counter.terms.window);
            }
        }
        text.push(2, self.runs.len() as u64);
        // Few counters have places of one byte.
        let place_bytes = if keys < 257 { 1 } else { 2 };
        let mut charged = self.charged.iter();
        for run in &self.runs {
            text.push(1, run.shape.into());
            text.push(1, run.asks.into());
            let charges = self.shapes[usize::from(run.shape) - 1].order.counters().count();
            for place in charged.by_ref().take(usize::from(run.asks) * charges) {
                let place = before[usize::from(place.kind)] + place.index;
                text.push(place_bytes, place.into());
            }
        }
        command.arg(text.as_bytes());
    }
}

impl Place {
    fn new<'a>(kinds: &mut SmallVec<[Kind<'a>; 4]>, key: &'a [u8], terms: &Terms) -> Self {
        let (slots, window) = (slots_of(terms).unwrap_or_default(), terms.window);
        let found = kinds
            .iter()
            .position(|kind| kind.slots == slots && kind.window == window);
        let kind = found.unwrap_or_else(|| {
            let keys = SmallVec::new();
            kinds.push(Kind { slots, window, keys });
            kinds.len() - 1
        });
        kinds[kind].keys.push(key);
        Self {
            kind: kind as u16,
            index: kinds[kind].keys.len() as u16 - 1,
        }
    }
}

/// Whether two orders differ in their keys alone.
fn are_alike(one: &Order, other: &Order) -> bool {
    let of = |order: &'_ Order| -> SmallVec<[(u64, Terms); 4]> {
        let counted = order.charges.iter().filter_map(|charge| {
            let counter = charge.counter.as_ref()?;
            Some((charge.cost, counter.terms))
        });
        counted.collect()
    };
    one.hold == other.hold && of(one) == of(other)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::ask::Heeds;
    use crate::store::{Ask, Charge};
    use crate::{Key, PolicyName, Quota};

    #[test]
    fn c8_a_shape_has_the_earliest_deadline_of_its_asks() {
        let (key, policy) = (Key::from("a"), PolicyName::new("p").expect("a name"));
        let charges = [Charge::new(&key, &policy, Quota::per_minute(100).slots(8))];
        let order = Order::new("t", &Ask::new(&charges), Heeds::None);
        let now = Instant::now();
        let deadlines = [7, 3, 5].map(|millis| now + Duration::from_millis(millis));
        let asks = deadlines.map(|deadline| Wanted {
            order: order.clone(),
            want: 1,
            deadline,
        });
        let mut several = Several::default();
        for (index, ask) in asks.iter().enumerate() {
            assert!(several.push(ask, index as u16));
        }
        let shapes: Vec<Instant> = several.shapes.iter().map(|shape| shape.deadline).collect();
        assert_eq!(shapes, [deadlines[1]]);
    }
}
