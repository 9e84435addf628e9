//! The server's own places.
//!
//! A request from here to ourselves would come from this machine, which some believe more than others. So our own names
//! and addresses are refused even where everything else may be asked.

use crate::address::canonical;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A name or an address of the server, at one port or at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    host: OwnHost,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnHost {
    Name(String),
    Address(IpAddr),
    /// Whatever address this machine has.
    Machine,
}

impl Own {
    /// A host as it stands in an address, with or without a port. Whoever listens on `0.0.0.0` or `[::]` listens on every
    /// address of the machine.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port.parse().ok()),
            _ => (text, None),
        };
        let host = plain(host);
        let host = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => OwnHost::Machine,
            Ok(address) => OwnHost::Address(canonical(address)),
            Err(_) => OwnHost::Name(host),
        };
        Self { host, port }
    }

    /// Whether this name at this port is ours.
    pub(crate) fn has_name(&self, name: &str, port: u16) -> bool {
        self.has_port(port) && matches!(&self.host, OwnHost::Name(own) if *own == plain(name))
    }

    /// Whether this place is ours. The address is one that packets go to in the end.
    pub(crate) fn has_address(&self, place: SocketAddr) -> bool {
        self.has_port(place.port())
            && match self.host {
                OwnHost::Name(_) => false,
                OwnHost::Address(own) => own == place.ip(),
                OwnHost::Machine => is_of_this_machine(place.ip()),
            }
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// Only an address of this machine can be bound. Nothing is sent, and a port is free for a moment only.
fn is_of_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// A name without what makes no difference: case, and the dot at its end.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_ours_is_a_name_or_an_address_with_or_without_a_port() {
        let name = |name: &str| OwnHost::Name(name.to_owned());
        let address = |text: &str| OwnHost::Address(text.parse().unwrap());
        for (text, host, port) in [
            ("agents.example", name("agents.example"), None),
            ("Agents.Example.:8443", name("agents.example"), Some(8443)),
            ("10.0.0.1", address("10.0.0.1"), None),
            ("10.0.0.1:80", address("10.0.0.1"), Some(80)),
            ("[2a00::9]", address("2a00::9"), None),
            ("[2a00::9]:443", address("2a00::9"), Some(443)),
            ("2a00::9", address("2a00::9"), None),
            ("[::ffff:10.0.0.1]:80", address("10.0.0.1"), Some(80)),
            ("0.0.0.0:8787", OwnHost::Machine, Some(8787)),
            ("[::]:8787", OwnHost::Machine, Some(8787)),
        ] {
            assert_eq!(Own::parse(text), Own { host, port }, "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_told_from_those_of_others() {
        for (text, is_ours) in [("127.0.0.1", true), ("127.9.9.9", true), ("::1", true), ("192.0.2.1", false)] {
            assert_eq!(is_of_this_machine(text.parse().unwrap()), is_ours, "{text}");
        }
    }
}
