//! Single values of a file.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use http::{HeaderName, Method};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::key::{CidrError, ForwardedHeader, PeerIp};
use crate::policy::{PolicyMode, PolicyName};
use crate::rules::{Rule, RuleError};

/// Whether a setting is not said, so that it need not be written either.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    Cow::deserialize(deserializer)
}

impl Serialize for PolicyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(text(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for PolicyMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for PolicyMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// As the name of the header.
impl Serialize for ForwardedHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Vendor(name) => name.as_str(),
        })
    }
}

impl<'de> Deserialize<'de> for ForwardedHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = header_name(&text(deserializer)?).map_err(de::Error::custom)?;
        Ok(match name.as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Vendor(name),
        })
    }
}

pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text).map_err(|_| format!("`{}` is not the name of a header", shown(text)))
}

/// As much of a text as helps to find it.
pub(super) fn shown(text: &str) -> impl fmt::Display {
    text.chars()
        .take(80)
        .flat_map(char::escape_debug)
        .collect::<String>()
}

/// A value that is one of some words, or a table.
pub(super) struct WordOrTable<T: 'static, Table> {
    words: &'static [(&'static str, T)],
    expected: &'static str,
    table: PhantomData<Table>,
}

impl<T, Table> WordOrTable<T, Table> {
    pub(super) const fn new(words: &'static [(&'static str, T)], expected: &'static str) -> Self {
        Self {
            words,
            expected,
            table: PhantomData,
        }
    }
}

impl<'de, T, Table> Visitor<'de> for WordOrTable<T, Table>
where
    T: Copy,
    Table: Deserialize<'de> + TryInto<T, Error: fmt::Display>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        let found = self.words.iter().find(|(each, _)| *each == word);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table: Table = whole_table(map)?;
        table.try_into().map_err(de::Error::custom)
    }
}

/// What a table says, all of it: one that stands for one of several kinds is read only as far as it names the first.
pub(super) fn whole_table<'de, T, A>(mut map: A) -> Result<T, A::Error>
where
    T: Deserialize<'de>,
    A: MapAccess<'de>,
{
    let value = T::deserialize(MapAccessDeserializer::new(&mut map))?;
    match map.next_key::<String>()? {
        None => Ok(value),
        Some(key) => Err(de::Error::custom(format_args!(
            "unexpected `{}`: this table names one kind, and nothing beside it",
            shown(&key)
        ))),
    }
}

/// A time in the words of quotas.
pub(super) mod time {
    use std::time::Duration;

    use super::{Deserialize, Deserializer, Serialize, Serializer, de, shown, text};
    use crate::quota::{in_words, parse_time};

    #[derive(Clone, Copy)]
    pub(in crate::config) struct Time(pub(in crate::config) Duration);

    impl Serialize for Time {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&in_words(self.0))
        }
    }

    impl<'de> Deserialize<'de> for Time {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = text(deserializer)?;
            parse_time(&text).map(Self).map_err(|what| {
                let shown = shown(&text);
                de::Error::custom(format_args!(
                    "`{shown}` is not a time: {what} (write `5 minutes` or `250 ms`)"
                ))
            })
        }
    }

    pub(in crate::config) mod option {
        use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, Time};

        pub(in crate::config) fn serialize<S: Serializer>(
            time: &Option<Duration>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            time.map(Time).serialize(serializer)
        }

        pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<Time>::deserialize(deserializer)?.map(|time| time.0))
        }
    }
}

/// What texts of a list must be.
pub(super) trait Check {
    type Error: fmt::Display;

    fn check(text: &str) -> Result<(), Self::Error>;
}

pub(super) struct Path;
pub(super) struct Host;
pub(super) struct Network;

impl Check for Path {
    type Error = RuleError;

    fn check(text: &str) -> Result<(), RuleError> {
        Rule::try_path(text).map(drop)
    }
}

impl Check for Host {
    type Error = RuleError;

    fn check(text: &str) -> Result<(), RuleError> {
        Rule::any().try_host(text).map(drop)
    }
}

impl Check for Network {
    type Error = CidrError;

    fn check(text: &str) -> Result<(), CidrError> {
        PeerIp.is_in([text]).map(drop)
    }
}

/// A text that has been checked where it is read, so that its line can be told.
struct Checked<C>(String, PhantomData<C>);

impl<'de, C: Check> Deserialize<'de> for Checked<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        C::check(&text).map_err(de::Error::custom)?;
        Ok(Self(text, PhantomData))
    }
}

/// A list of checked texts.
pub(super) fn texts<'de, C: Check, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let texts: Vec<Checked<C>> = some(deserializer)?;
    Ok(texts.into_iter().map(|text| text.0).collect())
}

/// A list that says something. One that is empty can be meant in two ways: none, and not said.
pub(super) fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        return Err(de::Error::custom("an empty list says nothing: leave it out"));
    }
    Ok(list)
}

/// Methods, by their names.
pub(super) mod methods {
    use super::{Deserialize, Deserializer, Method, Serializer, de, shown, some, text};

    struct Name(Method);

    impl<'de> Deserialize<'de> for Name {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = text(deserializer)?;
            // Methods have a case, and those in use have the upper one.
            let method = Some(&*text).filter(|text| !text.bytes().any(|b| b.is_ascii_lowercase()));
            method
                .and_then(|method| method.parse().ok())
                .map(Self)
                .ok_or_else(|| {
                    de::Error::custom(format_args!(
                        "`{}` is not a method: write `GET` or `POST`, in capitals",
                        shown(&text)
                    ))
                })
        }
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        methods: &[Method],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(methods.iter().map(Method::as_str))
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Method>, D::Error> {
        let names: Vec<Name> = some(deserializer)?;
        Ok(names.into_iter().map(|name| name.0).collect())
    }
}
