//! One counter of the model.

use tollgate::{Key, MAX_LOG_UNITS, MAX_UNITS};

use super::{Rule, Terms, div_ceil, exact};

/// What was charged: times and units, in order of time; a bucket keeps its debt instead, because what it has
/// refilled depends on the rates that it had.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    charges: Vec<(i128, i128)>,
    /// Where fixed windows begin.
    offset: i128,
    /// The latest window that a sliding counter stood in: it does not go back to an earlier one.
    window: i128,
    bucket: Bucket,
}

/// `debt` is counted in 1/`unit` of a unit, where `unit` is the window in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    at: i128,
    debt: i128,
    tick: u32,
}

/// The tick rule: time counts in ticks of 2ᵏ µs, for the smallest k at which `units` × window stays below 2⁵².
fn tick(units: i128, window: i128) -> u32 {
    (0..52)
        .find(|&k| units * div_ceil(window, 1 << k) < 1 << 52)
        .expect("a tick that is long enough")
}

impl Terms {
    /// How long a tick of a bucket is.
    pub(crate) fn tick_length(&self) -> i128 {
        1 << tick(self.limit.max(self.rate), self.window)
    }
}

impl Counter {
    pub(super) fn new(key: &str, terms: &Terms) -> Self {
        let offset = match terms.rule {
            Rule::Fixed(offset) => offset,
            // The first 64 bits of the key's hash, as a number.
            Rule::FixedPerKey => {
                let hash = blake3::hash(Key::from(key).as_bytes()).to_hex();
                i128::from_str_radix(&hash.as_str()[..16], 16).expect("hex") % terms.window
            }
            _ => 0,
        };
        Self {
            offset,
            ..Self::default()
        }
    }

    /// Units in use at `time`, from `now` on, if nothing else is charged.
    pub(super) fn used(&self, terms: &Terms, time: i128) -> i128 {
        match terms.rule {
            Rule::Log | Rule::Slots(_) | Rule::Fixed(_) | Rule::FixedPerKey => {
                exact(self.sum(|charged| self.leaves(terms, charged) > time))
            }
            Rule::Counter => {
                let window = self.window.max(time.div_euclid(terms.window));
                let of = |window| self.sum(|charged| charged.div_euclid(terms.window) == window);
                let (current, previous) = (of(window), of(window - 1));
                let rest = terms.window - (time - window * terms.window).max(0);
                let tick = tick(previous.max(terms.limit), terms.window);
                let weight = exact(previous * div_ceil(rest, 1 << tick));
                current + div_ceil(weight, terms.window >> tick).min(previous)
            }
            Rule::Bucket => {
                let bucket = self.bucket.at(terms, time);
                div_ceil(bucket.debt, bucket.unit(terms))
            }
        }
    }

    fn sum(&self, counts: impl Fn(i128) -> bool) -> i128 {
        let counted = self.charges.iter().filter(|(time, _)| counts(*time));
        counted.map(|(_, units)| units).sum()
    }

    /// The first time at which a unit charged at `time` counts no more.
    fn leaves(&self, terms: &Terms, time: i128) -> i128 {
        match terms.rule {
            Rule::Log => exact(time + terms.window),
            // A slot counts in full until its last microsecond has left the window.
            Rule::Slots(_) => exact(self.part(terms, time) + self.part_length(terms) - 1 + terms.window),
            Rule::Fixed(_) | Rule::FixedPerKey => exact(self.part(terms, time) + terms.window),
            Rule::Counter | Rule::Bucket => unreachable!("these forget little by little"),
        }
    }

    /// Units are told apart by the microsecond, the slot or the window that they were charged in: `length` long,
    /// and beginning at [`Self::part`].
    fn part_length(&self, terms: &Terms) -> i128 {
        match terms.rule {
            Rule::Log => 1,
            Rule::Slots(slots) => div_ceil(terms.window, slots),
            Rule::Counter | Rule::Fixed(_) | Rule::FixedPerKey => terms.window,
            Rule::Bucket => unreachable!("a bucket keeps no times"),
        }
    }

