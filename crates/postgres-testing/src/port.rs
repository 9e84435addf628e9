//! Ports to listen on.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below the ports that Linux gives to outgoing connections. While a server is down, no connection takes its port, in
/// particular not the attempt of its own client to reconnect.
const PORTS: Range<u16> = 15_000..30_000;
const ATTEMPTS_MAX: u64 = 100;

/// A random port that is free now. Another process may take it before a server listens on it.
pub(crate) fn find_free_port() -> u16 {
    let random = RandomState::new();
    let count = u64::from(PORTS.end - PORTS.start);
    let ports = (0..ATTEMPTS_MAX)
        .filter_map(|attempt| Some(PORTS.start + u16::try_from(random.hash_one(attempt) % count).ok()?));
    let mut free = ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.next().unwrap_or_else(|| panic!("no free port on 127.0.0.1 in {PORTS:?} after {ATTEMPTS_MAX} attempts"))
}

/// Calls `start` with free ports until it does not report that another process was faster.
pub(crate) fn start_on_free_port<T>(mut start: impl FnMut(u16) -> Result<T, String>) -> T {
    for _ in 0..ATTEMPTS_MAX {
        match start(find_free_port()) {
            Ok(started) => return started,
            Err(why) if why.contains("Address already in use") => {}
            Err(why) => panic!("{why}"),
        }
    }
    panic!("another process took each of {ATTEMPTS_MAX} ports that were free");
}
