//! What a seed stands for.

use std::fmt;
use std::time::Duration;

use tollgate::store::LocalAnswers;
use tollgate::{FailurePolicy, Lease, Limiter, Policy, Quota, Rate, Store, key};

use super::rng::Rng;

pub(super) const POLICIES: [&str; 3] = ["first", "second", "third"];

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) store_starts: Duration,
    /// Parts in a million, against the instances' clocks.
    pub(super) store_is_fast: i64,
    pub(super) network: Network,
    pub(super) deadline: Duration,
    pub(super) deny_age: Duration,
    pub(super) deny_size: usize,
    pub(super) policies: Vec<PolicyPlan>,
    /// How many keys there are. The second policy, if there is one, counts them all as one.
    pub(super) keys: u64,
    pub(super) instances: u64,
    pub(super) length: Duration,
    pub(super) requests: Vec<(Duration, u64, Request)>,
    pub(super) ends: Vec<(Duration, u64, End)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyPlan {
    pub(super) quota: Quota,
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: u64,
    pub(super) cost: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Check,
    /// Gives it back after so long.
    Reserve(Duration),
    Peek,
}

/// How an instance ends. Another takes its place at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Crash,
    Shutdown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// In microseconds, each way.
    fastest: u64,
    slowest: u64,
    /// Percent of messages that are slower.
    spikes: u64,
    slowest_spike: u64,
    pub(super) losses: u64,
}

/// What becomes of a message and its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) there: Duration,
    pub(super) back: Duration,
    pub(super) loses_request: bool,
    pub(super) loses_reply: bool,
    /// Whether the connection says so, or keeps silent.
    pub(super) tells_loss: bool,
}

/// Without the requests, which are many.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            store_is_fast,
            deadline,
            deny_age,
            deny_size,
            keys,
            instances,
            length,
            ends,
            ..
        } = self;
        writeln!(
            f,
            "{:?}, the store's clock is {store_is_fast} ppm fast",
            self.network
        )?;
        writeln!(f, "deadline {deadline:?}, {deny_size} denials for {deny_age:?}")?;
        for plan in &self.policies {
            writeln!(f, "{plan:?}")?;
        }
        let requests = self.requests.len();
        write!(
            f,
            "{requests} requests of {keys} keys at {instances} instances in {length:?}, {ends:?}"
        )
    }
}

impl Network {
    fn draw(rng: &mut Rng, deadline: Duration, is_calm: bool) -> Self {
        let deadline = deadline.as_micros() as u64;
        let slowest = if is_calm {
            deadline / 4
        } else {
            rng.scaled(20, deadline)
        };
        Self {
            fastest: rng.scaled(1, slowest),
            slowest,
            spikes: if is_calm { 0 } else { rng.pick(&[0, 2, 10]) },
            slowest_spike: deadline * 2,
            losses: if is_calm { 0 } else { rng.pick(&[0, 1, 5, 20]) },
        }
    }

    pub(super) fn fate(&self, rng: &mut Rng) -> Fate {
        let mut delay = || match rng.percent(self.spikes) {
            true => rng.micros(0, self.slowest_spike),
            false => Duration::from_micros(rng.scaled(self.fastest, self.slowest)),
        };
        let (there, back) = (delay(), delay());
        Fate {
            there,
            back,
            loses_request: rng.percent(self.losses),
            loses_reply: rng.percent(self.losses),
            tells_loss: rng.percent(50),
        }
    }
}

