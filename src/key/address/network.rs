//! How addresses become parts of keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::key::KeyBuilder;
use crate::key::builder::Form;

/// The tag of every address, wherever it comes from.
const TAG: &str = "ip";

/// How many leading bits of an address count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    ipv4: u8,
    ipv6: u8,
}

impl Network {
    /// One IPv4 address; one IPv6 /64, the least that a subscriber gets.
    pub(super) const DEFAULT: Self = Self { ipv4: 32, ipv6: 64 };

    #[track_caller]
    pub(super) const fn ipv4(mut self, bits: u8) -> Self {
        assert!(bits <= 32, "an IPv4 prefix has 0 to 32 bits");
        self.ipv4 = bits;
        self
    }

    #[track_caller]
    pub(super) const fn ipv6(mut self, bits: u8) -> Self {
        assert!(bits <= 128, "an IPv6 prefix has 0 to 128 bits");
        self.ipv6 = bits;
        self
    }

    /// Adds the network of `address`. Mapped addresses are unmapped before, or all of IPv4 would be one /64.
    pub(super) fn write(self, address: IpAddr, key: &mut KeyBuilder<'_>) {
        match address.to_canonical() {
            IpAddr::V4(address) => self.write_ipv4(address, key),
            IpAddr::V6(address) => self.write_ipv6(address, key),
        }
    }

    fn write_ipv4(self, address: Ipv4Addr, key: &mut KeyBuilder<'_>) {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.ipv4)).unwrap_or(0);
        let network = Ipv4Addr::from_bits(address.to_bits() & mask);
        match (key.form(Form::Hashed), self.ipv4) {
            (Form::Hashed, bits) => {
                let mut value = [bits; 5];
                value[..4].copy_from_slice(&network.octets());
                key.hashed_safe(TAG, &value);
            }
            (Form::Readable, 32) => key.text(TAG, format_args!("{network}")),
            (Form::Readable, bits) => key.text(TAG, format_args!("{network}/{bits}")),
        }
    }

    fn write_ipv6(self, address: Ipv6Addr, key: &mut KeyBuilder<'_>) {
        let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6)).unwrap_or(0);
        let network = Ipv6Addr::from_bits(address.to_bits() & mask);
        match (key.form(Form::Hashed), self.ipv6) {
            (Form::Hashed, bits) => {
                let mut value = [bits; 17];
                value[..16].copy_from_slice(&network.octets());
                key.hashed_safe(TAG, &value);
            }
            (Form::Readable, 128) => key.text(TAG, format_args!("{network}")),
            (Form::Readable, bits) => key.text(TAG, format_args!("{network}/{bits}")),
        }
    }
}

/// The setters of an extractor whose field `network` says how many bits count.
macro_rules! network_setters {
    () => {
        /// Counts IPv4 addresses with the same first `bits` bits together (default 32).
        ///
        /// # Panics
        ///
        /// If `bits` exceeds 32.
        #[must_use]
        #[track_caller]
        pub fn ipv4_prefix(mut self, bits: u8) -> Self {
            self.network = self.network.ipv4(bits);
            self
        }

        /// Counts IPv6 addresses with the same first `bits` bits together (default 64).
        ///
        /// # Panics
        ///
        /// If `bits` exceeds 128.
        #[must_use]
        #[track_caller]
        pub fn ipv6_prefix(mut self, bits: u8) -> Self {
            self.network = self.network.ipv6(bits);
            self
        }
    };
}
pub(super) use network_setters;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyHasher;

    fn written(network: Network, address: &str, form: Form) -> String {
        let hasher = KeyHasher::default();
        let mut key = KeyBuilder::new(&hasher);
        key.in_form(form, |key| network.write(address.parse().unwrap(), key));
        String::from_utf8(key.finish().as_bytes().to_vec()).unwrap()
    }

    fn readable(network: Network, address: &str) -> String {
        written(network, address, Form::Readable)
    }

    #[test]
    fn addresses_are_masked() {
        let default = Network::DEFAULT;
        assert_eq!(readable(default, "192.0.2.7"), "ip=192.0.2.7");
        assert_eq!(readable(default.ipv4(24), "192.0.2.7"), "ip=192.0.2.0/24");
        assert_eq!(readable(default.ipv4(0), "192.0.2.7"), "ip=0.0.0.0/0");
        assert_eq!(readable(default, "2001:db8:1:2:3:4:5:6"), "ip=2001:db8:1:2::/64");
        assert_eq!(
            readable(default.ipv6(56), "2001:db8:1:2ff::1"),
            "ip=2001:db8:1:200::/56"
        );
        assert_eq!(readable(default.ipv6(128), "2001:db8::1"), "ip=2001:db8::1");
        assert_eq!(readable(default.ipv6(0), "2001:db8::1"), "ip=::/0");
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        for form in [Form::Readable, Form::Hashed] {
            let network = Network::DEFAULT.ipv4(24);
            let mapped = written(network, "::ffff:192.0.2.7", form);
            assert_eq!(mapped, written(network, "192.0.2.9", form));
            assert_ne!(mapped, written(network, "::ffff:192.0.3.7", form));
        }
    }

    #[test]
    fn hashes_group_like_readable_ones() {
        let of = |network, address| written(network, address, Form::Hashed);
        let default = Network::DEFAULT;
        assert_eq!(of(default, "2001:db8::1"), of(default, "2001:db8::ffff:1"));
        assert_ne!(of(default, "2001:db8::1"), of(default, "2001:db8:0:1::1"));
        assert_ne!(of(default, "2001:db8::"), of(default.ipv6(56), "2001:db8::"));
        assert_ne!(of(default, "192.0.2.0"), of(default.ipv4(24), "192.0.2.0"));
        assert_ne!(of(default, "192.0.2.1"), of(default, "192.0.2.2"));
    }
}
