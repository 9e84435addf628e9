//! Decides which URLs may be requested.
//!
//! The order matters. The scheme is checked first, because for unknown schemes the parser treats an IP address as a
//! name. Then the host as it was *parsed*, never as it was written: `0x7f.1`, `①②⑦.0.0.1` and `2130706433` are all
//! `127.0.0.1`. Then the name is resolved once, and all of its addresses must be allowed. The connection uses these
//! addresses without resolving again, so that a DNS record that changes in between gains nothing.

use crate::error::FetchError;
use crate::global_ip::{canonical_ip, is_global_ip};
use crate::own_address::{OwnAddress, normalize_host};
use futures_core::future::BoxFuture;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

const URL_BYTES_MAX: usize = 8 * 1024;
const ADDRESSES_MAX: usize = 64;
/// Names that resolve differently on every machine or network.
const LOCAL_NAMES: [&str; 5] = ["localhost", "local", "internal", "intranet", "home.arpa"];

#[derive(Clone, Debug)]
pub struct UrlRules {
    pub ports: Vec<u16>,
    /// The server's own addresses, which are never allowed.
    pub own_addresses: Vec<OwnAddress>,
    pub private_addresses: PrivateAddresses,
}

impl Default for UrlRules {
    fn default() -> Self {
        Self { ports: vec![80, 443], own_addresses: Vec::new(), private_addresses: PrivateAddresses::Deny }
    }
}

/// Which addresses outside the internet are allowed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PrivateAddresses {
    #[default]
    Deny,
    /// For the sites of a closed network.
    AllowListed(Vec<IpAddr>),
    /// For networks in which there is nothing to protect.
    AllowAll,
}

pub trait Resolver: Send + Sync {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// An allowed URL, and the only addresses to connect to.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedUrl {
    pub url: Url,
    /// Never empty.
    pub addresses: Vec<SocketAddr>,
}

#[derive(Clone)]
pub struct UrlGuard {
    rules: UrlRules,
    resolver: Arc<dyn Resolver>,
    trusted_url: Option<Url>,
}

impl fmt::Debug for UrlGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlGuard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl UrlGuard {
    /// Uses the system resolver.
    pub fn new(rules: UrlRules) -> Self {
        Self::with_resolver(rules, Arc::new(SystemResolver))
    }

    pub fn with_resolver(rules: UrlRules, resolver: Arc<dyn Resolver>) -> Self {
        Self { rules, resolver, trusted_url: None }
    }

    /// Allows the origin of a URL that the operator wrote, whatever its address and port are; if that is this machine, all of
    /// its ports. The server's own addresses stay forbidden.
    #[must_use]
    pub fn with_trusted_url(mut self, url: Url) -> Self {
        self.trusted_url = Some(url);
        self
    }

    /// Checks a URL. The error is the same for all reasons.
    pub async fn check(&self, url: &str) -> Result<CheckedUrl, FetchError> {
        if url.len() > URL_BYTES_MAX {
            return Err(FetchError::NotAllowed);
        }
        self.check_url(Url::parse(url).map_err(|_| FetchError::NotAllowed)?).await
    }

    /// Checks the target of a redirect like any other URL. A redirect from TLS to plain text is refused.
    pub async fn check_redirect(&self, from: &Url, location: &str) -> Result<CheckedUrl, FetchError> {
        if location.len() > URL_BYTES_MAX {
            return Err(FetchError::NotAllowed);
        }
        let url = from.join(location).map_err(|_| FetchError::NotAllowed)?;
        if from.scheme() == "https" && url.scheme() != "https" {
            return Err(FetchError::NotAllowed);
        }
        self.check_url(url).await
    }

    async fn check_url(&self, mut url: Url) -> Result<CheckedUrl, FetchError> {
        let trust = self.trust_of(&url);
        self.check_url_syntax(&url, trust)?;
        let port = url.port_or_known_default().ok_or(FetchError::NotAllowed)?;
        let ips = match url.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            // A missing name and an internal name must be indistinguishable.
            Some(Host::Domain(name)) => self.resolver.resolve(name).await.map_err(|_| FetchError::NotAllowed)?,
            None => return Err(FetchError::NotAllowed),
        };
        let addresses: Vec<SocketAddr> = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        if !(1..=ADDRESSES_MAX).contains(&addresses.len())
            || !addresses.iter().all(|address| self.is_allowed_address(*address, trust))
        {
            return Err(FetchError::NotAllowed);
        }
        url.set_fragment(None);
        Ok(CheckedUrl { url, addresses })
    }

    /// The checks that need no resolution.
    fn check_url_syntax(&self, url: &Url, trust: UrlTrust) -> Result<(), FetchError> {
        let is_trusted = trust != UrlTrust::None;
        let port = url.port_or_known_default().filter(|port| is_trusted || self.rules.ports.contains(port));
        let allowed = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && match (url.host(), port) {
                (Some(Host::Domain(name)), Some(port)) => {
                    !self.is_own_name(name, port) && (is_trusted || !self.is_local_name(name))
                }
                (host, port) => host.is_some() && port.is_some(),
            };
        if allowed { Ok(()) } else { Err(FetchError::NotAllowed) }
    }

    fn trust_of(&self, url: &Url) -> UrlTrust {
        match &self.trusted_url {
            Some(trusted) if trusted.origin() == url.origin() => UrlTrust::Origin,
            Some(trusted) if is_loopback_host(trusted) && is_loopback_host(url) => UrlTrust::Loopback,
            Some(_) | None => UrlTrust::None,
        }
    }

    fn is_own_name(&self, name: &str, port: u16) -> bool {
        self.rules.own_addresses.iter().any(|own| own.matches_name(name, port))
    }

    fn is_local_name(&self, name: &str) -> bool {
        let name = normalize_host(name);
        let under = |local: &str| name.strip_suffix(local).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        self.rules.private_addresses == PrivateAddresses::Deny
            && (!name.contains('.') || LOCAL_NAMES.into_iter().any(under))
    }

    fn is_allowed_address(&self, address: SocketAddr, trust: UrlTrust) -> bool {
        let address = SocketAddr::new(canonical_ip(address.ip()), address.port());
        // The unspecified address is another name for this machine.
        if address.ip().is_unspecified() || self.rules.own_addresses.iter().any(|own| own.matches_address(address)) {
            return false;
        }
        match trust {
            UrlTrust::Origin => return true,
            UrlTrust::Loopback => return address.ip().is_loopback(),
            UrlTrust::None => {}
        }
        is_global_ip(address.ip())
            || match &self.rules.private_addresses {
                PrivateAddresses::Deny => false,
                PrivateAddresses::AllowListed(allowed) => allowed.iter().any(|ip| canonical_ip(*ip) == address.ip()),
                PrivateAddresses::AllowAll => true,
            }
    }
}

/// How far a URL is trusted because of the operator's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlTrust {
    None,
    /// It has the same origin.
    Origin,
    /// Both are of this machine.
    Loopback,
}

fn is_loopback_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => normalize_host(name) == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => canonical_ip(IpAddr::V6(address)).is_loopback(),
        None => false,
    }
}
