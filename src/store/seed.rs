//! How the table hashes.

use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// A fast hash that nobody outside can predict: seeded from the operating system's randomness, by way of the standard
/// library's, and not from addresses and times, which is all that the hash draws on by itself.
pub(crate) fn random() -> SeedableRandomState {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let draw = || std::hash::RandomState::new().hash_one(());
    SeedableRandomState::with_seed(draw(), SHARED.get_or_init(|| SharedSeed::from_u64(draw())))
}