    fn part(&self, terms: &Terms, time: i128) -> i128 {
        let length = self.part_length(terms);
        (time - self.offset).div_euclid(length) * length + self.offset
    }

    /// Forgets what has left the window, and dates back what is from another clock: what lies more than
    /// the slack ahead of `now`.
    pub(super) fn repair(&mut self, terms: &Terms, now: i128) {
        let legal = now + terms.slack();
        match terms.rule {
            Rule::Log | Rule::Slots(_) | Rule::Fixed(_) | Rule::FixedPerKey => {
                let oldest = self.charges.first().map(|(time, _)| self.part(terms, *time));
                if oldest.is_some_and(|oldest| oldest > legal) {
                    self.charges.iter_mut().for_each(|(time, _)| *time = now);
                }
                let this = self.clone();
                self.charges.retain(|(time, _)| this.leaves(terms, *time) > now);
            }
            Rule::Counter => {
                let window = now.div_euclid(terms.window);
                let ahead = self.window * terms.window > legal;
                if ahead {
                    let back = (self.window - window) * terms.window;
                    self.charges.iter_mut().for_each(|(time, _)| *time -= back);
                }
                if ahead || self.charges.is_empty() {
                    self.window = window;
                }
                self.roll(terms, window);
            }
            Rule::Bucket => {
                if self.bucket.at > legal {
                    self.bucket.at = now;
                }
            }
        }
    }

    /// A sliding counter moves on to `window` and remembers the one before.
    fn roll(&mut self, terms: &Terms, window: i128) {
        self.window = self.window.max(window);
        let first = (self.window - 1) * terms.window;
        self.charges.retain(|(time, _)| *time >= first);
        if self.charges.is_empty() {
            self.window = window;
        }
    }

    /// The earliest time that a charge may have, so that charges stay in order.
    pub(super) fn newest(&self, terms: &Terms) -> i128 {
        match terms.rule {
            Rule::Bucket => 0,
            Rule::Counter if self.charges.is_empty() => 0,
            Rule::Counter => self.window * terms.window,
            _ => self.charges.last().map_or(0, |(time, _)| self.part(terms, *time)),
        }
    }

    /// The latest time that a charge may have, unless there are later ones: no further ahead than other clocks'
    /// times are told by, and within the window that counters stand in.
    pub(super) fn latest(&self, terms: &Terms, now: i128) -> i128 {
        let latest = now + terms.slack();
        match terms.rule {
            Rule::Fixed(_) | Rule::FixedPerKey => {
                let window = self.part(terms, now.max(self.newest(terms)));
                latest.min(window + terms.window - 1)
            }
            Rule::Counter => {
                let window = self.window.max(now.div_euclid(terms.window));
                latest.min((window + 1) * terms.window - 1)
            }
            _ => latest,
        }
    }

    /// What a counter can hold: more would change no answer.
    fn most(rule: Rule) -> i128 {
        match rule {
            Rule::Log => i128::from(MAX_LOG_UNITS) + 1,
            Rule::Slots(_) => 2 * (i128::from(MAX_UNITS) + 1),
            _ => i128::from(MAX_UNITS) + 1,
        }
    }

