//! A call of a script: what it asks, in the words of `lua/`.

use std::time::Duration;

use hashbrown::HashMap;
use redis::Cmd;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::clock::ServerClock;
use super::key::CounterKey;
use super::merged::Merged;
use super::order::{Amend, Amendment, Order, OrderPenalty, Wanted};
use super::plain::{Plain, charge_of, layout_of};
use super::script::{By, Script, Scripts};
use super::several::{self, Several};
use crate::algorithm::{MAX_TIME, Terms};
use crate::key::Key;
use crate::penalty::Penalty;
use crate::policy::PolicyName;
use crate::quota::{Layout, Quota, Rate};
use crate::store::ask::Heeds;
use crate::store::{Ask, Charge, Mode, Stamp};

/// Plain asks with deadlines as close as this share a group, and the earlier of their deadlines.
const DEADLINES_TOGETHER: Duration = Duration::from_millis(8);

pub(super) fn are_near(one: Instant, other: Instant) -> bool {
    one.max(other) - one.min(other) < DEADLINES_TOGETHER
}

/// A call that acquires, and whose reply each of its asks finds its answer in.
#[derive(Debug)]
pub(super) struct AcquireCall {
    pub(super) command: Cmd,
    /// The asks in the order of the reply.
    pub(super) order: SmallVec<[u16; 16]>,
}

impl AcquireCall {
    pub(super) fn new(scripts: &Scripts, by: By, clock: &ServerClock, asks: &[Merged]) -> Self {
        if let [ask] = asks {
            return Self::of_one(scripts, by, clock, &ask.ask);
        }
        let mut uses = uses_of_keys(asks);
        let mut plain = Plain::default();
        let mut several = Several::default();
        let mut others: SmallVec<[u16; 16]> = SmallVec::new();
        for (index, Merged { ask, .. }) in asks.iter().enumerate() {
            let index = index as u16;
            if let Some((cost, counter)) = charge_of(&ask.order)
                && uses[&*counter.key].charges == 1
            {
                plain.push(ask, (cost, counter), index);
                continue;
            }
            let mut counters = ask.order.counters();
            let is_fit =
                several::is_fit(&ask.order) && counters.all(|counter| !uses[&*counter.key].by_others);
            if !is_fit || !several.push(ask, index) {
                // What is asked of these counters later is answered later.
                for counter in ask.order.counters() {
                    uses.entry(&counter.key).or_default().by_others = true;
                }
                others.push(index);
            }
        }
        let mut keys: SmallVec<[&[u8]; 16]> = SmallVec::new();
        let mut order: SmallVec<[u16; 16]> = SmallVec::new();
        for index in plain.asks() {
            order.push(index);
            keys.extend(
                asks[usize::from(index)]
                    .ask
                    .order
                    .counters()
                    .map(|counter| &*counter.key),
            );
        }
        order.extend_from_slice(&several.asks);
        keys.extend(several.keys());
        let mut numbers: HashMap<&[u8], usize, foldhash::fast::RandomState> = HashMap::default();
        if !others.is_empty() {
            numbers.extend(keys.iter().enumerate().map(|(index, key)| (*key, index + 1)));
        }
        for &index in &others {
            order.push(index);
            for key in asks[usize::from(index)].ask.order.keys() {
                numbers.entry(key).or_insert_with(|| {
                    keys.push(key);
                    keys.len()
                });
            }
        }
        let mut command = start(&scripts.acquire, by, &keys);
        plain.write(&mut command, clock);
        if !several.asks.is_empty() || !others.is_empty() {
            several.write(&mut command, clock);
        }
        for &index in &others {
            let ask = &asks[usize::from(index)].ask;
            write_ask(&mut command, ask, clock, |key| numbers[&**key]);
        }
        Self { command, order }
    }

    /// Most calls, where nothing waits.
    fn of_one(scripts: &Scripts, by: By, clock: &ServerClock, ask: &Wanted) -> Self {
        let mut plain = Plain::default();
        let mut command;
        if let Some(charge) = charge_of(&ask.order) {
            plain.push(ask, charge, 0);
            command = start(&scripts.acquire, by, &[&charge.1.key]);
            plain.write(&mut command, clock);
        } else {
            let mut several = Several::default();
            let is_several = several::is_fit(&ask.order) && several.push(ask, 0);
            let keys = match is_several {
                true => several.keys().collect(),
                false => distinct_keys(&ask.order),
            };
            command = start(&scripts.acquire, by, &keys);
            plain.write(&mut command, clock);
            several.write(&mut command, clock);
            if !is_several {
                write_ask(&mut command, ask, clock, |key| number_of(&keys, key));
            }
        }
        Self {
            command,
            order: SmallVec::from_slice(&[0]),
        }
    }
}

