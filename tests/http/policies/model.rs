//! A limiter of several policies that fits on a page.

use std::collections::BTreeMap;

use tollgate::PolicyMode;

/// Exact logs, and nothing else.
pub(super) struct Model {
    pub(super) limits: [u64; 3],
    pub(super) modes: [PolicyMode; 3],
    pub(super) windows: [u64; 3],
    /// Of policy and key: when how many units were charged.
    pub(super) logs: BTreeMap<(usize, usize), Vec<(u64, u64)>>,
}

impl Model {
    pub(super) fn used(&mut self, policy: usize, key: usize, now: u64) -> u64 {
        let window = self.windows[policy];
        let log = self.logs.entry((policy, key)).or_default();
        log.retain(|&(time, _)| now < time + window);
        log.iter().map(|&(_, units)| units).sum()
    }

    pub(super) fn left(&mut self, policy: usize, key: usize, now: u64) -> u64 {
        self.limits[policy].saturating_sub(self.used(policy, key, now))
    }

    pub(super) fn fits(&mut self, policy: usize, key: usize, cost: u64, now: u64) -> bool {
        let used = self.used(policy, key, now);
        if cost == 0 {
            self.limits[policy] > 0
        } else {
            used + cost <= self.limits[policy]
        }
    }

    pub(super) fn charge(&mut self, policy: usize, key: usize, units: u64, time: u64) {
        self.logs.entry((policy, key)).or_default().push((time, units));
    }

    /// Takes back what was charged at a time, all of it or nothing.
    pub(super) fn give_back(&mut self, policy: usize, key: usize, mut units: u64, time: u64) {
        let log = self.logs.entry((policy, key)).or_default();
        let of_then = log.iter_mut().filter(|(at, _)| *at == time);
        let there: u64 = of_then.map(|(_, charged)| *charged).sum();
        if there < units {
            return;
        }
        for (_, charged) in log.iter_mut().filter(|(at, _)| *at == time) {
            let taken = units.min(*charged);
            *charged -= taken;
            units -= taken;
        }
    }
}
