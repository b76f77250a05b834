//! What is counted: keys, and the extractors that make them of requests.
//!
//! | extractor | counts by | value |
//! |---|---|---|
//! | [`PeerIp`] | the address at the other end of the connection | hashed |
//! | [`ClientIp`] | the client's address, as trusted proxies report it | hashed |
//! | [`Address`] | an address that something else has found | hashed |
//! | [`extension()`] | a value in the request's extensions, such as who was authenticated | readable |
//! | [`Header`] | the value of a header field | hashed |
//! | [`Bearer`] | the token in `Authorization` | hashed |
//! | [`Host`] | the host that the request names | readable |
//! | [`MatchedPath`] | the pattern of the matched route | readable |
//! | [`Method`] | the method | readable |
//! | [`Global`] | nothing: all requests together | |
//! | a closure | what it returns | readable |
//!
//! Tuples combine extractors, [`or`](KeyExtractor::or) chooses between them, and
//! [`hashed`](KeyExtractor::hashed) and [`readable`](KeyExtractor::readable) say how values stand in the
//! store.
//!
//! ```
//! use http::request::Parts;
//! use tollgate::key::{self, KeyExtractor};
//!
//! # fn takes(_: impl KeyExtractor) {}
//! // One counter per client and route.
//! let key = (key::PeerIp, key::MatchedPath);
//! # takes(key);
//!
//! // By token where there is one, else by address.
//! let key = key::Bearer.or(key::ClientIp::trusted_hops(1));
//! # takes(key);
//!
//! // Anything that the request tells.
//! let key = |parts: &Parts| parts.uri.query().map(str::to_owned);
//! # takes(key);
//! ```
//!
//! # What to count by
//!
//! Count by what a client cannot choose. An identity that has been verified is best; an address is next. A
//! header value, token or host that nothing has verified is no limit on its own: a client that invents a new
//! one with every request has a new counter with every request. Pair it with a policy by address.
//!
//! An address needs care too. Behind a proxy, [`PeerIp`] sees the proxy; the headers in which proxies report
//! clients are open to everyone, so [`ClientIp`] must know which proxies to trust.
//!
//! # What a store sees
//!
//! Two values have one key only if extractor and value are the same. Keys are short and printable whatever a
//! client sends (see [`Key`]). Addresses, header values and tokens are hashed, by default without a secret:
//! give a [`KeyHasher`] one to make the hashes useless to whoever reads the store.
//!
//! # Requests without a key
//!
//! An extractor that finds nothing to count by says why and what to do about it ([`Missing`]). What then
//! happens to the request is the policy's choice.

mod address;
mod bearer;
mod builder;
mod encoding;
mod extension;
mod extractor;
mod form;
mod global;
mod hasher;
mod header;
mod host;
mod method;
mod missing;
mod or;
#[cfg(test)]
mod properties;
mod route;
mod subject;
#[cfg(test)]
mod testing;

pub use self::address::{
    Address, CidrError, ClientIp, ForwardedHeader, InNetworks, PeerAddr, PeerIp, PeerNetwork,
};
pub use self::bearer::Bearer;
pub use self::builder::{KeyBuilder, Mark};
pub(crate) use self::encoding::same_bytes;
pub use self::extension::{Extension, extension};
pub use self::extractor::KeyExtractor;
pub use self::form::{Hashed, Readable};
pub use self::global::Global;
pub use self::hasher::{KeyHasher, SecretError};
pub use self::header::Header;
pub use self::host::Host;
pub(crate) use self::host::{named_host, normalised_host};
pub use self::method::Method;
pub use self::missing::Missing;
pub use self::or::Or;
pub use self::route::{MatchedPath, Route};
pub(crate) use self::route::{original_path, route_of};
pub use self::subject::{Key, KeyRef};