/// The commands that the scripts call, and how they are called themselves.
pub(super) const COMMANDS: &[&str] = &[
    "evalsha", "eval", "time", "get", "mget", "set", "append", "setrange", "del",
];

/// Calls that try everything that the scripts do, on counters of their own, which they leave no trace of.
pub(super) fn probe(scripts: &Scripts, by: By, prefix: &str) -> Vec<Cmd> {
    // Nothing here has a deadline, so the clock is one by which it is never too late.
    let (clock, now) = (ServerClock::new(), Instant::now());
    clock.observe(now, now, MAX_TIME);
    let key = Key::named("probe", fastrand::u64(..).to_be_bytes());
    let [policy, other] = [Quota::per_second(9), Quota::per_minute(9)].map(|quota| PolicyName::of(&quota));
    let second = Duration::from_secs(1);
    let quotas = [
        Quota::per_second(9),
        Quota::per_second(9).slots(2),
        Quota::per_second(9).sliding_counter(),
        Quota::per_second(9).fixed_window(),
        Quota::token_bucket(Rate::new(9, second), 9),
    ];
    let penalty = Penalty::after(1, second);
    let second_log = Charge::new(&key, &other, quotas[0]);
    let [log, slots, counter, fixed, bucket] = quotas.map(|quota| Charge::new(&key, &policy, quota));
    let charges = [log, slots, counter, fixed, bucket, second_log];
    let penalized = charges.map(|charge| charge.cost(10).penalty(&penalty));
    let wanted = |charges, heeds| Wanted {
        order: Order::new(prefix, &Ask::new(charges), heeds),
        want: 1,
        deadline: now,
    };
    let (log, slots) = (
        wanted(&charges[..1], Heeds::None),
        wanted(&charges[1..2], Heeds::None),
    );
    let all = wanted(&charges, Heeds::None);
    let (denied, every) = (
        wanted(&penalized, Heeds::Enforced),
        wanted(&penalized, Heeds::All),
    );
    let charged = Amendment {
        ask: all.clone(),
        amend: Amend::Charge,
    };
    let given_back = Amendment {
        ask: log.clone(),
        amend: Amend::GiveBack(Stamp::default()),
    };
    let acquire = |ask: &Wanted| AcquireCall::of_one(scripts, by, &clock, ask).command;
    let two_logs = [&charges[..1], &charges[5..]].map(|charges| Merged::alone(wanted(charges, Heeds::None)));
    vec![
        // The second ones append and write over.
        acquire(&log),
        acquire(&log),
        AcquireCall::new(scripts, by, &clock, &two_logs).command,
        acquire(&slots),
        acquire(&slots),
        acquire(&all),
        acquire(&denied),
        peek(scripts, by, &clock, &all),
        settle(scripts, by, &clock, &[charged, given_back]),
        block(scripts, by, &clock, &every, 1_000_000),
        reset(scripts, by, &clock, &every),
    ]
}

/// A call of one ask, which is not batched.
pub(super) fn peek(scripts: &Scripts, by: By, clock: &ServerClock, ask: &Wanted) -> Cmd {
    let keys = distinct_keys(&ask.order);
    let mut command = start(&scripts.peek, by, &keys);
    write_ask(&mut command, ask, clock, |counter| number_of(&keys, counter));
    command
}

pub(super) fn settle(scripts: &Scripts, by: By, clock: &ServerClock, amendments: &[Amendment]) -> Cmd {
    let mut keys: SmallVec<[&[u8]; 4]> = SmallVec::new();
    let mut numbers: HashMap<&[u8], usize, foldhash::fast::RandomState> = HashMap::default();
    for counter in amendments.iter().flat_map(|each| each.ask.order.counters()) {
        numbers.entry(&counter.key).or_insert_with(|| {
            keys.push(&counter.key);
            keys.len()
        });
    }
    let mut command = start(&scripts.settle, by, &keys);
    command.arg(amendments.len());
    for Amendment { ask, amend } in amendments {
        match amend {
            Amend::GiveBack(stamp) => command.arg(0).arg(stamp.as_micros()),
            Amend::Charge => command.arg(1).arg(0),
        };
        write_ask(&mut command, ask, clock, |key| numbers[&**key]);
    }
    command
}

