//! What the tests of extractors share.

use http::request::{Builder, Parts};

use super::{KeyBuilder, KeyExtractor, KeyHasher, Missing, PeerAddr};

pub(super) fn parts(request: Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

pub(super) fn peer(address: &str) -> PeerAddr {
    PeerAddr(address.parse().unwrap())
}

pub(super) fn key_of(extractor: &impl KeyExtractor, parts: &Parts) -> Result<String, Missing> {
    let hasher = KeyHasher::default();
    let mut key = KeyBuilder::new(&hasher);
    extractor.extract(parts, &mut key)?;
    Ok(String::from_utf8(key.finish().as_bytes().to_vec()).unwrap())
}
