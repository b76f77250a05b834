//! What a counter is called in Redis.

use smallvec::SmallVec;

use crate::algorithm::Terms;
use crate::quota::Layout;
use crate::store::Charge;

/// What the layout of keys and values is called. Another layout is another number, so that versions of this crate that
/// run side by side never read each other's counters.
const SCHEMA: &str = "1";

/// The name of a counter: `prefix:schema:{subject}:policy:`, then a letter for the layout and the window in microseconds, such
/// as `tollgate:1:{ip=203.0.113.7}:100-per-60s:l60000000`; slots have their number before the window, fixed windows their
/// offset after it: `s64/60000000`, `f60000000+0`. Names up to this size do not allocate.
pub(super) type CounterKey = SmallVec<[u8; 80]>;

/// Writes the identity of a counter. The subject is the hash tag, which places all of its counters in one slot of a
/// cluster; a [`Key`](crate::Key) has no braces.
///
/// And how long the last part is, with its colon.
pub(super) fn counter_key(prefix: &str, charge: &Charge<'_>, terms: &Terms) -> (CounterKey, usize) {
    let mut key = start(prefix, charge);
    let before = key.len();
    let (layout, first, then) = match terms.layout {
        Layout::Log => (b'l', terms.window, None),
        Layout::Slots(slots) => (b's', slots.into(), Some((b'/', terms.window))),
        Layout::Counter => (b'c', terms.window, None),
        Layout::Fixed => (b'f', terms.window, Some((b'+', terms.offset))),
        Layout::FixedPerKey => (b'p', terms.window, None),
        Layout::Bucket => (b'b', terms.window, None),
    };
    key.extend_from_slice(&[b':', layout]);
    push_number(&mut key, first);
    if let Some((separator, number)) = then {
        key.push(separator);
        push_number(&mut key, number);
    }
    let last = key.len() - before;
    (key, last)
}

/// Whether a counter's name is that of this subject and policy, with a last part of so many bytes.
pub(super) fn is_of(key: &[u8], prefix: &str, charge: &Charge<'_>, last: usize) -> bool {
    let (subject, policy) = (charge.key.as_bytes(), charge.policy.as_str().as_bytes());
    // Prefix, schema and what stands between the parts are those of all names of a store.
    let subject_at = prefix.len() + SCHEMA.len() + 3;
    let policy_at = subject_at + subject.len() + 2;
    key.len() == policy_at + policy.len() + last
        && key[subject_at..].starts_with(subject)
        && key[policy_at..].starts_with(policy)
        && key[policy_at - 2..].starts_with(b"}:")
}

/// Writes where the state of a charge's penalty is: beside its counters, as `tollgate:1:{ip=203.0.113.7}:login:penalty`.
pub(super) fn penalty_key(prefix: &str, charge: &Charge<'_>) -> CounterKey {
    let mut key = start(prefix, charge);
    key.extend_from_slice(b":penalty");
    key
}

/// What a counter's name says of its subject and its policy.
pub(super) fn subject_and_policy(key: &[u8]) -> Option<(&[u8], &str)> {
    let (_, rest) = split_once(key, b'{')?;
    let (subject, rest) = split_once(rest, b'}')?;
    let rest = rest.strip_prefix(b":")?;
    let end = rest.iter().rposition(|&byte| byte == b':')?;
    Some((subject, str::from_utf8(&rest[..end]).ok()?))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|&byte| byte == at)?;
    Some((&text[..index], &text[index + 1..]))
}

/// What the names of all counters of a subject and policy begin with.
fn start(prefix: &str, charge: &Charge<'_>) -> CounterKey {
    let mut key = CounterKey::new();
    let parts: [&[u8]; 7] = [
        prefix.as_bytes(),
        b":",
        SCHEMA.as_bytes(),
        b":{",
        charge.key.as_bytes(),
        b"}:",
        charge.policy.as_str().as_bytes(),
    ];
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// In decimal. What formats text would take half of the time that a name takes.
fn push_number(key: &mut CounterKey, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    key.extend_from_slice(&digits[start..]);
}

/// The slot of a Redis cluster that a counter lives in: CRC-16 (XMODEM) of its hash tag, modulo 16 384, as the
/// [cluster specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/) has it.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key
        .iter()
        .position(|&byte| byte == b'{')
        .map(|open| &key[open + 1..])
        .and_then(|rest| {
            let close = rest.iter().position(|&byte| byte == b'}')?;
            (close > 0).then(|| &rest[..close])
        });
    crc16(tag.unwrap_or(key)) % 16_384
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, PolicyName, Quota};

    fn key_of(quota: Quota) -> String {
        let (subject, policy) = (Key::from("a"), PolicyName::new("api").unwrap());
        let charge = Charge::new(&subject, &policy, quota);
        let terms = Terms::new(&quota, || 0).unwrap();
        String::from_utf8(counter_key("tollgate", &charge, &terms).0.to_vec()).unwrap()
    }

    #[test]
    fn a_name_tells_subject_policy_layout_and_window() {
        assert_eq!(key_of(Quota::per_minute(9)), "tollgate:1:{key=a}:api:l60000000");
        assert_eq!(key_of(Quota::per_minute(8)), key_of(Quota::per_minute(9)));
        assert_eq!(
            key_of(Quota::per_second(9).slots(16)),
            "tollgate:1:{key=a}:api:s16/1000000"
        );
        assert_eq!(
            key_of(Quota::per_second(9).fixed_window()),
            "tollgate:1:{key=a}:api:f1000000+0"
        );
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let (subject, policy) = (Key::from("{a}:b"), PolicyName::new("v1/api:read").unwrap());
        for quota in [
            Quota::per_second(9),
            Quota::per_second(9).slots(16),
            Quota::per_second(9).fixed_window(),
        ] {
            let charge = Charge::new(&subject, &policy, quota);
            let terms = Terms::new(&quota, || 0).unwrap();
            let (key, last) = counter_key("toll:gate", &charge, &terms);
            assert_eq!(
                subject_and_policy(&key),
                Some((subject.as_bytes(), policy.as_str()))
            );
            assert!(is_of(&key, "toll:gate", &charge, last));
            let others = ["v1/api", "v1/api:read:l1", "v1/api:rea", "v1/api:road"]
                .map(|name| PolicyName::new(name).unwrap());
            for other in &others {
                assert!(!is_of(
                    &key,
                    "toll:gate",
                    &Charge::new(&subject, other, quota),
                    last
                ));
            }
            for other in [Key::from("{a}:"), Key::from("{a}:c"), Key::from("b")] {
                assert!(!is_of(
                    &key,
                    "toll:gate",
                    &Charge::new(&other, &policy, quota),
                    last
                ));
            }
        }
        assert_eq!(subject_and_policy(b"tollgate:1:{a"), None);
    }

    #[test]
    fn a_penalty_has_a_name_beside_its_counters() {
        let (subject, policy) = (Key::from("a"), PolicyName::new("api").unwrap());
        let charge = Charge::new(&subject, &policy, Quota::per_minute(9));
        assert_eq!(
            *penalty_key("tollgate", &charge),
            *b"tollgate:1:{key=a}:api:penalty"
        );
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 60_000_000, u64::MAX] {
            let mut key = CounterKey::new();
            push_number(&mut key, number);
            assert_eq!(*key, *number.to_string().as_bytes());
        }
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"a{foo}b"), 12_182);
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") % 16_384);
    }
}
