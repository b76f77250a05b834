//! `google.rpc.Status` with a `google.rpc.RetryInfo`, as gRPC's error model puts it into `grpc-status-details-bin`.
//!
//! Four messages of a handful of fields do not need a protobuf library.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::grpc::Code;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The value of `grpc-status-details-bin`: base64 without padding.
pub(super) fn retry_info(code: Code, message: &str, retry: Duration) -> String {
    let mut delay = Vec::new();
    int(&mut delay, 1, retry.as_secs());
    int(&mut delay, 2, retry.subsec_nanos().into());

    let mut info = Vec::new();
    bytes(&mut info, 1, &delay);

    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &info);

    let mut status = Vec::new();
    int(&mut status, 1, code as u64);
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    STANDARD_NO_PAD.encode(&status)
}

/// A field of a number; 0 is the default and not sent.
fn int(message: &mut Vec<u8>, field: u64, value: u64) {
    if value > 0 {
        varint(message, field << 3);
        varint(message, value);
    }
}

/// A field of a text or of another message.
fn bytes(message: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(message, field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value > 0x7F {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_those_of_protobuf() {
        for (value, encoded) in [(0, &[0][..]), (127, &[127]), (128, &[0x80, 1]), (300, &[0xAC, 2])] {
            let mut message = Vec::new();
            varint(&mut message, value);
            assert_eq!(message, encoded);
        }
    }

    #[test]
    fn carries_code_message_and_delay() {
        let details = retry_info(Code::ResourceExhausted, "wait", Duration::from_millis(1_500));
        let expected = [
            &b"\x08\x08\x12\x04wait\x1a\x36\x0a\x28"[..],
            RETRY_INFO.as_bytes(),
            b"\x12\x0a\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01",
        ]
        .concat();
        assert_eq!(details, STANDARD_NO_PAD.encode(&expected));
    }
}
