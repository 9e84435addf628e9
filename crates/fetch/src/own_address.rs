//! The server's own places.
//!
//! A request from here to ourselves would come from this machine, which some believe more than others. So our own names
//! and addresses are refused even where everything else may be asked.

use crate::global_ip::canonical_ip;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A name or an address of the server, at one port or at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    host: OwnHost,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnHost {
    Name(String),
    Ip(IpAddr),
    /// Whatever address this machine has.
    AnyLocal,
}

impl OwnAddress {
    /// A host as it stands in an address, with or without a port. Whoever listens on `0.0.0.0` or `[::]` listens on every
    /// address of the machine.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
            _ => (text, None),
        };
        let host = normalize_host(host);
        let host = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => OwnHost::AnyLocal,
            Ok(address) => OwnHost::Ip(canonical_ip(address)),
            Err(_) => OwnHost::Name(host),
        };
        Self { host, port }
    }

    /// Whether this name at this port is ours.
    pub(crate) fn matches_name(&self, name: &str, port: u16) -> bool {
        self.matches_port(port) && matches!(&self.host, OwnHost::Name(own) if *own == normalize_host(name))
    }

    /// Whether this place is ours. The address is one that packets go to in the end.
    pub(crate) fn matches_address(&self, place: SocketAddr) -> bool {
        self.matches_port(place.port())
            && match self.host {
                OwnHost::Name(_) => false,
                OwnHost::Ip(own) => own == place.ip(),
                OwnHost::AnyLocal => is_local_ip(place.ip()),
            }
    }

    fn matches_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// Only an address of this machine can be bound. Nothing is sent, and a port is free for a moment only.
fn is_local_ip(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// A name without what makes no difference: case, and the dot at its end.
fn normalize_host(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_ours_is_a_name_or_an_address_with_or_without_a_port() {
        let name = |name: &str| OwnHost::Name(name.to_owned());
        let address = |text: &str| OwnHost::Ip(text.parse().unwrap());
        for (text, host, port) in [
            ("agents.example", name("agents.example"), None),
            ("Agents.Example.:8443", name("agents.example"), Some(8443)),
            ("10.0.0.1", address("10.0.0.1"), None),
            ("10.0.0.1:80", address("10.0.0.1"), Some(80)),
            ("[2a00::9]", address("2a00::9"), None),
            ("[2a00::9]:443", address("2a00::9"), Some(443)),
            ("2a00::9", address("2a00::9"), None),
            ("[::ffff:10.0.0.1]:80", address("10.0.0.1"), Some(80)),
            ("0.0.0.0:8787", OwnHost::AnyLocal, Some(8787)),
            ("[::]:8787", OwnHost::AnyLocal, Some(8787)),
        ] {
            assert_eq!(OwnAddress::parse(text), OwnAddress { host, port }, "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_told_from_those_of_others() {
        for (text, is_ours) in [("127.0.0.1", true), ("127.9.9.9", true), ("::1", true), ("192.0.2.1", false)] {
            assert_eq!(is_local_ip(text.parse().unwrap()), is_ours, "{text}");
        }
    }
}