pub(super) fn reset(scripts: &Scripts, by: By, clock: &ServerClock, ask: &Wanted) -> Cmd {
    let mut command = start(&scripts.reset, by, &distinct_keys(&ask.order));
    command.arg(clock.not_after(ask.deadline));
    command
}

/// Blocks the keys of all penalties for so many microseconds.
pub(super) fn block(scripts: &Scripts, by: By, clock: &ServerClock, ask: &Wanted, time: u64) -> Cmd {
    let mut penalties: SmallVec<[&OrderPenalty; 4]> = SmallVec::new();
    for penalty in ask.order.penalties() {
        if penalties.iter().all(|other| other.key != penalty.key) {
            penalties.push(penalty);
        }
    }
    let keys: SmallVec<[&[u8]; 4]> = penalties.iter().map(|penalty| &*penalty.key).collect();
    let mut command = start(&scripts.block, by, &keys);
    command.arg(clock.not_after(ask.deadline)).arg(time);
    for (index, penalty) in penalties.into_iter().enumerate() {
        write_penalty(&mut command, penalty, index + 1);
    }
    command
}

/// What a call does with a counter.
#[derive(Clone, Copy, Default)]
struct Uses {
    charges: u16,
    /// Whether an ask that is neither plain nor of [`Several`] has charged it.
    by_others: bool,
}

fn uses_of_keys(asks: &[Merged]) -> HashMap<&[u8], Uses, foldhash::fast::RandomState> {
    let mut uses = HashMap::with_capacity_and_hasher(asks.len(), foldhash::fast::RandomState::default());
    for counter in asks.iter().flat_map(|merged| merged.ask.order.counters()) {
        uses.entry(&*counter.key).or_insert_with(Uses::default).charges += 1;
    }
    uses
}

fn distinct_keys(order: &Order) -> SmallVec<[&[u8]; 4]> {
    let mut keys: SmallVec<[&[u8]; 4]> = SmallVec::new();
    for key in order.keys() {
        if !keys.contains(&&**key) {
            keys.push(key);
        }
    }
    keys
}

fn number_of(keys: &[&[u8]], key: &CounterKey) -> usize {
    1 + keys.iter().position(|each| *each == &**key).unwrap_or_default()
}

fn start(script: &Script, by: By, keys: &[&[u8]]) -> Cmd {
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    // Most calls need no more beside their keys.
    let mut command = script.call(by, keys.len() + 16, bytes + 128);
    command.arg(keys.len());
    for key in keys {
        command.arg(*key);
    }
    command
}

fn write_ask(command: &mut Cmd, ask: &Wanted, clock: &ServerClock, number: impl Fn(&CounterKey) -> usize) {
    let written = ask.order.charges.iter().filter(|charge| charge.key().is_some());
    command
        .arg(ask.want)
        .arg(ask.order.hold)
        .arg(clock.not_after(ask.deadline))
        .arg(written.clone().count());
    for charge in written {
        let counter = charge.counter.as_ref();
        let mode = match (charge.mode, &charge.penalty) {
            (Mode::Enforce, Some(_)) => 2,
            (Mode::Enforce, None) => 1,
            (Mode::Shadow, _) => 0,
        };
        command
            .arg(counter.map_or(0, |counter| number(&counter.key)))
            .arg(charge.cost)
            .arg(mode);
        if let Some(counter) = counter {
            write_terms(command, &counter.terms);
        }
        if let Some(penalty) = &charge.penalty {
            write_penalty(command, penalty, number(&penalty.key));
        }
    }
}

fn write_penalty(command: &mut Cmd, OrderPenalty { penalty, .. }: &OrderPenalty, number: usize) {
    command
        .arg(number)
        .arg(penalty.denials())
        .arg(penalty.within())
        .arg(penalty.block())
        .arg(penalty.factor())
        .arg(penalty.longest());
}

fn write_terms(command: &mut Cmd, terms: &Terms) {
    let (layout, extra) = layout_of(terms);
    command.arg(layout).arg(terms.capacity).arg(terms.window);
    if terms.layout != Layout::Log {
        command.arg(terms.rate).arg(extra).arg(terms.shift());
    }
}
