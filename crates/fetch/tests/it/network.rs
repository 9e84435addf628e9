//! A network namespace for one test.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::process::Command;
use tokio::net::TcpListener;

/// A network with one neighbour. Dropping it removes it.
pub(crate) struct Network {
    name: String,
    pub(crate) neighbour: String,
}

impl Network {
    /// Creates it, or reports that this machine does not allow that and the test proves nothing here.
    pub(crate) fn make_or_skip(test: &str) -> Option<Self> {
        let made = Self::make();
        if let Err(why) = &made {
            // Straight to the file descriptor: the test harness would capture a print.
            let said = writeln!(std::io::stderr(), "SKIPPED {test}: this machine lets nobody make a network: {why}");
            said.expect("stderr is there");
        }
        made.ok()
    }

    fn make() -> Result<Self, String> {
        let id = std::process::id();
        let (ours, theirs) = (format!("hwa{id}"), format!("hwb{id}"));
        // From the shared carrier range, so that it collides with no real network.
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

    /// Listens there. A socket stays in the network in which it was created.
    pub(crate) fn listen(&self, port: u16) -> Result<TcpListener, String> {
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
