//! Resolvers with fixed answers, and a fetcher that may reach loopback.

use fetch::{FetchError, FetchLimits, FetchedFile, Fetcher, PrivateAddresses, Resolver, UrlGuard, UrlRules};
use std::future::ready;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// Returns one answer after the other, repeats the last one, and counts the queries.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    queries: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn with_answers(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let answers = answers.iter().rev().map(parse).collect();
        Arc::new(Self { answers: Mutex::new(answers), queries: Mutex::default() })
    }

    pub(crate) fn queries(&self) -> Vec<String> {
        self.queries.lock().unwrap().clone()
    }
}

impl Resolver for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        self.queries.lock().unwrap().push(host.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop() } else { answers.last().cloned() };
        Box::pin(ready(answer.ok_or_else(|| io::Error::other("no such name"))))
    }
}

/// A fetcher that may reach these addresses at this port.
pub(crate) fn rules_for(addresses: &[&str], ports: &[u16]) -> UrlRules {
    let private = PrivateAddresses::AllowListed(addresses.iter().map(|address| address.parse().unwrap()).collect());
    UrlRules { ports: ports.to_vec(), private_addresses: private, ..UrlRules::default() }
}

pub(crate) fn fetcher(rules: UrlRules, names: &Arc<Names>, limits: FetchLimits) -> Fetcher {
    let names: Arc<dyn Resolver> = Arc::clone(names) as _;
    Fetcher::with_guard(UrlGuard::with_resolver(rules, names), limits)
}

pub(crate) async fn fetch(fetcher: &Fetcher, address: &str) -> Result<FetchedFile, FetchError> {
    fetcher.fetch(address, &mut |_| {}).await
}