    /// Adds `units` as of `stamp`, or of the latest time that a charge may have.
    pub(super) fn charge(&mut self, terms: &Terms, now: i128, stamp: i128, units: i128) {
        if units == 0 {
            return;
        }
        let stamp = stamp.min(self.newest(terms).max(self.latest(terms, now)));
        let units = units.min(2 * (i128::from(MAX_UNITS) + 1));
        let most = Self::most(terms.rule);
        match terms.rule {
            Rule::Log => {
                self.charges.push((stamp, units.min(most)));
                // The newest count: the last to leave.
                let mut excess = self.sum(|_| true) - most;
                for (_, units) in &mut self.charges {
                    let forgotten = excess.clamp(0, *units);
                    *units -= forgotten;
                    excess -= forgotten;
                }
            }
            Rule::Slots(slots) => {
                let room = most - self.sum(|_| true);
                if room == 0 {
                    return;
                }
                let mut parts: Vec<_> = self
                    .charges
                    .iter()
                    .map(|(time, _)| self.part(terms, *time))
                    .collect();
                parts.dedup();
                // There are as many as a window touches and one ahead; the newest two become one.
                if let Some(&newest) = parts.last()
                    && parts.len() as i128 == slots + 2
                    && newest != self.part(terms, stamp)
                {
                    let this = self.clone();
                    for (time, _) in &mut self.charges {
                        if this.part(terms, *time) == newest {
                            *time = stamp;
                        }
                    }
                }
                self.charges.push((stamp, units.min(room)));
            }
            Rule::Counter => {
                let window = stamp.div_euclid(terms.window);
                self.roll(terms, window);
                let room = most - self.sum(|charged| charged.div_euclid(terms.window) == window);
                self.charges.push((stamp, units.min(room)));
            }
            Rule::Fixed(_) | Rule::FixedPerKey => {
                let room = most - self.sum(|_| true);
                self.charges.push((stamp, units.min(room)));
            }
            Rule::Bucket => {
                let mut bucket = self.bucket.at(terms, now);
                if stamp > now || bucket.debt == 0 {
                    // What was owed before is paid off by then at the latest.
                    let older = (bucket.debt / terms.rate) << bucket.tick;
                    bucket.at = bucket.at.max(stamp - older);
                }
                let owed = units.min(terms.limit) * bucket.unit(terms);
                bucket.debt = exact(bucket.debt + owed).min(terms.limit * bucket.unit(terms));
                self.bucket = bucket;
            }
        }
        self.charges.retain(|(_, units)| *units > 0);
    }

    /// Takes back exactly `units` charged as of `stamp`, or nothing. Where the counter was full to the brim,
    /// nobody knows what else was charged.
    pub(super) fn give_back(&mut self, terms: &Terms, now: i128, stamp: i128, units: i128) {
        if units == 0 {
            return;
        }
        if terms.rule == Rule::Bucket {
            if stamp > now + terms.slack() {
                return;
            }
            let bucket = &mut self.bucket;
            if 1 << bucket.tick != terms.tick_length() {
                return;
            }
            let owed = units.min(terms.limit) * bucket.unit(terms);
            let since = |time: i128| (now - time).max(0);
            let due = (owed - div_ceil(since(stamp), 1 << bucket.tick) * terms.rate).max(0);
            let paid = (bucket.debt / terms.rate).min(since(bucket.at) >> bucket.tick) * terms.rate;
            bucket.debt -= due.min(bucket.debt - paid);
            return;
        }
        let part = self.part(terms, stamp);
        let this = self.clone();
        let same = |time: i128| this.part(terms, time) == part;
        let full = match terms.rule {
            Rule::Counter => self.sum(same) == Self::most(terms.rule),
            _ => self.sum(|_| true) == Self::most(terms.rule),
        };
        if full || self.sum(same) < units {
            return;
        }
        let mut left = units;
        for (_, held) in self.charges.iter_mut().filter(|(time, _)| same(*time)) {
            let taken = left.min(*held);
            *held -= taken;
            left -= taken;
        }
        self.charges.retain(|(_, units)| *units > 0);
    }
}

impl Bucket {
    fn unit(&self, terms: &Terms) -> i128 {
        div_ceil(terms.window, 1 << self.tick)
    }

    /// The bucket at `time` under `terms`: what was refilled by then in whole ticks is paid off, and the debt
    /// is no more than the bucket holds. With another length of the tick, parts of a unit round up.
    fn at(self, terms: &Terms, time: i128) -> Self {
        let mut this = Self {
            tick: tick(terms.limit.max(terms.rate), terms.window),
            ..self
        };
        if this.tick != self.tick {
            this.debt = div_ceil(self.debt, self.unit(terms)) * this.unit(terms);
        }
        this.debt = this.debt.min(exact(terms.limit * this.unit(terms)));
        let ticks = (time - self.at).max(0) >> this.tick;
        this.debt = (this.debt - ticks * terms.rate).max(0);
        this.at = match this.debt {
            0 => time,
            _ => exact(self.at + (ticks << this.tick)),
        };
        this
    }
}
