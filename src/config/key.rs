//! Keys by name.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::allowed::Allowed;
use super::custom::CustomKeys;
use super::value::{header_name, shown, some, whole_table};
use crate::key::{self, ClientIp, KeyExtractor, PeerNetwork};

/// What a policy counts by.
///
/// | in a file | extractor |
/// |---|---|
/// | `"global"` | [`key::Global`] |
/// | `"peer-ip"` | [`key::PeerIp`] |
/// | `"client-ip"` | [`key::ClientIp`], as [`LayerConfig::client_ip`](super::LayerConfig::client_ip) says |
/// | `"header:x-api-key"` | [`key::Header`] |
/// | `"bearer"` | [`key::Bearer`] |
/// | `"host"` | [`key::Host`] |
/// | `"method"` | [`key::Method`] |
/// | `"route"` | [`key::MatchedPath`] |
/// | `"custom:account"` | one of the program's [`CustomKeys`] |
/// | `["client-ip", "route"]` | all of them together: a tuple |
/// | `{ any = ["bearer", "client-ip"] }` | the first that the request has: [`KeyExtractor::or`] |
/// | `{ hashed = "route" }`, `{ readable = "peer-ip" }` | how values stand in the store: [`KeyExtractor::hashed`], [`readable`](KeyExtractor::readable) |
///
/// **Clients choose headers, tokens and hosts**: beside a policy by one that nothing has verified belongs one by address.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyConfig(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Plain(Plain),
    Header(HeaderName),
    Custom(String),
    /// Not empty.
    All(Vec<KeyConfig>),
    Combined(Combined),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Global,
    PeerIp,
    ClientIp,
    Bearer,
    Host,
    Method,
    Route,
}

const PLAIN: [(&str, Plain); 7] = [
    ("global", Plain::Global),
    ("peer-ip", Plain::PeerIp),
    ("client-ip", Plain::ClientIp),
    ("bearer", Plain::Bearer),
    ("host", Plain::Host),
    ("method", Plain::Method),
    ("route", Plain::Route),
];

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Combined {
    /// Not empty.
    Any(#[serde(deserialize_with = "some")] Vec<KeyConfig>),
    Hashed(Box<KeyConfig>),
    Readable(Box<KeyConfig>),
}

/// What keys are found by, beside the request.
pub(super) struct Finders<'a> {
    pub(super) peer: PeerNetwork,
    pub(super) client: Option<ClientIp>,
    pub(super) custom: &'a CustomKeys,
}

type Extractor = Arc<dyn KeyExtractor>;

