//! A listener in a network of its own, with a route to it: what a container sees of its neighbours.

use crate::canary::Canary;
use crate::names::{Names, fetch, fetcher};
use crate::site::{Site, redirect};
use fetch::{FetchError, Limits, Private, Rules};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use tokio::net::TcpListener;

/// A network with one neighbour. It is gone when this is dropped.
struct Network {
    name: String,
    neighbour: String,
}

impl Network {
    /// Makes it, or says why this machine does not allow that.
    fn make() -> Result<Self, String> {
        let id = std::process::id();
        let (ours, theirs) = (format!("hwa{id}"), format!("hwb{id}"));
        // Of the shared space of carriers, so that it meets nobody's own network.
        let (a, b) = (64 + id / 256 % 64, id % 256);
        let network = Self { name: format!("headwater-test-{id}"), neighbour: format!("100.{a}.{b}.2") };
        let name = network.name.as_str();
        ip(&["netns", "add", name])?;
        ip(&["link", "add", &ours, "type", "veth", "peer", "name", &theirs, "netns", name])?;
        ip(&["address", "add", &format!("100.{a}.{b}.1/30"), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        ip(&["-n", name, "address", "add", &format!("{}/30", network.neighbour), "dev", &theirs])?;
        ip(&["-n", name, "link", "set", &theirs, "up"])?;
        Ok(network)
    }

    /// Listens there. A socket belongs to the network in which it was made, whoever holds it later.
    fn listen(&self, port: u16) -> Result<TcpListener, String> {
        let place = File::open(format!("/run/netns/{}", self.name)).map_err(|error| error.to_string())?;
        let address = format!("{}:{port}", self.neighbour);
        let inside = std::thread::spawn(move || {
            move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| error.to_string())?;
            std::net::TcpListener::bind(address).map_err(|error| error.to_string())
        });
        let listener = inside.join().unwrap()?;
        listener.set_nonblocking(true).unwrap();
        Ok(TcpListener::from_std(listener).unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}

#[tokio::test]
async fn a_neighbour_in_another_network_hears_nothing() {
    let network = match Network::make() {
        Ok(network) => network,
        Err(why) => {
            eprintln!("SKIPPED: this machine lets nobody make a network: {why}");
            return;
        }
    };
    let canary = Canary::on(network.listen(80).unwrap());
    let neighbour = &network.neighbour;
    let octets: Vec<u32> = neighbour.split('.').map(|octet| octet.parse().unwrap()).collect();
    let number = octets.iter().fold(0, |number, octet| number * 256 + octet);
    let names = Names::saying(&[&[neighbour]]);
    let closed = fetcher(Rules::default(), &names, Limits::default());
    for host in [
        neighbour.clone(),
        number.to_string(),
        format!("[::ffff:{neighbour}]"),
        format!("[64:ff9b::{:x}:{:x}]", number >> 16, number & 0xffff),
        "name.example".to_owned(),
    ] {
        assert_eq!(fetch(&closed, &format!("http://{host}/")).await, Err(FetchError::NotAllowed), "{host}");
    }
    let site = Site::answering(redirect(302, &format!("http://{neighbour}/"))).await;
    let mut rules = site.rules();
    rules.ports.push(80);
    let sent_on = fetch::Fetcher::new(rules, Limits::default());
    assert_eq!(fetch(&sent_on, &site.url("/")).await, Err(FetchError::NotAllowed));
    assert_eq!(canary.seen().await, 0);

    // There is a way, and the listener would have noticed.
    let open = fetch::Fetcher::new(Rules { private: Private::Allowed, ..Rules::default() }, Limits::default());
    assert_eq!(fetch(&open, &format!("http://{neighbour}/")).await, Err(FetchError::Damaged));
    assert_eq!(canary.seen().await, 1);
}
