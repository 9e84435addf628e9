//! Classifies IP addresses.
//!
//! Only addresses that the internet routes are global; everything else is refused. IPv4 is global with exceptions; of
//! IPv6 only `2000::/3` is allocated, again with exceptions. Forms that embed an IPv4 address are classified by that
//! address, or refused where they are obsolete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 ranges that are not global.
const V4_REFUSED: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network; 0.0.0.0 reaches this machine
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // shared by carriers; some clouds keep their metadata here
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // this machine
    (Ipv4Addr::new(168, 63, 129, 16), 32), // looks global, but is the host of a virtual machine in one large cloud
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // this link; most clouds keep their metadata here
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays of 6to4, given up
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, and broadcast
];

/// The allocated part of IPv6.
const V6_GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// IPv6 ranges within it that are not global.
const V6_REFUSED: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4: any IPv4 address inside, and given up
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// IPv4 behind a translator, as seen from IPv6-only networks.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether the internet routes this address.
#[must_use]
pub fn is_global_ip(address: IpAddr) -> bool {
    match canonical_ip(address) {
        IpAddr::V4(address) => !V4_REFUSED.iter().any(|prefix| contains_v4(*prefix, address)),
        IpAddr::V6(address) => {
            contains_v6(V6_GLOBAL, address) && !V6_REFUSED.iter().any(|prefix| contains_v6(*prefix, address))
        }
    }
}

/// The final destination: an IPv4 address that is mapped into IPv6 or behind a translator is unwrapped.
#[must_use]
pub fn canonical_ip(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if contains_v6(NAT64, address) => {
            let [.., a, b, c, d] = address.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        address => address,
    }
}

fn contains_v4((base, bits): (Ipv4Addr, u32), address: Ipv4Addr) -> bool {
    let differs = base.to_bits() ^ address.to_bits();
    differs.leading_zeros() >= bits
}

fn contains_v6((base, bits): (Ipv6Addr, u32), address: Ipv6Addr) -> bool {
    let differs = base.to_bits() ^ address.to_bits();
    differs.leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First and last address of each refused range, in order.
    const V4: &[(&str, &str)] = &[
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
        ("168.63.129.16", "168.63.129.16"),
        ("169.254.0.0", "169.254.255.255"),
        ("172.16.0.0", "172.31.255.255"),
        ("192.0.0.0", "192.0.0.255"),
        ("192.0.2.0", "192.0.2.255"),
        ("192.88.99.0", "192.88.99.255"),
        ("192.168.0.0", "192.168.255.255"),
        ("198.18.0.0", "198.19.255.255"),
        ("198.51.100.0", "198.51.100.255"),
        ("203.0.113.0", "203.0.113.255"),
        ("224.0.0.0", "255.255.255.255"),
    ];

    const V6: &[(&str, &str)] = &[
        // Mapped and translated IPv4 is in the first range and classified by the embedded address.
        ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ];

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    /// Every notation of an IPv4 address that must be classified alike.
    fn is_global_in_each_notation(address: Ipv4Addr) -> [bool; 3] {
        let [a, b, c, d] = address.octets();
        let inside = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, inside[0], inside[1]);
        [address.into(), address.to_ipv6_mapped().into(), translated.into()].map(is_global_ip)
    }

    #[test]
    fn every_ipv4_range_has_exact_bounds() {
        for (index, (first, last)) in V4.iter().enumerate() {
            let (first, last) = (v4(first), v4(last));
            let middle = Ipv4Addr::from_bits(first.to_bits().midpoint(last.to_bits()));
            for inside in [first, middle, last] {
                assert_eq!(is_global_in_each_notation(inside), [false; 3], "{inside}");
            }
            if let Some(before) = first.to_bits().checked_sub(1).map(Ipv4Addr::from_bits) {
                assert_eq!(
                    is_global_in_each_notation(before),
                    [true; 3],
                    "{before}, before {first} of stretch {index}"
                );
            }
            if let Some(after) = last.to_bits().checked_add(1).map(Ipv4Addr::from_bits) {
                assert_eq!(is_global_in_each_notation(after), [true; 3], "{after}, after {last} of stretch {index}");
            }
        }
    }

    #[test]
    fn every_ipv6_range_has_exact_bounds() {
        for (first, last) in V6 {
            let (first, last) = (v6(first), v6(last));
            for inside in [first, Ipv6Addr::from_bits(first.to_bits() + 1), last] {
                assert!(!is_global_ip(inside.into()), "{inside}");
            }
            for outside in [first.to_bits().checked_sub(1), last.to_bits().checked_add(1)].into_iter().flatten() {
                let outside = Ipv6Addr::from_bits(outside);
                let next_stretch = V6.iter().any(|(first, last)| v6(first) == outside || v6(last) == outside);
                assert_eq!(is_global_ip(outside.into()), !next_stretch, "{outside}");
            }
        }
    }

    #[test]
    fn the_test_covers_every_range_of_the_table() {
        // 224/4 and 240/4 are one range.
        assert_eq!(V4_REFUSED.len(), V4.len() + 1);
        assert_eq!(V6_REFUSED.len(), V6.len() - 2);
    }

    #[test]
    fn well_known_internal_addresses_are_refused_and_public_sites_are_not() {
        let inside = [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2002:808:808::",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ];
        for text in inside {
            assert!(!is_global_ip(text.parse().unwrap()), "{text}");
        }
        for text in ["1.1.1.1", "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111", "2a00::1"] {
            assert!(is_global_ip(text.parse().unwrap()), "{text}");
        }
    }
}
