//! A listener in a network namespace with a route to it: what a container sees of its neighbours.

use crate::canary::Canary;
use crate::names::{Names, fetch, fetcher};
use crate::network::Network;
use crate::site::{Site, redirect};
use fetch::{FetchError, FetchLimits, PrivateAddresses, UrlRules};

#[tokio::test]
async fn a_neighbour_in_another_network_receives_nothing() {
    let Some(network) = Network::make_or_skip("a_neighbour_in_another_network_receives_nothing") else { return };
    let canary = Canary::on(network.listen(80).unwrap());
    let neighbour = &network.neighbour;
    let octets: Vec<u32> = neighbour.split('.').map(|octet| octet.parse().unwrap()).collect();
    let number = octets.iter().fold(0, |number, octet| number * 256 + octet);
    let names = Names::with_answers(&[&[neighbour]]);
    let closed = fetcher(UrlRules::default(), &names, FetchLimits::default());
    for host in [
        neighbour.clone(),
        number.to_string(),
        format!("[::ffff:{neighbour}]"),
        format!("[64:ff9b::{:x}:{:x}]", number >> 16, number & 0xffff),
        "name.example".to_owned(),
    ] {
        assert_eq!(fetch(&closed, &format!("http://{host}/")).await, Err(FetchError::NotAllowed), "{host}");
    }
    let site = Site::with_response(redirect(302, &format!("http://{neighbour}/"))).await;
    let mut rules = site.rules();
    rules.ports.push(80);
    let sent_on = fetch::Fetcher::new(rules, FetchLimits::default());
    assert_eq!(fetch(&sent_on, &site.url("/")).await, Err(FetchError::NotAllowed));
    assert_eq!(canary.seen().await, 0);

    // Proves that the route exists and that the listener counts.
    let open = fetch::Fetcher::new(
        UrlRules { private_addresses: PrivateAddresses::AllowAll, ..UrlRules::default() },
        FetchLimits::default(),
    );
    assert_eq!(fetch(&open, &format!("http://{neighbour}/")).await, Err(FetchError::InvalidResponse));
    assert_eq!(canary.seen().await, 1);
}