impl KeyConfig {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, plain)) = PLAIN.into_iter().find(|(name, _)| *name == text) {
            return Ok(Self(Kind::Plain(plain)));
        }
        match text.split_once(':') {
            Some(("header", name)) => header_name(name).map(|name| Self(Kind::Header(name))),
            Some(("custom", name)) if !name.is_empty() => Ok(Self(Kind::Custom(name.to_owned()))),
            _ => Err(format!(
                "`{}` is not a key: write {}, `header:` and a header's name, `custom:` and a name that the program \
                 knows, a list of keys, or `{{ any = [..] }}`",
                shown(text),
                PLAIN.map(|(name, _)| format!("`{name}`")).join(", ")
            )),
        }
    }

    pub(super) fn extractor(&self, finders: &Finders<'_>) -> Result<Extractor, String> {
        Ok(match &self.0 {
            Kind::Plain(Plain::Global) => Arc::new(key::Global),
            Kind::Plain(Plain::PeerIp) => Arc::new(finders.peer),
            Kind::Plain(Plain::ClientIp) => match &finders.client {
                Some(client) => Arc::new(client.clone()),
                None => return Err(NO_CLIENT_IP.to_owned()),
            },
            Kind::Plain(Plain::Bearer) => Arc::new(key::Bearer),
            Kind::Plain(Plain::Host) => Arc::new(key::Host),
            Kind::Plain(Plain::Method) => Arc::new(key::Method),
            Kind::Plain(Plain::Route) => Arc::new(key::MatchedPath),
            Kind::Header(name) => Arc::new(key::Header::new(name.clone())),
            Kind::Custom(name) => finders.custom.get(name)?,
            Kind::All(keys) => join(keys, finders, |all, next| Arc::new((all, next)))?,
            Kind::Combined(Combined::Any(keys)) => {
                join(keys, finders, |first, next| Arc::new(first.or(next)))?
            }
            Kind::Combined(Combined::Hashed(key)) => Arc::new(key.extractor(finders)?.hashed()),
            Kind::Combined(Combined::Readable(key)) => Arc::new(key.extractor(finders)?.readable()),
        })
    }

    /// The extractor, with values that are not counted.
    pub(super) fn allowing(&self, values: &[String], key: Extractor) -> Result<Allowed, String> {
        if !self.is_one_value() {
            return Err(
                "only keys by a header, `bearer`, `host` or `custom:..` can be allowed: for others, use `skip-when`"
                    .to_owned(),
            );
        }
        let values: Result<HashSet<_>, String> = values.iter().map(|value| Allowed::value(value)).collect();
        Ok(Allowed::new(key, values?))
    }

    fn is_one_value(&self) -> bool {
        match &self.0 {
            Kind::Plain(Plain::Bearer | Plain::Host) | Kind::Header(_) | Kind::Custom(_) => true,
            Kind::Combined(Combined::Hashed(key) | Combined::Readable(key)) => key.is_one_value(),
            Kind::Plain(_) | Kind::All(_) | Kind::Combined(Combined::Any(_)) => false,
        }
    }
}

pub(super) const NO_CLIENT_IP: &str = "the key `client-ip` needs a section `client-ip` of the layer that says which proxies to \
                            trust; without a proxy in front, use `peer-ip`";

fn join(
    keys: &[KeyConfig],
    finders: &Finders<'_>,
    two: impl Fn(Extractor, Extractor) -> Extractor,
) -> Result<Extractor, String> {
    let mut joined: Option<Extractor> = None;
    for key in keys {
        let next = key.extractor(finders)?;
        joined = Some(match joined {
            Some(joined) => two(joined, next),
            None => next,
        });
    }
    joined.ok_or_else(|| "an empty list of keys counts by nothing".to_owned())
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PLAIN.iter().find(|(_, plain)| plain == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl Serialize for KeyConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Kind::Plain(plain) => serializer.collect_str(plain),
            Kind::Header(name) => serializer.collect_str(&format_args!("header:{name}")),
            Kind::Custom(name) => serializer.collect_str(&format_args!("custom:{name}")),
            Kind::All(keys) => keys.serialize(serializer),
            Kind::Combined(combined) => combined.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for KeyConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = KeyConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key such as `peer-ip` or `header:x-api-key`, a list of keys, or `{ any = [..] }`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<KeyConfig, E> {
        KeyConfig::parse(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, keys: A) -> Result<KeyConfig, A::Error> {
        let keys = some(SeqAccessDeserializer::new(keys))?;
        Ok(KeyConfig(Kind::All(keys)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KeyConfig, A::Error> {
        let combined = whole_table(map)?;
        Ok(KeyConfig(Kind::Combined(combined)))
    }
}

/// As in a file of JSON.
impl fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Plain(plain) => write!(f, "\"{plain}\""),
            Kind::Header(name) => write!(f, "\"header:{name}\""),
            Kind::Custom(name) => write!(f, "\"custom:{}\"", name.escape_debug()),
            Kind::All(keys) => keys.fmt(f),
            Kind::Combined(Combined::Any(keys)) => f.debug_map().entry(&"any", keys).finish(),
            Kind::Combined(Combined::Hashed(key)) => f.debug_map().entry(&"hashed", key).finish(),
            Kind::Combined(Combined::Readable(key)) => f.debug_map().entry(&"readable", key).finish(),
        }
    }
}

#[cfg(test)]
mod tests;
