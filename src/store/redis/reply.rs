//! What scripts reply, and what it means to each of the callers that share an answer.

use std::iter;
use std::time::{Duration, Instant};

use redis::Value;
use smallvec::SmallVec;

use super::order::{Order, OrderCounter};
use crate::algorithm::{After, Slots, State};
use crate::quota::Layout;
use crate::store::{ChargeState, KnownOutcome, Mode, Outcome, Retry, Stamp};

/// The reply to one ask.
#[derive(Debug)]
pub(super) enum Reply {
    /// The server came to it after its deadline, and did nothing.
    TooLate,
    Answer(Answer),
}

/// A store's answer to an ask that may stand for several.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    now: u64,
    stamp: u64,
    /// When it was asked for.
    pub(super) sent: Option<Instant>,
    pub(super) granted: u32,
    /// Of the charges that are counted.
    reports: SmallVec<[Report; 1]>,
    /// When the blocks of the order's penalties end, in microseconds from now; 0 if there is none.
    blocks: SmallVec<[u64; 2]>,
}

/// What a caller gets of an answer: so many grants of those that it wants, after those of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    before: u32,
    pub(super) take: u32,
    want: u32,
}

impl Share {
    pub(super) const fn new(before: u32, take: u32, want: u32) -> Self {
        Self { before, take, want }
    }

    /// Whether one grant was wanted, and none was got.
    pub(super) const fn is_refused_one(self) -> bool {
        self.take == 0 && self.want == 1
    }
}

/// What a script tells of one charge: how often it was charged, and three numbers of its counter (`lua/acquire.lua`).
#[derive(Clone, Copy, Debug)]
struct Report {
    charged: u32,
    numbers: [i64; 3],
}

/// A reply that no script of this crate gives.
#[derive(Debug)]
pub(super) struct Malformed;

/// What one call was replied.
#[derive(Debug)]
pub(super) struct Replies {
    /// The server's time.
    pub(super) now: u64,
    /// The time, and what each ask was replied.
    values: SmallVec<[Value; 2]>,
}

/// Bytes of the server's time, and of units, where nothing else is told.
const TIME_BYTES: usize = 7;
const UNITS_BYTES: usize = 5;

impl Replies {
    pub(super) fn read(value: Value) -> Result<Self, Malformed> {
        let values = match value {
            Value::Array(values) => SmallVec::from_vec(values),
            Value::BulkString(text) => unpacked(&text).ok_or(Malformed)?,
            _ => return Err(Malformed),
        };
        let now = whole(values.first().ok_or(Malformed)?)?;
        Ok(Self {
            now: u64::try_from(now).map_err(|_| Malformed)?,
            values,
        })
    }

    pub(super) fn each(&self) -> &[Value] {
        self.values.get(1..).unwrap_or_default()
    }
}

/// The numbers of a reply that is one text.
fn unpacked(text: &[u8]) -> Option<SmallVec<[Value; 2]>> {
    let (time, units) = text.split_at_checked(TIME_BYTES)?;
    if units.len() % UNITS_BYTES != 0 {
        return None;
    }
    let numbers = iter::once(time).chain(units.chunks_exact(UNITS_BYTES));
    let value = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | i64::from(byte))
    };
    Some(numbers.map(|bytes| Value::Int(value(bytes))).collect())
}

/// Where a Lua of its own makes them fractions, whole numbers still come as such.
fn whole(value: &Value) -> Result<i64, Malformed> {
    const EXACT: f64 = (1_i64 << 53) as f64;
    match value {
        Value::Int(number) => Ok(*number),
        Value::Double(number) if number.fract() == 0.0 && number.abs() <= EXACT => Ok(*number as i64),
        _ => Err(Malformed),
    }
}

/// Whether the server came to an ask after its deadline, and did nothing.
pub(super) fn is_too_late(value: &Value) -> bool {
    matches!(whole(value), Ok(-1))
}