impl PolicyPlan {
    fn draw(rng: &mut Rng, window: Duration, limit: u64) -> Self {
        let quota = Quota::new(limit, window);
        let quota = match rng.within(0, 6) {
            0 | 1 => quota,
            2 => quota.slots(rng.pick(&[2, 8, 64])),
            3 => quota.fixed_window(),
            4 => quota.fixed_window_per_key(),
            _ => {
                let burst = rng.scaled((limit / 4).max(1), limit);
                Quota::token_bucket(Rate::new(limit, window), burst)
            }
        };
        let lease = rng
            .percent(80)
            .then(|| Lease::new().max_percent(rng.pick(&[5, 10, 30, 60, 100])));
        let longest = (window.as_micros() as u64).clamp(1_000, 1_000_000);
        let lease = lease.map(|lease| match rng.percent(85) {
            true => lease.lifetime(Duration::from_micros(
                rng.scaled(1_000.max(longest / 100), longest),
            )),
            false => lease,
        });
        Self { quota, lease }
    }
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let is_calm = rng.percent(25);
        let window = Duration::from_micros(rng.scaled(10_000, 1_500_000));
        let limit = rng.scaled(20, 2_000);
        let mut policies = vec![PolicyPlan::draw(rng, window, limit)];
        while policies.len() < POLICIES.len() && rng.percent(30) {
            let window = Duration::from_micros(window.as_micros() as u64 * rng.within(1, 40) / 10);
            let limit = (limit * rng.within(5, 40) / 10).max(1);
            policies.push(PolicyPlan::draw(rng, window, limit));
        }
        let deadline = Duration::from_micros(rng.scaled(1_000, 60_000));
        let (keys, instances) = (rng.within(1, 2), rng.within(1, 4));
        // Whether nothing leaves a window before the end, or several windows pass.
        let percent = if rng.percent(20) { 90 } else { rng.within(110, 500) };
        let length = window * percent as u32 / 100;
        let mut this = Self {
            store_starts: Duration::from_secs(1_800_000_000) + rng.micros(0, 2_000_000),
            store_is_fast: if rng.percent(50) {
                rng.pick(&[-500, 500])
            } else {
                rng.within(0, 1_000) as i64 - 500
            },
            network: Network::draw(rng, deadline, is_calm),
            deadline,
            deny_age: Duration::from_micros(rng.scaled(1_000, 1_000_000)),
            deny_size: rng.pick(&[0, 1, 64, 1_024]),
            policies,
            keys,
            instances,
            length,
            requests: Vec::new(),
            ends: Vec::new(),
        };
        if rng.percent(60) {
            this.draw_rush(rng);
        } else {
            this.draw_requests(rng, limit);
        }
        let ends = if is_calm { 0 } else { rng.pick(&[0, 1, 2, 4]) };
        for _ in 0..ends {
            let end = if rng.percent(60) {
                End::Crash
            } else {
                End::Shutdown
            };
            this.ends
                .push((this.some_time(rng), rng.within(1, instances), end));
        }
        this
    }

    fn some_time(&self, rng: &mut Rng) -> Duration {
        rng.micros(0, self.length.as_micros() as u64)
    }

    /// Bursts of one key at one instance, some steady and some at once.
    fn draw_requests(&mut self, rng: &mut Rng, limit: u64) {
        let budget = rng.within(30, 140) as usize;
        // The limit is to be reached with so few.
        let unit = (limit / 60).max(1);
        while self.requests.len() < budget {
            let (key, instance) = (rng.within(1, self.keys), rng.within(1, self.instances));
            let mut at = self.some_time(rng);
            let burst = rng.within(1, 60);
            let length = self.length.as_micros() as u64 * rng.scaled(1, 40) / 100;
            let gap = length / burst * u64::from(!rng.percent(15));
            for _ in 0..burst {
                let cost = match rng.within(0, 9) {
                    0..=5 => unit,
                    6 | 7 => rng.within(1, unit * 3),
                    8 => rng.within(1, (limit / 8).max(1)),
                    _ => 1,
                };
                let kind = match rng.within(0, 19) {
                    0..=2 => Kind::Reserve(Duration::from_micros(
                        rng.scaled(1, self.length.as_micros() as u64),
                    )),
                    3 => Kind::Peek,
                    _ => Kind::Check,
                };
                self.requests.push((at, instance, Request { key, cost, kind }));
                at += rng.micros(gap / 2, gap * 3 / 2);
            }
        }
    }

    /// One instance becomes hot and then slow, so that it spends late what it took early; then all want more than there is for as
    /// long as what it spent counts.
    fn draw_rush(&mut self, rng: &mut Rng) {
        let window = rng.scaled(20_000, 400_000);
        let limit = rng.scaled(64, 400);
        let life = rng.scaled((window / 10).max(1_000), window);
        let percent = rng.pick(&[20, 50, 100]);
        let lease = Lease::new()
            .max_percent(percent)
            .lifetime(Duration::from_micros(life));
        // Or nothing leaves a window before the end, and all that was taken must be accounted for.
        let stretch = if rng.percent(30) { 6 } else { 1 };
        for plan in &mut self.policies {
            *plan = PolicyPlan::draw(rng, Duration::from_micros(window * stretch), limit * stretch);
            plan.lease = Some(lease);
        }
        self.length = Duration::from_micros(window * 7 / 2);
        self.keys = 1;
        let unit = (limit / 40).max(1);
        let first = rng.within(0, window);
        let hot = rng.within(9, 16);
        let slow = rng.within(6, 16);
        let gap = life / 80;
        let mut at = first;
        for request in 0..hot + slow {
            let cost = if request < hot { 1 } else { rng.within(1, 4) };
            self.push(rng, at, 1, cost);
            at += if request < hot {
                rng.within(gap / 2, gap * 3 / 2)
            } else {
                rng.within(life / 16, life / 5)
            };
        }
        let (mut at, end) = (first + rng.within(gap * hot, life), first + life + window * 2);
        let gap = (end - at) / rng.within(60, 130);
        while at < end {
            let instance = rng.within(1, self.instances);
            let cost = match rng.within(0, 2) {
                0 => unit * 2,
                1 => unit,
                _ => 1,
            };
            self.push(rng, at, instance, cost);
            at += rng.within(0, gap * 2);
        }
    }

    fn push(&mut self, rng: &mut Rng, at: u64, instance: u64, cost: u64) {
        let kind = match rng.within(0, 39) {
            0 => Kind::Reserve(Duration::from_micros(
                rng.scaled(1, self.length.as_micros() as u64),
            )),
            1 => Kind::Peek,
            _ => Kind::Check,
        };
        self.requests.push((
            Duration::from_micros(at),
            instance,
            Request { key: 1, cost, kind },
        ));
    }

    /// Whether all that is sent arrives in time, and nobody dies.
    pub(super) fn is_calm(&self) -> bool {
        self.network.losses == 0
            && self.network.spikes == 0
            && self.ends.is_empty()
            && self.network.slowest <= self.deadline.as_micros() as u64 / 4
    }

    pub(super) fn local(&self, seed: u64) -> LocalAnswers {
        LocalAnswers::builder()
            .deny_cache_size(self.deny_size)
            .deny_cache_age(self.deny_age)
            .seed(seed)
            .build()
    }

    pub(super) fn limiter(&self, store: impl Store) -> Limiter {
        let [first, others @ ..] = &*self.policies else {
            unreachable!("there is a first");
        };
        let mut limiter = Limiter::new(store, first.quota)
            .name(POLICIES[0])
            .failure_policy(FailurePolicy::Deny);
        if let Some(lease) = first.lease {
            limiter = limiter.lease(lease);
        }
        for (plan, name) in others.iter().zip(&POLICIES[1..]) {
            let mut policy = Policy::new(*name, plan.quota, key::Global).failure_policy(FailurePolicy::Deny);
            if let Some(lease) = plan.lease {
                policy = policy.lease(lease);
            }
            limiter = limiter.policy(policy);
        }
        limiter
    }
}
