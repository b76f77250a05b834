//! Quotas in words: `100 per minute`, `10/s burst 20`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::ParseErrorKind;
use super::{Kind, MAX_SLOTS, ParseQuotaError, Phase, Quota, QuotaError, Rate};

/// Units of time with their length in microseconds and the words for them, the written one first.
const UNITS: [(u64, &[&str]); 6] = [
    (86_400_000_000, &["day", "days", "d"]),
    (3_600_000_000, &["hour", "hours", "h", "hr"]),
    (60_000_000, &["minute", "minutes", "m", "min"]),
    (1_000_000, &["second", "seconds", "s", "sec"]),
    (1_000, &["millisecond", "milliseconds", "ms"]),
    (1, &["microsecond", "microseconds", "us"]),
];

/// A time in the largest unit that divides it: `minute`, `90 seconds`.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, names) = UNITS
            .into_iter()
            .find(|(length, _)| self.0.is_multiple_of(*length))
            .unwrap_or(UNITS[5]);
        match self.0 / length {
            1 => f.write_str(names[0]),
            count => write!(f, "{count} {}", names[1]),
        }
    }
}

/// A time in the words of quotas.
#[cfg(feature = "serde")]
pub(crate) fn in_words(time: Duration) -> impl fmt::Display {
    Span(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Reads a time in the words of quotas: `minute`, `90 seconds`, `250ms`.
///
/// # Errors
///
/// What is wrong with the text.
#[cfg(feature = "serde")]
pub(crate) fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let parse = || {
        let mut words = Words::new(text);
        let time = words.span()?;
        words.end().map(|()| time)
    };
    parse().map_err(|error| match error {
        ParseErrorKind::Syntax(what) => what,
        ParseErrorKind::Quota(error) => error.message(),
    })
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("unlimited");
        }
        write!(f, "{} per {}", self.limit, Span(self.window))?;
        match self.kind() {
            Kind::Unlimited | Kind::Sliding { slots: 0 } => Ok(()),
            Kind::Sliding { slots } => write!(f, " slots {slots}"),
            Kind::Counter => f.write_str(" sliding counter"),
            Kind::Fixed(Phase::Utc(0)) => f.write_str(" fixed window"),
            Kind::Fixed(Phase::Utc(offset)) => write!(f, " fixed window offset {}", Span(offset)),
            Kind::Fixed(Phase::PerKey) => f.write_str(" fixed window per key"),
            Kind::Bucket { burst } => write!(f, " burst {burst}"),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.units(), Span(self.window_micros()))
    }
}

impl Quota {
    /// The default name of a policy: the quota in words that may stand in a header, `100-per-60s`.
    pub(crate) fn slug(&self) -> String {
        if self.is_unlimited() {
            return "unlimited".to_owned();
        }
        let window = match self.window {
            window if window.is_multiple_of(1_000_000) => format!("{}s", window / 1_000_000),
            window if window.is_multiple_of(1_000) => format!("{}ms", window / 1_000),
            window => format!("{window}us"),
        };
        let words = format!("{} per {window}", self.limit);
        let algorithm = match self.kind() {
            Kind::Fixed(Phase::Utc(offset @ 1..)) => format!(" fixed window offset {offset}us"),
            _ => {
                let text = self.to_string();
                let start = format!("{} per {}", self.limit, Span(self.window));
                text.strip_prefix(&start).unwrap_or_default().to_owned()
            }
        };
        format!("{words}{algorithm}").replace(' ', "-")
    }
}

/// `100/minute`, `5 per 10 seconds`, `10/s burst 20`, `1000/h sliding counter`, `1000/d fixed window`,
/// `1000/d fixed window offset 6 hours`, `100/m fixed window per key`, `50000/h slots 64`, `unlimited`.
/// Units of time are d, h, m, s, ms and us, or their names.
impl FromStr for Quota {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_quota(text).map_err(|kind| ParseQuotaError {
            text: text.chars().take(80).collect(),
            kind,
        })
    }
}

/// `10/s`, `600 per minute`.
impl FromStr for Rate {
    type Err = ParseQuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut words = Words::new(text);
            let (units, window) = words.units_per_window()?;
            words.end()?;
            Ok(Self::try_new(units, window)?)
        };
        parse().map_err(|kind| ParseQuotaError {
            text: text.chars().take(80).collect(),
            kind,
        })
    }
}

