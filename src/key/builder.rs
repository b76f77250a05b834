//! How extractors write keys.

use std::fmt;

use super::encoding::{Buffer, Escape, HASH_MARK, MAX_KEY, MAX_VALUE, escape, is_safe};
use super::hasher::KeyHasher;
use super::subject::Key;

/// Collects the parts of a [`Key`].
///
/// A part is a tag, which says what its value is, and a value, any bytes. Equal tags mean equal things: an
/// extractor of your own should bring tags of its own, such as `billing:account`. The built-in ones use
/// `key`, `ip`, `bearer`, `host`, `method`, `route` and `global`, and everything that starts with `key:`,
/// `ext:`, `header:`, `method:` or `route:`.
///
/// ```
/// use tollgate::key::{KeyBuilder, KeyHasher};
///
/// let hasher = KeyHasher::default();
/// let mut key = KeyBuilder::new(&hasher);
/// key.plain("plan", b"free").hashed("account", b"alice@example.com");
/// assert!(key.finish().as_bytes().starts_with(b"plan=free,account=~"));
/// ```
pub struct KeyBuilder<'a> {
    hasher: &'a KeyHasher,
    /// As far as it is written.
    key: Key,
    form: Option<Form>,
}

/// A position in a [`KeyBuilder`], to return to.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Readable,
    Hashed,
}

impl<'a> KeyBuilder<'a> {
    /// No parts yet.
    #[must_use]
    #[inline]
    pub fn new(hasher: &'a KeyHasher) -> Self {
        Self {
            hasher,
            key: Key::new(Buffer::new()),
            form: None,
        }
    }

    /// Adds a part that may be read in the store. Values over 64 bytes are hashed all the same.
    pub fn plain(&mut self, tag: &str, value: &[u8]) -> &mut Self {
        self.part(tag, value, Form::Readable)
    }

    /// Adds a part that must not be read in the store.
    pub fn hashed(&mut self, tag: &str, value: &[u8]) -> &mut Self {
        self.part(tag, value, Form::Hashed)
    }

    /// Adds all parts of a key.
    pub fn append(&mut self, key: &Key) -> &mut Self {
        if key.as_bytes() == Key::NO_PARTS {
            return self;
        }
        self.separate();
        match self.form {
            Some(Form::Hashed) => {
                let hash = self.hasher.whole(key.as_bytes());
                self.hash(hash);
            }
            Some(Form::Readable) | None => self.encoded().extend_from_slice(key.as_bytes()),
        }
        self
    }

    /// Remembers the parts so far.
    #[must_use]
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.key.as_bytes().len())
    }

    /// Drops every part added since the mark was made.
    pub fn rollback(&mut self, mark: Mark) {
        self.encoded().truncate(mark.0);
    }

    /// The key of all parts.
    #[must_use]
    #[inline]
    pub fn finish(mut self) -> Key {
        self.close();
        self.key
    }

    /// The same where it is, as keys are large. Nothing can be added to it any more.
    #[inline]
    pub(crate) fn key(&mut self) -> &Key {
        self.close();
        &self.key
    }

    #[inline]
    fn close(&mut self) {
        let len = self.encoded().len();
        if len == 0 || len > MAX_KEY {
            self.replace();
        }
    }

    /// Writes what stands for no parts, or for too many.
    #[cold]
    fn replace(&mut self) {
        if self.encoded().is_empty() {
            self.encoded().extend_from_slice(Key::NO_PARTS);
        } else {
            let hash = self.hasher.whole(self.key.as_bytes());
            *self.encoded() = Buffer::new();
            self.hash(hash);
        }
    }

    #[inline]
    const fn encoded(&mut self) -> &mut Buffer {
        self.key.encoded()
    }

    /// Writes what `parts` adds in one form, whatever the extractors prefer. The outermost choice wins, as it
    /// was made last.
    pub(super) fn in_form<T>(&mut self, form: Form, parts: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.form;
        self.form = outer.or(Some(form));
        let result = parts(self);
        self.form = outer;
        result
    }

    /// The form of a part that prefers `preferred`.
    pub(super) fn form(&self, preferred: Form) -> Form {
        self.form.unwrap_or(preferred)
    }

    /// Adds a readable part of short formatted text. The caller has asked [`form`](Self::form).
    pub(super) fn text(&mut self, tag: &str, value: fmt::Arguments<'_>) {
        self.tag(tag);
        // A buffer takes everything.
        let _ = fmt::Write::write_fmt(&mut Escape(self.encoded()), value);
    }

    /// Adds a readable part whose tag comes in two pieces.
    pub(super) fn prefixed(&mut self, prefix: &str, tag: &str, value: &[u8]) {
        if value.len() > MAX_VALUE {
            self.part(&[prefix, tag].concat(), value, Form::Hashed);
            return;
        }
        self.separate();
        escape(self.encoded(), prefix.as_bytes());
        escape(self.encoded(), tag.as_bytes());
        self.encoded().push(b'=');
        escape(self.encoded(), value);
    }

    /// Adds a key as the value of a part.
    pub(super) fn nested(&mut self, tag: &str, key: &Key) {
        if self.form(Form::Readable) == Form::Hashed {
            self.hashed(tag, key.as_bytes());
            return;
        }
        self.tag(tag);
        if let Some(value) = key.bare_value() {
            self.encoded().extend_from_slice(value);
        } else {
            // No written value starts with `=`, so this is not one that looks like a key.
            self.encoded().push(b'=');
            escape(self.encoded(), key.as_bytes());
        }
    }

    fn part(&mut self, tag: &str, value: &[u8], preferred: Form) -> &mut Self {
        self.tag(tag);
        if value.len() > MAX_VALUE || self.form(preferred) == Form::Hashed {
            let hash = self.hasher.part(tag, value);
            self.hash(hash);
        } else {
            escape(self.encoded(), value);
        }
        self
    }

    fn tag(&mut self, tag: &str) {
        self.separate();
        escape(self.encoded(), tag.as_bytes());
        self.encoded().push(b'=');
    }

    /// Adds a part under a short tag that is known to need no escape. For the ordinary key, which has but this one part,
    /// it is to cost little: where tag and length are constants, all lengths are, and what is written is copied once.
    #[inline]
    pub(super) fn hashed_safe<const LENGTH: usize>(&mut self, tag: &'static str, value: &[u8; LENGTH]) {
        debug_assert!(is_safe(tag.as_bytes()), "a tag of our own");
        let mut written = [HASH_MARK; 40];
        let (start, end) = (tag.len() + 2, tag.len() + 24);
        written[..tag.len()].copy_from_slice(tag.as_bytes());
        written[tag.len()] = b'=';
        let place = written[start..]
            .first_chunk_mut()
            .expect("a tag of our own is short");
        self.hasher.write_part(tag, value, place);
        self.separate();
        self.encoded().extend_from_slice(&written[..end]);
    }

    fn separate(&mut self) {
        if !self.encoded().is_empty() {
            self.encoded().push(b',');
        }
    }

    fn hash(&mut self, hash: [u8; 22]) {
        let mut written = [HASH_MARK; 23];
        written[1..].copy_from_slice(&hash);
        self.encoded().extend_from_slice(&written);
    }
}

impl fmt::Debug for KeyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder")
            .field("hasher", self.hasher)
            .field("length", &self.key.as_bytes().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
