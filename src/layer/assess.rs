//! From a request to what there is to say to it.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use http::request::Parts;
use smallvec::SmallVec;

use super::config::Config;
use super::waiting::{Awaited, Waiting};
use crate::charge::ChargeHandle;
use crate::deciding::{Asked, Decided};
use crate::decision::{Decision, Exemptions, Source};
use crate::engine::decision_of;
use crate::exemption::{ExemptReason, Exemption};
use crate::handling::Handling;
use crate::headers::Note;
use crate::key::{Key, KeyBuilder};
use crate::policy::{Policy, PolicyName, Taken, Untaken};
use crate::rejection::{Rejection, RejectionKind};
use crate::settler::Age;
use crate::store::Charge;

type AllCounted<'a> = SmallVec<[Counted<'a>; 4]>;

/// What one of several policies takes of a request.
struct Counted<'a> {
    policy: &'a Policy,
    taken: Taken,
    key: Key,
}

impl Counted<'_> {
    fn charge(&self) -> Charge<'_> {
        self.policy.charge_taken(self.taken, &self.key)
    }

    const fn handling(&self) -> Handling<'_> {
        self.policy.handling()
    }
}

/// What a layer has to say to a request before its service is called.
#[allow(
    clippy::large_enum_variant,
    reason = "it is matched where it is made, and waiting requests are boxed then"
)]
pub(crate) enum Assessment {
    Pass(Passed),
    Refuse(Rejection),
    /// It has to wait for the store.
    Wait(Waiting),
}

/// What is left to do when a request that passes has its response.
pub(crate) struct Passed {
    pub(crate) note: Note,
    /// If the response can tell what the request cost.
    pub(crate) settling: Option<ChargeHandle>,
}

impl Config {
    #[inline]
    pub(crate) fn assess(&self, request: &mut Parts) -> Assessment {
        let started = self.hook.called.is_some().then(Instant::now);
        if let Some(reason) = self.exempts(request) {
            return self.exempt(request, Exemption::of_all(reason), started);
        }
        let Some(policy) = self.policies.only() else {
            return self.assess_all(request, started);
        };
        let mut key = KeyBuilder::new(&self.hasher);
        match policy.take(request, &mut key) {
            Ok(taken) => self.assess_one(request, (policy, taken, key), started),
            Err(Untaken::Exempt(reason)) => {
                self.exempt(request, Exemption::of(policy.name.copied(), reason), started)
            }
            Err(Untaken::Refuse(status)) => {
                let exemption = Exemption::of(policy.name.copied(), ExemptReason::MissingKey);
                self.refuse(request, status, vec![exemption], started)
            }
        }
    }

