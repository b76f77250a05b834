//! An instance of a service: a limiter, and the requests that it answers.

use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;
use tollgate::store::{Ask, Charge, Retry};
use tollgate::{Decision, Key, Limiter, PolicyName, Source, Store};

use super::ledger::{Admission, Counter};
use super::network::{Remote, at_once};
use super::scenario::{End, Kind, POLICIES, Request, Scenario};
use super::world::World;

/// One after another in the same place.
pub(super) struct Instance {
    world: World,
    scenario: Arc<Scenario>,
    live: Mutex<Live>,
}

struct Live {
    user: Arc<User>,
    tasks: Vec<AbortHandle>,
}

/// What requests need to be answered.
struct User {
    world: World,
    scenario: Arc<Scenario>,
    instance: u64,
    remote: Remote,
    limiter: Limiter,
}

impl Live {
    fn new(world: &World, scenario: &Arc<Scenario>) -> Self {
        let instance = world.with_ledger(super::ledger::Ledger::new_instance);
        let remote = Remote::new(world, instance, (scenario.local(instance), scenario.deadline));
        Self {
            user: Arc::new(User {
                world: world.clone(),
                scenario: Arc::clone(scenario),
                instance,
                limiter: scenario.limiter(remote.clone()),
                remote,
            }),
            tasks: Vec::new(),
        }
    }
}

impl Instance {
    pub(super) fn new(world: &World, scenario: &Arc<Scenario>) -> Self {
        Self {
            world: world.clone(),
            scenario: Arc::clone(scenario),
            live: Mutex::new(Live::new(world, scenario)),
        }
    }

    pub(super) fn request(&self, request: Request) {
        let mut live = self.live.lock().expect("nobody panics with it");
        let user = Arc::clone(&live.user);
        let task = tokio::spawn(async move { user.request(request).await });
        live.tasks.push(task.abort_handle());
    }

    pub(super) fn end(&self, end: End) {
        let mut live = self.live.lock().expect("nobody panics with it");
        let Live { user, tasks } = std::mem::replace(&mut *live, Live::new(&self.world, &self.scenario));
        if let End::Crash = end {
            user.remote.die();
            tasks.iter().for_each(AbortHandle::abort);
        }
        user.note_stats();
        if let End::Shutdown = end {
            tokio::spawn(async move { user.limiter.shutdown().await });
        }
    }
}

impl User {
    fn note_stats(&self) {
        let stats = self.remote.local().stats();
        self.world.with_ledger(|ledger| ledger.add_stats(stats));
    }

    fn key_of(&self, policy: usize, key: u64) -> Key {
        // All share the second policy's one counter.
        Key::from(if policy == 1 { 0 } else { key })
    }

    async fn request(&self, request: Request) {
        let Request { key, cost, kind } = request;
        let keys = [0, 1, 2].map(|policy| self.key_of(policy, key));
        let key_of = |policy: &str| match policy {
            "first" => &keys[0],
            "second" => &keys[1],
            _ => &keys[2],
        };
        match kind {
            Kind::Check => {
                let decision = self.limiter.check_keys(cost, key_of).await;
                self.note(&decision, request);
            }
            Kind::Reserve(wait) => match self.limiter.reserve_keys(cost, key_of).await {
                Ok(handle) => {
                    let admitted = self.note(handle.decision(), request);
                    let world = self.world.clone();
                    let runtime = tokio::runtime::Handle::current();
                    let remote = self.remote.clone();
                    self.world.after(wait, move || {
                        if remote.is_dead() {
                            return;
                        }
                        let now = world.store_now();
                        world.with_ledger(|ledger| ledger.refund(&admitted, now));
                        let _runtime = runtime.enter();
                        handle.give_back();
                    });
                }
                Err(decision) => drop(self.note(&decision, request)),
            },
            Kind::Peek => {
                let first = self.limiter.only("first").expect("it is there");
                let peeked = first.peek(&keys[0]).await;
                let is_asked = matches!(peeked.source(), Source::Store) || peeked.is_degraded();
                self.world.with_ledger(|ledger| {
                    ledger.claim(is_asked, || format!("a peek was answered by {peeked:?}"));
                });
            }
        }
    }

    /// Writes down what was admitted, and looks at what was denied. Returns the places of admissions.
    fn note(&self, decision: &Decision, request: Request) -> Vec<(Counter, usize)> {
        let Request { key, cost, .. } = request;
        self.world.with_ledger(|ledger| ledger.count(decision));
        if decision.source() == Source::DenyCache {
            self.examine_denial(decision, request);
        }
        if !decision.is_allowed() {
            return Vec::new();
        }
        let at = match decision.source() {
            // Decided there and then; the network is nobody's affair.
            Source::Store => decision.now().as_micros(),
            Source::Lease => self.world.store_now(),
            source => {
                self.world
                    .with_ledger(|ledger| ledger.claim(false, || format!("{source:?} allowed something")));
                return Vec::new();
            }
        };
        let mut places = Vec::new();
        for policy in 0..self.scenario.policies.len() {
            let counter = Counter::new(&self.key_of(policy, key), policy);
            let place = self
                .world
                .with_ledger(|ledger| ledger.admit(&counter, Admission::new(at, cost)));
            places.push((counter, place));
        }
        places
    }

    /// What the deny cache said must be so, unless something came back lately that this instance cannot know of.
    fn examine_denial(&self, decision: &Decision, Request { key, cost, .. }: Request) {
        let now = self.world.now();
        let age = self.world.deny_age();
        for violated in decision.violated() {
            let policy = POLICIES
                .iter()
                .position(|name| violated.name().as_str() == *name)
                .expect("one of them");
            let (key, name) = (
                self.key_of(policy, key),
                PolicyName::new(POLICIES[policy]).expect("a name"),
            );
            let charge = [Charge::new(&key, &name, self.scenario.policies[policy].quota).cost(cost)];
            let truth = at_once(self.world.store().peek(&Ask::new(&charge))).states[0].retry;
            let counter = Counter::new(&key, policy);
            self.world.with_ledger(|ledger| {
                if ledger.was_freed(&counter, (now, age), self.instance) {
                    return;
                }
                let told = violated.retry();
                let is_so = match (told, truth) {
                    (Retry::After(told), Retry::After(truth)) => {
                        // The request's way there and back, and what the clocks differ.
                        told <= truth + self.scenario.deadline + self.world.late() + told / 1_000
                    }
                    (told, truth) => told == truth,
                };
                ledger.claim(is_so, || {
                    format!("at {now:?} the deny cache told {told:?} of {counter:?}, cost {cost}, which is {truth:?}")
                });
            });
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Ok(live) = self.live.lock() {
            live.user.note_stats();
        }
    }
}
