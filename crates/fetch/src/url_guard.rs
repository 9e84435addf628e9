//! From somebody's words to a place that may be asked.
//!
//! The order matters. The scheme comes first, because for a scheme that it does not know the parser calls an IP address a
//! name. Then the host as it was *parsed*, never as it was written: `0x7f.1`, `①②⑦.0.0.1` and `2130706433` are all
//! `127.0.0.1`. Then the name is looked up once, and all of its addresses have to be good. Whoever connects uses these
//! addresses and looks nothing up again, so a name that points somewhere else a second later gains nothing.

use crate::FetchError;
use crate::global_ip::{canonical_ip, is_global_ip};
use crate::own_address::OwnAddress;
use futures_core::future::BoxFuture;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// Longer addresses are nobody's.
const URL_BYTES_MAX: usize = 8 * 1024;
/// More answers than this are no answer.
const ADDRESSES_MAX: usize = 64;
/// Names that mean something else on every machine or network.
const LOCAL_NAMES: [&str; 5] = ["localhost", "local", "internal", "intranet", "home.arpa"];

/// What may be asked.
#[derive(Clone, Debug)]
pub struct UrlRules {
    /// The ports that may be asked.
    pub ports: Vec<u16>,
    /// The server's own names and addresses: it is not made to talk to itself, whatever else may be asked.
    pub own_addresses: Vec<OwnAddress>,
    /// What is said about addresses that are not on the internet.
    pub private_addresses: PrivateAddresses,
}

impl Default for UrlRules {
    fn default() -> Self {
        Self { ports: vec![80, 443], own_addresses: Vec::new(), private_addresses: PrivateAddresses::Deny }
    }
}

/// What is said about addresses that are not on the internet.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PrivateAddresses {
    /// None may be asked.
    #[default]
    Deny,
    /// These may be asked: the sites of a closed network.
    AllowListed(Vec<IpAddr>),
    /// All may be asked that are somebody's. For networks in which there is nothing to protect.
    AllowAll,
}

/// Who knows the addresses of a name.
pub trait Resolver: Send + Sync {
    /// All addresses of `host`.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect()) })
    }
}

/// A place that may be asked, and the only addresses at which it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedUrl {
    /// What is asked for.
    pub url: Url,
    /// Where. Never empty.
    pub addresses: Vec<SocketAddr>,
}

/// Decides what may be asked.
#[derive(Clone)]
pub struct UrlGuard {
    rules: UrlRules,
    resolver: Arc<dyn Resolver>,
}

impl fmt::Debug for UrlGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl UrlGuard {
    /// A guard that asks the machine's resolver.
    #[must_use]
    pub fn new(rules: UrlRules) -> Self {
        Self::with_resolver(rules, Arc::new(SystemResolver))
    }

    /// A guard that asks this resolver.
    #[must_use]
    pub fn with_resolver(rules: UrlRules, resolver: Arc<dyn Resolver>) -> Self {
        Self { rules, resolver }
    }

    /// May this be asked? Whatever the reason is that it may not, the answer is the same.
    pub async fn check(&self, address: &str) -> Result<CheckedUrl, FetchError> {
        if address.len() > URL_BYTES_MAX {
            return Err(FetchError::NotAllowed);
        }
        self.check_url(Url::parse(address).map_err(|_| FetchError::NotAllowed)?).await
    }

    /// May this be asked, after `from` sent us there? It is checked like any other, and never in the clear after TLS.
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
        self.check_url_syntax(&url)?;
        let port = url.port_or_known_default().ok_or(FetchError::NotAllowed)?;
        let found = match url.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            // A name that does not exist and a name of ours that should not be known are told apart by nobody.
            Some(Host::Domain(name)) => self.resolver.resolve(name).await.map_err(|_| FetchError::NotAllowed)?,
            None => return Err(FetchError::NotAllowed),
        };
        let found: Vec<SocketAddr> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        if found.is_empty() || found.len() > ADDRESSES_MAX || !found.iter().all(|place| self.is_allowed_address(*place))
        {
            return Err(FetchError::NotAllowed);
        }
        url.set_fragment(None);
        Ok(CheckedUrl { addresses: found, url })
    }

    /// What can be said without looking the name up.
    fn check_url_syntax(&self, url: &Url) -> Result<(), FetchError> {
        let port = url.port_or_known_default().filter(|port| self.rules.ports.contains(port));
        let allowed = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && match (url.host(), port) {
                (Some(Host::Domain(name)), Some(port)) => !self.is_own_name(name, port) && !self.is_local_name(name),
                (host, port) => host.is_some() && port.is_some(),
            };
        if allowed { Ok(()) } else { Err(FetchError::NotAllowed) }
    }

    fn is_own_name(&self, name: &str, port: u16) -> bool {
        self.rules.own_addresses.iter().any(|own| own.matches_name(name, port))
    }

    fn is_local_name(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let under = |local: &str| name.strip_suffix(local).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        self.rules.private_addresses == PrivateAddresses::Deny
            && (!name.contains('.') || LOCAL_NAMES.into_iter().any(under))
    }

    fn is_allowed_address(&self, place: SocketAddr) -> bool {
        let place = SocketAddr::new(canonical_ip(place.ip()), place.port());
        // Nobody has the unspecified address: it is another word for this machine.
        if place.ip().is_unspecified() || self.rules.own_addresses.iter().any(|own| own.matches_address(place)) {
            return false;
        }
        is_global_ip(place.ip())
            || match &self.rules.private_addresses {
                PrivateAddresses::Deny => false,
                PrivateAddresses::AllowListed(these) => these.iter().any(|this| canonical_ip(*this) == place.ip()),
                PrivateAddresses::AllowAll => true,
            }
    }
}
