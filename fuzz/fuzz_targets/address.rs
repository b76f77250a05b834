//! What a client sends never decides its address, however the trusted proxy appends to it.

#![no_main]

use std::net::SocketAddr;

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tollgate::key::{ClientIp, ForwardedHeader, KeyBuilder, KeyExtractor, KeyHasher, PeerAddr};

fuzz_target!(|sent: &[u8]| {
    let peer = PeerAddr(SocketAddr::from(([10, 0, 0, 1], 80)));
    for (name, header, written) in [
        (
            "x-forwarded-for",
            ForwardedHeader::XForwardedFor,
            "[2001:db8::9]:80",
        ),
        (
            "forwarded",
            ForwardedHeader::Forwarded,
            "for=\"[2001:db8::9]:80\"",
        ),
    ] {
        let appended = [sent, b", ", written.as_bytes()].concat();
        for value in [HeaderValue::from_bytes(sent), HeaderValue::from_bytes(&appended)] {
            let Ok(value) = value else { return };
            let forwarded = value.as_bytes().len() != sent.len();
            let request = Request::get("/").extension(peer).header(name, value);
            let (parts, ()) = request.body(()).expect("a valid request").into_parts();
            for client in [
                ClientIp::trusted_hops(1),
                ClientIp::trusted_proxies(["10.0.0.0/8"]).expect("a network"),
            ] {
                let client = client.forwarded_header(header.clone()).readable();
                let hasher = KeyHasher::default();
                let mut key = KeyBuilder::new(&hasher);
                client.extract(&parts, &mut key).expect("the peer is known");
                let key = key.finish();
                assert!(!forwarded || key.as_bytes() == b"ip=2001:db8::/64");
            }
        }
    }
});
