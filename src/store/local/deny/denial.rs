//! One denial, and which charges it answers.

use siphasher::sip128::SipHasher13;

use super::words::Reading;
use super::{Charge, Nanos, Stamp};
use crate::store::{KnownOutcome, Wait};

/// Of what is remembered of a denial: whose it is, and what it says.
pub(super) const WORDS: usize = IDENTITY + DENIAL;

/// Words of a policy's name, a quota, and what more there is.
const BEFORE_KEY: usize = 2 + 4;
const KEY: usize = 8;
const IDENTITY: usize = BEFORE_KEY + KEY;
const DENIAL: usize = 9;

/// Which charges a denial answers: those of the same key, policy and quota, all with a penalty or all without.
pub(super) struct Identity<'a> {
    pub(super) charge: &'a Charge<'a>,
    /// Hashes what is too long to be kept, to 128 bits, as keys hash their values.
    pub(super) secret: &'a SipHasher13,
}

#[derive(Clone, Copy)]
pub(super) struct Denial {
    pub(super) sent: Nanos,
    /// From when on it is served: times to be waited are told from here on.
    pub(super) received: Nanos,
    /// Until when it is served.
    pub(super) until: Nanos,
    /// When the charge fits, as it is told to who wants as much or more.
    pub(super) fits: Wait,
    /// The smallest cost that was denied: larger ones are, too.
    pub(super) cost: u64,
    /// When the block ends, as it is told to who wants less, for a block stops all; never, if there is none.
    pub(super) block: Wait,
    /// In microseconds.
    pub(super) reset_after: u64,
    pub(super) remaining: u64,
    /// The store's time of the denial.
    pub(super) now: Stamp,
}

impl Identity<'_> {
    /// Whether something holds of all its words, each with its index: no other identity has the same ones. The first of a key follow
    /// those of the rest, and others than these say nothing.
    #[inline(always)]
    fn all(&self, mut holds: impl FnMut(usize, u64) -> bool) -> bool {
        let Self { charge, secret } = *self;
        let (name, is_hashed) = match charge.policy.short_words() {
            Some(name) => (name, false),
            None => (hash(secret, charge.policy.as_str().as_bytes()), true),
        };
        let key = charge.key.as_bytes();
        let [limit, window, more, form] = charge.quota.words();
        let flags = u64::from(charge.penalty.is_some()) << 1 | u64::from(is_hashed);
        // A key has 256 bytes at most, and of the form's word the lower half is used.
        let form = form | (key.len() as u64) << 32 | flags << 48;
        let rest = holds(0, name[0])
            && holds(1, name[1])
            && holds(2, limit)
            && holds(3, window)
            && holds(4, more)
            && holds(5, form);
        rest && if key.len() <= KEY * 8 {
            let (whole, end) = key.as_chunks();
            let mut whole = (BEFORE_KEY..).zip(whole);
            whole.all(|(index, word)| holds(index, u64::from_le_bytes(*word)))
                && (end.is_empty() || holds(BEFORE_KEY + key.len() / 8, last_word(key, end)))
        } else {
            let [first, second] = hash(secret, key);
            holds(BEFORE_KEY, first) && holds(BEFORE_KEY + 1, second)
        }
    }

    /// Whether it is the one whose the words are.
    #[inline(always)]
    pub(super) fn is(&self, words: &Reading<'_, WORDS>) -> bool {
        self.all(|index, own| own == words.word(index))
    }

    /// The words of its denial.
    pub(super) fn with(&self, denial: &Denial) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        self.all(|index, own| {
            words[index] = own;
            true
        });
        words[IDENTITY..].copy_from_slice(&[
            denial.sent,
            denial.received,
            denial.until,
            denial.fits.to_bits(),
            denial.cost,
            denial.block.to_bits(),
            denial.reset_after,
            denial.remaining,
            denial.now.as_micros(),
        ]);
        words
    }
}

/// The end of some bytes that is not a whole word, with zeros after it.
#[inline(always)]
fn last_word(bytes: &[u8], end: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - end.len())),
        None => end
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[inline(never)]
fn hash(secret: &SipHasher13, text: &[u8]) -> [u64; 2] {
    let hash = secret.hash(text).as_u128();
    [hash as u64, (hash >> 64) as u64]
}

impl Denial {
    #[inline(always)]
    pub(super) fn read(words: &Reading<'_, WORDS>) -> Self {
        let word = |index| words.word(IDENTITY + index);
        Self {
            sent: word(0),
            received: word(1),
            until: Self::until(words),
            fits: Wait::from_bits(word(3)),
            cost: word(4),
            block: Wait::from_bits(word(5)),
            reset_after: word(6),
            remaining: word(7),
            now: Stamp::from_micros(word(8)),
        }
    }

    /// Until when it is served, alone.
    #[inline(always)]
    pub(super) fn until(words: &Reading<'_, WORDS>) -> Nanos {
        words.word(IDENTITY + 2)
    }

    #[inline(always)]
    pub(super) fn is_blocked(&self) -> bool {
        self.block != Wait::NEVER
    }

    /// What it says to a charge, if it is served at a time.
    #[inline(always)]
    pub(super) fn answer(&self, charge: &Charge<'_>, now: Nanos, last_freed: Nanos) -> Option<KnownOutcome> {
        let is_served = (self.received..self.until).contains(&now)
            && self.sent > last_freed
            && (self.is_blocked() || charge.cost >= self.cost);
        if !is_served {
            return None;
        }
        let since = now - self.received;
        let passed = since / 1_000;
        let is_never = charge.quota.limit().is_some_and(|limit| charge.cost > limit);
        let retry = match charge.cost >= self.cost {
            _ if is_never => Wait::NEVER,
            true => self.fits.after(passed),
            false => self.block.after(passed),
        };
        let at = Stamp::from_micros(self.now.as_micros().saturating_add(since.div_ceil(1_000)));
        Some(KnownOutcome {
            granted: false,
            blocked: self.is_blocked(),
            now: at,
            stamp: at,
            remaining: self.remaining,
            retry,
            reset_after: self.reset_after.saturating_sub(passed),
        })
    }

    /// Whether it says all that another one does, and for as long.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.is_blocked() == other.is_blocked() && self.cost <= other.cost && self.until >= other.until
    }
}