impl Reply {
    /// Reads the reply to `order`, wanted so often, off the front of all that are left.
    pub(super) fn read(values: &mut &[Value], now: u64, order: &Order, want: u32) -> Result<Self, Malformed> {
        let (first, rest) = values.split_first().ok_or(Malformed)?;
        if let Value::Array(numbers) = first {
            *values = rest;
            return Ok(Self::Answer(Answer::read(numbers, now, order, want)?));
        }
        if whole(first)? == -1 {
            *values = rest;
            return Ok(Self::TooLate);
        }
        let charges = order.counters().count();
        let (units, rest) = values.split_at_checked(charges).ok_or(Malformed)?;
        *values = rest;
        Ok(Self::Answer(Answer::of_granted(units, now, order, want)?))
    }
}

impl Answer {
    /// An ask that was granted all it wanted, as of now or of where its hold ends, with room for another grant: nothing is told
    /// but the units that each counter has.
    fn of_granted(units: &[Value], now: u64, order: &Order, want: u32) -> Result<Self, Malformed> {
        let stamp = now + order.held();
        let report = |(units, counter): (&Value, &OrderCounter)| {
            let terms = &counter.terms;
            let units = whole(units)?;
            let full_at = match terms.layout {
                Layout::Log if units > 0 => stamp + terms.window,
                Layout::Slots(slots) if units > 0 => Slots::new(slots).end_of(terms, stamp),
                _ => return Err(Malformed),
            };
            Ok(Report {
                charged: want,
                numbers: [units, 0, (full_at - now) as i64],
            })
        };
        Ok(Self {
            now,
            stamp,
            sent: None,
            granted: want,
            reports: units
                .iter()
                .zip(order.counters())
                .map(report)
                .collect::<Result<_, _>>()?,
            blocks: SmallVec::new(),
        })
    }

    fn read(numbers: &[Value], now: u64, order: &Order, want: u32) -> Result<Self, Malformed> {
        let mut numbers = numbers.iter().map(whole);
        let mut next = || numbers.next().ok_or(Malformed)?;
        let granted = u32::try_from(next()?).map_err(|_| Malformed)?;
        let stamp = now.checked_add_signed(next()?).ok_or(Malformed)?;
        let mut reports = SmallVec::new();
        for _ in order.counters() {
            reports.push(Report {
                charged: u32::try_from(next()?).map_err(|_| Malformed)?,
                numbers: [next()?, next()?, next()?],
            });
        }
        let mut blocks = SmallVec::new();
        for _ in order.penalties() {
            blocks.push(u64::try_from(next()?).map_err(|_| Malformed)?);
        }
        if granted > want || numbers.next().is_some() {
            return Err(Malformed);
        }
        Ok(Self {
            now,
            stamp,
            sent: None,
            granted,
            reports,
            blocks,
        })
    }

    /// What the caller is told who gets this: what it would have been told, had all asked one after another. Who gets none
    /// is told the state after all, and who gets fewer than it wants, the block that may come of it.
    pub(super) fn outcome(&self, order: &Order, share @ Share { take, want, .. }: Share) -> Outcome {
        let upto = self.upto(share);
        let mut reports = self.reports.iter();
        let counters = order.charges.iter().map(|charge| {
            let Some(counter) = &charge.counter else {
                return ChargeState::new(take, u64::MAX, Retry::Now, Duration::ZERO);
            };
            let Some(report) = reports.next() else {
                return ChargeState::new(take, 0, Retry::Never, Duration::ZERO);
            };
            let charged = report.charged.min(upto) - report.charged.min(upto - take);
            let cost = match charge.mode {
                Mode::Enforce => counter.enforced,
                Mode::Shadow => charge.cost,
            };
            let later = self.later(order, counter, upto);
            ChargeState::after(&report.after(counter, self.now, later, cost), self.now, charged)
        });
        let mut blocks = self.blocks.iter();
        let mut states = order.charges.iter().zip(counters).map(|(charge, state)| {
            let block = charge.penalty.as_ref().and_then(|_| blocks.next());
            match block {
                Some(&block @ 1..) if take == 0 || take < want => {
                    state.blocked_until(self.now + block, self.now)
                }
                _ => state,
            }
        });
        let stamp = Stamp::from_micros(self.stamp);
        let mut outcome = Outcome::new(take, Stamp::from_micros(self.now), []).stamp(stamp);
        // Nearly always one, which needs no list that grows.
        outcome.states = match (order.charges.len(), states.next()) {
            (1, Some(state)) => SmallVec::from_buf([state]),
            (_, first) => first.into_iter().chain(states).collect(),
        };
        match self.sent {
            Some(sent) => outcome.sent(sent),
            None => outcome,
        }
    }

