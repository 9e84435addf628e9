//! The check of the fuzz target `url_guard`: a URL that the guard allows leads to public addresses alone, whichever way it
//! is written and whatever its name resolves to.
//!
//! The first byte chooses the address that names resolve to.

use fetch::global_ip::{canonical_ip, is_global_ip};
use fetch::{Resolver, UrlGuard, UrlRules};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const ADDRESSES: [&str; 8] = [
    "93.184.215.14",
    "2606:2800::1",
    "127.0.0.1",
    "10.0.0.1",
    "::1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "0.0.0.0",
];

struct FixedAddress(IpAddr);

impl Resolver for FixedAddress {
    fn resolve<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(vec![self.0])))
    }
}

pub(crate) fn an_allowed_url_is_public(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let address = ADDRESSES[usize::from(*choice) % ADDRESSES.len()].parse().unwrap();
    let guard = UrlGuard::with_resolver(UrlRules::default(), Arc::new(FixedAddress(address)));
    let Ok(checked) = finish(guard.check(text)) else { return };
    assert!(matches!(checked.url.scheme(), "http" | "https"), "{text:?}");
    assert!(checked.url.username().is_empty() && checked.url.password().is_none(), "{text:?}");
    assert!(!checked.addresses.is_empty(), "{text:?}");
    for address in &checked.addresses {
        assert!(is_global_ip(canonical_ip(address.ip())) && [80, 443].contains(&address.port()), "{text:?}: {address}");
    }
    let again = finish(guard.check(checked.url.as_str())).unwrap();
    assert_eq!(again, checked, "{text:?}");
}

/// The resolver above never waits, so the check does not either.
fn finish<T>(check: impl Future<Output = T>) -> T {
    match pin!(check).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the check waits"),
    }
}
