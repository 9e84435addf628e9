//! Which `Host` and `Origin` headers are allowed.
//!
//! A page of another site can make a browser send requests to the server, and with DNS rebinding even read the
//! responses. So `Host` must be one of the server's names, and `Origin` must be allowed. `X-Forwarded-*` is ignored,
//! because any client can send it.

use crate::problem::Problem;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use model::error::ErrorCode;
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Debug)]
pub(crate) struct OriginPolicy {
    is_loopback: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl OriginPolicy {
    pub(crate) fn new(listen: SocketAddr, hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self { is_loopback: listen.ip().is_loopback(), hosts, origins }
    }

    fn is_own_host(&self, authority: &str) -> bool {
        let Ok(parsed) = authority.parse::<Authority>() else { return false };
        if authority.contains('@') {
            return false;
        }
        let host = parsed.host().to_ascii_lowercase();
        let with_port = authority.to_ascii_lowercase();
        let is_listed = self.hosts.iter().any(|own| *own == host || *own == with_port);
        // A name can be made to resolve to any address; addresses and `localhost` cannot.
        let is_local = match parse_ip_host(&host) {
            Some(address) => !self.is_loopback || address.is_loopback(),
            None => host == "localhost",
        };
        is_listed || is_local
    }

    pub(crate) fn check_host(&self, request: &Request) -> Result<(), Problem> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        // The request line may have a host, too, which then takes precedence.
        let request_target = request.uri().authority().map(Authority::as_str);
        let is_own = |authority: Option<&str>| authority.is_some_and(|authority| self.is_own_host(authority));
        if is_own(host) && hosts.next().is_none() && request_target.is_none_or(|authority| self.is_own_host(authority))
        {
            return Ok(());
        }
        let detail = "the server does not answer for this host; add it to [server] hosts";
        Err(Problem::new(ErrorCode::HostNotAllowed, detail).closing_connection())
    }

    /// Returns the origin of a request from a web page.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(None) };
        let text = origin.to_str().unwrap_or_default();
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if origins.next().is_none() && self.is_allowed_origin(text, host) {
            return Ok(Some(origin.clone()));
        }
        let detail = "pages of this origin may not use the server; add it to [server] origins";
        Err(Problem::new(ErrorCode::OriginNotAllowed, detail).closing_connection())
    }

    fn is_allowed_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let Some(authority) = rest else { return false };
        if authority == host.to_ascii_lowercase() || self.origins.contains(&origin) {
            return true;
        }
        self.is_loopback && is_loopback_authority(authority)
    }
}

/// Whether a host, with or without a port, is `localhost` or a loopback address.
pub(crate) fn is_loopback_authority(authority: &str) -> bool {
    let Ok(parsed) = authority.parse::<Authority>() else { return false };
    let host = parsed.host().to_ascii_lowercase();
    let is_local = host == "localhost" || parse_ip_host(&host).is_some_and(|address| address.is_loopback());
    is_local && !authority.contains('@')
}

fn parse_ip_host(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(listen: &str) -> OriginPolicy {
        OriginPolicy::new(
            listen.parse().unwrap(),
            vec!["hw.example".to_owned()],
            vec!["https://app.example".to_owned()],
        )
    }

    #[test]
    fn on_loopback_only_local_host_names_are_accepted() {
        let policy = policy("127.0.0.1:0");
        for own in
            ["localhost", "LOCALHOST:8787", "127.0.0.1:1", "127.9.9.9", "[::1]:8787", "hw.example", "hw.example:443"]
        {
            assert!(policy.is_own_host(own), "{own}");
        }
        for foreign in
            ["", "evil.example", "10.0.0.1", "localhost.evil.example", "user@localhost", "[::2]", "127.0.0.1.nip.io"]
        {
            assert!(!policy.is_own_host(foreign), "{foreign}");
        }
    }

    #[test]
    fn on_other_addresses_ips_and_configured_hosts_are_accepted() {
        let policy = policy("0.0.0.0:8787");
        assert!(
            policy.is_own_host("10.0.0.1:8787") && policy.is_own_host("hw.example") && policy.is_own_host("[fe80::1]")
        );
        assert!(!policy.is_own_host("evil.example"));
    }

    #[test]
    fn local_origins_are_allowed_on_loopback_only() {
        let here = policy("127.0.0.1:8787");
        for may in ["http://localhost:3000", "http://127.0.0.1:5173", "https://app.example", "http://[::1]:1"] {
            assert!(here.is_allowed_origin(may, "127.0.0.1:8787"), "{may}");
        }
        for may_not in
            ["null", "https://evil.example", "http://localhost.evil.example", "file://", "", "http://a@localhost"]
        {
            assert!(!here.is_allowed_origin(may_not, "127.0.0.1:8787"), "{may_not}");
        }
        let out = policy("0.0.0.0:8787");
        assert!(!out.is_allowed_origin("http://localhost:3000", "hw.example"));
        assert!(out.is_allowed_origin("https://hw.example", "hw.example"), "same origin");
    }
}