    /// The same of one grant of one enforced charge, if it is about no more.
    pub(super) fn known(&self, order: &Order, share: Share) -> Option<KnownOutcome> {
        let ([charge], [report]) = (&*order.charges, &*self.reports) else {
            return None;
        };
        let counter = charge.counter.as_ref()?;
        if charge.mode != Mode::Enforce || charge.penalty.is_some() || share.want != 1 {
            return None;
        }
        let later = self.later(order, counter, self.upto(share));
        let after = report.after(counter, self.now, later, counter.enforced);
        Some(KnownOutcome::after(
            &after,
            (self.now, self.stamp),
            share.take > 0,
        ))
    }

    /// The grants after which whoever has a share sees the counters.
    const fn upto(&self, Share { before, take, .. }: Share) -> u32 {
        match take {
            0 => self.granted,
            _ => before + take,
        }
    }

    /// Units of a counter that grants took after so many.
    fn later(&self, order: &Order, counter: &OrderCounter, upto: u32) -> u64 {
        match upto == self.granted {
            true => 0,
            false => self.units(order, counter, self.granted) - self.units(order, counter, upto),
        }
    }

    /// Units that so many grants took of a counter.
    fn units(&self, order: &Order, counter: &OrderCounter, grants: u32) -> u64 {
        let charges = order.charges.iter().filter(|charge| charge.counter.is_some());
        charges
            .zip(&self.reports)
            .filter(|(charge, _)| {
                charge
                    .counter
                    .as_ref()
                    .is_some_and(|other| other.key == counter.key)
            })
            .map(|(charge, report)| charge.cost * u64::from(report.charged.min(grants)))
            .sum()
    }

    pub(super) const fn stamp(&self) -> Stamp {
        Stamp::from_micros(self.stamp)
    }

    /// How often each charge was charged for a share.
    pub(super) fn charged(&self, order: &Order, Share { before, take, .. }: Share) -> SmallVec<[u32; 1]> {
        let mut reports = self.reports.iter();
        let times = order.charges.iter().map(|charge| {
            let charged = match &charge.counter {
                Some(_) => reports.next().map_or(0, |report| report.charged),
                None => 0,
            };
            charged.min(before + take) - charged.min(before)
        });
        times.collect()
    }
}

impl Report {
    /// The counter before the last `later` units were charged.
    fn after(&self, counter: &OrderCounter, now: u64, later: u64, cost: u64) -> After {
        let terms = &counter.terms;
        let [a, b, c] = self.numbers.map(|number| u64::try_from(number).unwrap_or(0));
        let mut state = match terms.layout {
            Layout::Log | Layout::Slots(_) => {
                let free = terms.capacity.saturating_sub(a.saturating_sub(later));
                let earliest = match self.numbers[1] {
                    _ if later > 0 && cost <= free && terms.capacity > 0 => Some(now),
                    ..0 => None,
                    wait => Some(now + wait.unsigned_abs()),
                };
                return After {
                    free,
                    earliest,
                    full_at: now + c,
                };
            }
            Layout::Counter => State::of_counter(a, b.saturating_sub(later), c),
            Layout::Fixed | Layout::FixedPerKey => State::of_fixed(a, b.saturating_sub(later)),
            Layout::Bucket => State::of_bucket(terms, a, b, c, later),
        };
        state.after(terms, now, (now, 0), cost)
    }
}

#[cfg(test)]
mod tests;
