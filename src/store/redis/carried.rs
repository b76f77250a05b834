//! How much a call carries so far.

use std::hash::BuildHasher;

use hashbrown::HashSet;

use super::order::{OrderCharge, Wanted};
use super::queue::Bounds;

/// What the asks of a call are about, all together. A server's work grows with the counters that it reads and writes; a
/// charge on one that it has read already costs it little.
#[derive(Default)]
pub(super) struct Carried {
    counters: usize,
    charges: usize,
    units: u64,
    /// Hashes of the counters that asks of several charges have.
    known: HashSet<u64, foldhash::fast::RandomState>,
}

impl Carried {
    /// Takes an ask along. False if that is more than a call may carry.
    pub(super) fn add(&mut self, ask: &Wanted, bounds: Bounds) -> bool {
        self.counters += match &*ask.order.charges {
            // Asks for one counter alone are merged, nearly always.
            [_] => 1,
            charges => charges.iter().filter(|charge| self.is_new(charge)).count(),
        };
        self.charges += ask.order.charges.len();
        let units = ask.order.units_written().saturating_mul(ask.want.into());
        self.units = self.units.saturating_add(units);
        self.counters <= bounds.counters && self.charges <= 2 * bounds.counters && self.units <= bounds.units
    }

    fn is_new(&mut self, charge: &OrderCharge) -> bool {
        let Some(counter) = &charge.counter else {
            return true;
        };
        let hash = self.known.hasher().hash_one(&*counter.key);
        self.known.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::order::Order;
    use super::*;
    use crate::store::ask::Heeds;
    use crate::store::{Ask, Charge};
    use crate::{Key, PolicyName, Quota};

    /// How many asks a call takes that each charge these counters, named anew for each where they are its own.
    fn asks(own: usize, shared: usize, want: u32) -> usize {
        let policy = PolicyName::new("p").expect("a name");
        let bounds = Bounds {
            counters: 128,
            units: 1_000,
            waiting: 1,
            in_flight: 1,
            place: Duration::ZERO,
        };
        let mut carried = Carried::default();
        let fits = |ask: &usize| {
            let own = (0..own).map(|at| Key::from(format!("{ask}:{at}")));
            let shared = (0..shared).map(|at| Key::from(format!("all:{at}")));
            let keys: Vec<Key> = own.chain(shared).collect();
            let charge = |key| Charge::new(key, &policy, Quota::per_minute(100));
            let charges: Vec<Charge<'_>> = keys.iter().map(charge).collect();
            let order = Order::new("t", &Ask::new(&charges), Heeds::None);
            let deadline = Instant::now();
            carried.add(
                &Wanted {
                    order,
                    want,
                    deadline,
                },
                bounds,
            )
        };
        (0..).take_while(fits).count()
    }

    #[test]
    fn a_counter_that_asks_share_counts_once() {
        assert_eq!(asks(1, 0, 1), 128);
        assert_eq!(asks(3, 0, 1), 42);
        assert_eq!(asks(2, 1, 1), 63);
    }

    #[test]
    fn charges_and_units_are_bounded_too() {
        assert_eq!(asks(0, 4, 1), 64);
        assert_eq!(asks(1, 0, 100), 10);
    }
}