    /// Nearly all requests, spared what several policies need.
    #[inline]
    fn assess_one(
        &self,
        request: &mut Parts,
        (policy, taken, mut key): (&Policy, Taken, KeyBuilder<'_>),
        started: Option<Instant>,
    ) -> Assessment {
        let (charge, handling) = (policy.charge_taken(taken, key.key()), policy.handling());
        let age = self.age();
        let mut decision = match self.engine.answer_one(&charge, &handling) {
            Ok((known, source)) if known.granted && self.is_told_no_further(started) => {
                let note = self.headers.note_of_grant(&charge, &known);
                if self.decision_extension {
                    request
                        .extensions
                        .insert(Decision::of_known(&charge, &known, source));
                }
                return Assessment::Pass(Passed { note, settling: None });
            }
            Ok((known, source)) => decision_of(&charge, &known, source),
            Err(learns) => {
                let failure = handling.failure;
                match self.engine.ask_one(&charge, learns) {
                    Ok(answer) => self.engine.conclude_one(&charge, failure, learns, answer),
                    Err(answer) => {
                        let asked = Asked {
                            answer,
                            failure,
                            learns,
                        };
                        let awaited = Awaited::One(asked, taken, key.finish());
                        return Assessment::Wait(Waiting {
                            awaited,
                            age,
                            started,
                        });
                    }
                }
            }
        };
        self.conclude(request, &[charge], &mut decision, Exemptions::new(), age, started)
    }

    #[inline(never)]
    fn assess_all(&self, request: &mut Parts, started: Option<Instant>) -> Assessment {
        let (mut counted, mut exemptions) = (AllCounted::new(), Exemptions::new());
        if let Err(status) = self.take(request, &mut counted, &mut exemptions) {
            return self.refuse(request, status, exemptions, started);
        }
        let charges: SmallVec<[Charge<'_>; 4]> = counted.iter().map(Counted::charge).collect();
        let handlings: SmallVec<[Handling<'_>; 4]> = counted.iter().map(Counted::handling).collect();
        self.decide(request, &charges, &handlings, exemptions, started)
    }

    #[inline(never)]
    fn exempt(&self, request: &mut Parts, exemption: Exemption, started: Option<Instant>) -> Assessment {
        self.decide(request, &[], &[], vec![exemption], started)
    }

    /// Refuses a request without a key.
    #[cold]
    fn refuse(
        &self,
        request: &Parts,
        status: StatusCode,
        exemptions: Exemptions,
        started: Option<Instant>,
    ) -> Assessment {
        if started.is_some() {
            let mut decision = Decision::without_key();
            decision.set_exemptions(exemptions);
            self.tell_hook(request, &[], &decision, Some(RejectionKind::MissingKey), started);
        }
        Assessment::Refuse(Rejection::missing_key(status))
    }

    fn decide(
        &self,
        request: &mut Parts,
        charges: &[Charge<'_>],
        handlings: &[Handling<'_>],
        exemptions: Exemptions,
        started: Option<Instant>,
    ) -> Assessment {
        let age = self.age();
        match self.engine.decide(charges, handlings) {
            Decided::Now(mut decision) => {
                self.conclude(request, charges, &mut decision, exemptions, age, started)
            }
            Decided::Later(deciding) => Assessment::Wait(Waiting {
                awaited: Awaited::Several(deciding, exemptions),
                age,
                started,
            }),
        }
    }

    #[inline]
    fn age(&self) -> Age {
        match self.hands_out_charges() {
            true => self.engine.settler.resets.age(),
            false => Age::default(),
        }
    }

    /// Whether nobody is told of a request that passes but its handler and its client, and no more than numbers.
    #[inline]
    fn is_told_no_further(&self, started: Option<Instant>) -> bool {
        started.is_none() && !self.hands_out_charges() && !self.headers.lists_policies()
    }

    /// What the policies take of a request, and which do not count it.
    ///
    /// # Errors
    ///
    /// The status to refuse the request with, as it has no key.
    fn take<'a>(
        &'a self,
        request: &Parts,
        counted: &mut AllCounted<'a>,
        exemptions: &mut Exemptions,
    ) -> Result<(), StatusCode> {
        for policy in self.policies.of(request) {
            let mut key = KeyBuilder::new(&self.hasher);
            match policy.take(request, &mut key) {
                Ok(taken) => counted.push(Counted {
                    policy,
                    taken,
                    key: key.finish(),
                }),
                Err(Untaken::Exempt(reason)) => exemptions.push(Exemption::of(policy.name.copied(), reason)),
                Err(Untaken::Refuse(status)) => {
                    exemptions.push(Exemption::of(policy.name.copied(), ExemptReason::MissingKey));
                    return Err(status);
                }
            }
        }
        Ok(())
    }

    /// What would be decided on a request. Nothing is charged.
    pub(super) async fn peek(&self, request: &Parts) -> Result<Decision, Rejection> {
        let (mut counted, mut exemptions) = (AllCounted::new(), Exemptions::new());
        match self.exempts(request) {
            Some(reason) => exemptions.push(Exemption::of_all(reason)),
            None => self
                .take(request, &mut counted, &mut exemptions)
                .map_err(Rejection::missing_key)?,
        }
        let charges: SmallVec<[Charge<'_>; 4]> = counted.iter().map(Counted::charge).collect();
        let handlings: SmallVec<[Handling<'_>; 4]> = counted.iter().map(Counted::handling).collect();
        let mut decision = match self.engine.peek(&charges, &handlings) {
            Decided::Now(decision) => decision,
            Decided::Later(deciding) => deciding.await,
        };
        decision.set_exemptions(exemptions);
        Ok(decision)
    }

    /// What there is to say to a request that is exempt before anything was looked up.
    pub(crate) fn assess_before_lookups(&self, request: &mut Parts) -> Option<Assessment> {
        let started = self.hook.called.is_some().then(Instant::now);
        let reason = self.exempts(request)?;
        Some(self.exempt(request, Exemption::of_all(reason), started))
    }

    /// Adds to a decision what the store knows nothing of, and tells the hook and, if the request passes, its handler. It is
    /// taken if somebody keeps it.
    #[inline]
    pub(super) fn conclude(
        &self,
        request: &mut Parts,
        charges: &[Charge<'_>],
        decision: &mut Decision,
        exemptions: Exemptions,
        age: Age,
        started: Option<Instant>,
    ) -> Assessment {
        decision.set_exemptions(exemptions);
        if started.is_some() {
            let rejection = (!decision.is_allowed()).then(|| RejectionKind::of(decision));
            self.tell_hook(request, charges, decision, rejection, started);
        }
        if !decision.is_allowed() {
            return Assessment::Refuse(Rejection::of(mem::replace(decision, Decision::exempt())));
        }
        let charge = self.hands_out_charges().then(|| {
            let real_cost = |name: &PolicyName| self.real_cost(request, name);
            ChargeHandle::new(Arc::clone(&self.engine), charges, decision, age, real_cost)
        });
        let note = self.headers.note(decision);
        self.tell(request, decision, charge.as_ref());
        Assessment::Pass(Passed {
            note,
            settling: charge.filter(|_| self.settles),
        })
    }

    #[cold]
    fn tell_hook(
        &self,
        request: &Parts,
        charges: &[Charge<'_>],
        decision: &Decision,
        rejection: Option<RejectionKind>,
        started: Option<Instant>,
    ) {
        let elapsed = started.map(|started| started.elapsed()).unwrap_or_default();
        self.hook
            .tell(decision, rejection, charges, Some(request), elapsed);
    }

    /// Tells the handler what was decided. That nothing limits the request is told only if no other layer has found that
    /// something does.
    #[inline]
    fn tell(&self, request: &mut Parts, decision: &mut Decision, charge: Option<&ChargeHandle>) {
        let extensions = &mut request.extensions;
        let is_news = decision.source() != Source::Exempt || extensions.get::<Decision>().is_none();
        if self.charge_extension
            && let Some(charge) = charge
            && (is_news || extensions.get::<ChargeHandle>().is_none())
        {
            extensions.insert(charge.clone());
        }
        if self.decision_extension && is_news {
            extensions.insert(mem::replace(decision, Decision::exempt()));
        }
    }
}
