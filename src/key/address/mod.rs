//! Keys made of addresses. All of them write the tag `ip`.

mod chain;
mod client;
mod custom;
mod forwarded;
mod membership;
mod network;
mod networks;
mod node;
mod peer;
mod proxies;
mod source;

pub use self::client::ClientIp;
pub use self::custom::Address;
pub use self::membership::InNetworks;
pub use self::networks::CidrError;
pub use self::peer::{PeerAddr, PeerIp, PeerNetwork};
pub use self::source::ForwardedHeader;
