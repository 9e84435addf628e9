//! The server's own names and addresses.
//!
//! A request from the server to itself would come from this machine, which may be trusted more than others. So its own
//! addresses are refused even where private addresses are allowed.

use crate::global_ip::canonical_ip;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// A name or an address of the server, with one port or all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    host: OwnHost,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnHost {
    Name(String),
    Ip(IpAddr),
    /// Any address of this machine.
    AnyLocal,
}

impl OwnAddress {
    /// Parses a host with an optional port. `0.0.0.0` and `[::]` mean every address of the machine.
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

    pub(crate) fn matches_name(&self, name: &str, port: u16) -> bool {
        self.matches_port(port) && matches!(&self.host, OwnHost::Name(own) if *own == normalize_host(name))
    }

    /// The address must be canonical (see [`canonical_ip`]).
    pub(crate) fn matches_address(&self, address: SocketAddr) -> bool {
        self.matches_port(address.port())
            && match self.host {
                OwnHost::Name(_) => false,
                OwnHost::Ip(own) => own == address.ip(),
                OwnHost::AnyLocal => is_local_ip(address.ip()),
            }
    }

    fn matches_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// Only local addresses can be bound. Sends nothing, and takes a port for a moment only.
fn is_local_ip(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Lower case, without a trailing dot.
pub(crate) fn normalize_host(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_address_is_a_name_or_an_ip_with_or_without_a_port() {
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
    fn addresses_of_this_machine_are_recognised() {
        for (text, is_ours) in [("127.0.0.1", true), ("127.9.9.9", true), ("::1", true), ("192.0.2.1", false)] {
            assert_eq!(is_local_ip(text.parse().unwrap()), is_ours, "{text}");
        }
    }
}