impl From<QuotaError> for ParseErrorKind {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}

fn parse_quota(text: &str) -> Result<Quota, ParseErrorKind> {
    let mut words = Words::new(text);
    if words.take("unlimited") {
        words.end()?;
        return Ok(Quota::unlimited());
    }
    let (limit, window) = words.units_per_window()?;
    let quota = if words.take("burst") {
        let burst = words.number("a burst is a whole number")?;
        Quota::try_token_bucket(Rate::try_new(limit, window)?, burst)?
    } else {
        let quota = Quota::try_new(limit, window)?;
        if words.take("slots") {
            let slots = words.number("slots are a whole number")?;
            match u16::try_from(slots) {
                Ok(slots @ 2..=MAX_SLOTS) => quota.slots(slots),
                _ => return Err(ParseErrorKind::Syntax("a sliding window takes 2 to 256 slots")),
            }
        } else if words.take("sliding") {
            if words.take("counter") {
                quota.sliding_counter()
            } else if words.take("window") {
                quota
            } else {
                return Err(ParseErrorKind::Syntax(
                    "after `sliding` comes `window` or `counter`",
                ));
            }
        } else if words.take("fixed") {
            if !words.take("window") {
                return Err(ParseErrorKind::Syntax("after `fixed` comes `window`"));
            }
            if words.take("offset") {
                quota.fixed_window_offset(words.span()?)
            } else if words.take("per") {
                if !words.take("key") {
                    return Err(ParseErrorKind::Syntax("after `fixed window per` comes `key`"));
                }
                quota.fixed_window_per_key()
            } else {
                quota.fixed_window()
            }
        } else {
            quota
        }
    };
    words.end()?;
    Ok(quota)
}

/// The words of a text: runs of digits, runs of letters, and `/`.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            rest: text.trim_start(),
        }
    }

    fn peek(&self) -> &'a str {
        let mut chars = self.rest.chars();
        let class = |c: char| (c.is_ascii_digit() || c == '_', c.is_alphabetic());
        let Some(first) = chars.next() else { return "" };
        if class(first) == (false, false) {
            return &self.rest[..first.len_utf8()];
        }
        let end = self
            .rest
            .find(|c| class(c) != class(first))
            .unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    fn skip(&mut self, word: &str) {
        self.rest = self.rest[word.len()..].trim_start();
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek();
        let same = found.eq_ignore_ascii_case(word);
        if same {
            self.skip(found);
        }
        same
    }

    fn number(&mut self, wanted: &'static str) -> Result<u64, ParseErrorKind> {
        let word = self.peek();
        let digits: String = word.chars().filter(|&c| c != '_').collect();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseErrorKind::Syntax(wanted));
        }
        self.skip(word);
        digits
            .parse()
            .map_err(|_| ParseErrorKind::Syntax("that number is too large"))
    }

    fn units_per_window(&mut self) -> Result<(u64, Duration), ParseErrorKind> {
        let units = self.number("it begins with a whole number of units")?;
        if !self.take("/") && !self.take("per") {
            return Err(ParseErrorKind::Syntax("after the units comes `/` or `per`"));
        }
        Ok((units, self.span()?))
    }

    /// `minute`, `10 seconds`, `500ms`.
    fn span(&mut self) -> Result<Duration, ParseErrorKind> {
        let count = match self.peek().bytes().next() {
            Some(b'0'..=b'9') => self.number("a time is a whole number and a unit")?,
            _ => 1,
        };
        let word = self.peek();
        let (length, _) = UNITS
            .into_iter()
            .find(|(_, names)| names.iter().any(|name| name.eq_ignore_ascii_case(word)))
            .ok_or(ParseErrorKind::Syntax("a unit of time is d, h, m, s, ms or us"))?;
        self.skip(word);
        let micros = count.checked_mul(length);
        let micros = micros.ok_or(ParseErrorKind::Syntax("that time is too long"))?;
        Ok(Duration::from_micros(micros))
    }

    fn end(&self) -> Result<(), ParseErrorKind> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(ParseErrorKind::Syntax("there is something after its end"))
        }
    }
}
