//! The scripts, as the server gets them.

use std::sync::LazyLock;

use redis::Cmd;

const NOW: &str = include_str!("../../../lua/now.lua");
const TTL: &str = include_str!("../../../lua/ttl.lua");

/// What scripts include, each after those that include it.
const PARTS: [(&str, &str); 15] = [
    ("several", include_str!("../../../lua/several.lua")),
    ("log_window", include_str!("../../../lua/log_window.lua")),
    ("log_ordinary", include_str!("../../../lua/log_ordinary.lua")),
    ("log_found", include_str!("../../../lua/log_found.lua")),
    ("log_kept", include_str!("../../../lua/log_kept.lua")),
    ("states", include_str!("../../../lua/states.lua")),
    ("value", include_str!("../../../lua/value.lua")),
    ("asks", include_str!("../../../lua/asks.lua")),
    ("penalty", include_str!("../../../lua/penalty.lua")),
    ("log", include_str!("../../../lua/log.lua")),
    ("slots", include_str!("../../../lua/slots.lua")),
    ("counter", include_str!("../../../lua/counter.lua")),
    ("fixed", include_str!("../../../lua/fixed.lua")),
    ("bucket", include_str!("../../../lua/bucket.lua")),
    ("ttl_to", include_str!("../../../lua/ttl_to.lua")),
];

/// A script's text and the hash by which the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// One script for each thing that a store does.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) peek: Script,
    pub(super) settle: Script,
    pub(super) reset: Script,
    pub(super) block: Script,
}

/// How a script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Its hash: the server has it.
    Hash,
    /// Its text: the server had lost it, and keeps it from now on.
    Text,
}

impl Script {
    /// `source` with its includes, among them what tells the time and what makes a TTL of it.
    fn new(source: &str, now: &str, ttl: &str) -> Self {
        let mut text = source.to_owned();
        for (name, part) in PARTS.into_iter().chain([("now", now), ("ttl", ttl)]) {
            text = text.replace(&format!("-- @include {name}.lua\n"), part);
        }
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The beginning of a call, up to the number of keys, with room for so many arguments and their bytes.
    pub(super) fn call(&self, by: By, arguments: usize, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(2 + arguments, 64 + bytes);
        match by {
            By::Hash => command.arg("EVALSHA").arg(&self.hash),
            By::Text => command.arg("EVAL").arg(&self.text),
        };
        command
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl Scripts {
    /// The scripts that decide by the server's clock.
    pub(super) fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Scripts> = LazyLock::new(|| Scripts::with(NOW, TTL));
        &SHIPPED
    }

    /// The same scripts with other lines in `lua/now.lua` and `lua/ttl.lua`: the time stands in a hash, and keys outlive any test.
    #[cfg(feature = "test-util")]
    pub(super) fn with_clock_from_hash(key: &str) -> &'static Self {
        let now = NOW.replace(
            "redis.call('TIME')",
            &format!("redis.call('HMGET', '{key}', 's', 'us')"),
        );
        let ttl = TTL.replace("math.ceil(math.max(ends - now, 0) / 1000) + 10", "600000");
        Box::leak(Box::new(Self::with(&now, &ttl)))
    }

    fn with(now: &str, ttl: &str) -> Self {
        let script = |source| Script::new(source, now, ttl);
        Self {
            acquire: script(include_str!("../../../lua/acquire.lua")),
            peek: script(include_str!("../../../lua/peek.lua")),
            settle: script(include_str!("../../../lua/settle.lua")),
            reset: script(include_str!("../../../lua/reset.lua")),
            block: script(include_str!("../../../lua/block.lua")),
        }
    }

    pub(super) const fn all(&self) -> [&Script; 5] {
        [&self.acquire, &self.peek, &self.settle, &self.reset, &self.block]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_includes_are_found() {
        for script in Scripts::shipped().all() {
            assert!(!script.text.contains("@include"), "{}", script.text);
            assert!(script.text.contains("redis.call('TIME')"));
        }
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn test_scripts_differ_in_clock_and_ttl_alone() {
        let test = Scripts::with_clock_from_hash("clock");
        let clock = (
            "local clock = redis.call('TIME')",
            "local clock = redis.call('HMGET', 'clock', 's', 'us')",
        );
        let ttl = (
            "ttl = string.format('%d', math.ceil(math.max(ends - now, 0) / 1000) + 10)",
            "ttl = string.format('%d', 600000)",
        );
        let mut with_ttl = 0;
        for (shipped, test) in Scripts::shipped().all().into_iter().zip(test.all()) {
            let mut differ: Vec<_> = shipped
                .text
                .lines()
                .zip(test.text.lines())
                .filter(|(shipped, test)| shipped != test)
                .collect();
            // It may stand in two places.
            differ.dedup();
            assert_eq!(shipped.text.lines().count(), test.text.lines().count());
            match &*differ {
                [only] => assert_eq!(*only, clock),
                differ => {
                    assert_eq!(differ, [clock, ttl]);
                    with_ttl += 1;
                }
            }
        }
        assert_eq!(with_ttl, 4, "all but that which resets");
    }
}
