//! The generations of the IETF fields.

/// A generation of the IETF's `RateLimit` fields (draft-ietf-httpapi-ratelimit-headers), which changed their form
/// from draft to draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
pub enum Draft {
    /// Drafts up to 06: `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 30` (seconds from
    /// now), and from 04 on `RateLimit-Policy: 100;w=60`.
    V6,
    /// Draft 07 alone: `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Policy: 100;w=60`.
    V7,
    /// Drafts 08 to 11: `RateLimit: "login";r=50;t=30` and `RateLimit-Policy: "login";q=100;w=60`. The default.
    #[default]
    V8,
}
