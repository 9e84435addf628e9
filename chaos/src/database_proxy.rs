//! What stands between a node and PostgreSQL: a TCP proxy that can hold everything up or drop notifications.
//!
//! While the link is down, nothing passes in either direction and no connection breaks, as between two machines whose network
//! is cut: each side finds out by its own time-outs. What was sent meanwhile arrives when the link is up again.

use anyhow::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const CHUNK_BYTES: usize = 64 * 1024;
/// The statement with which a connection subscribes to notifications.
const LISTEN: &[u8] = b"LISTEN ";
/// The type of the message `NotificationResponse`.
const NOTIFICATION: u8 = b'A';
/// A message has a type of one byte and a length of four, which counts itself.
const HEADER_BYTES: usize = 5;

/// Whether bytes pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    Up,
    Down,
}

#[derive(Debug)]
struct ProxyState {
    link: watch::Sender<Link>,
    drops_notifications: AtomicBool,
    dropped: AtomicU64,
    /// Chunks that were held up.
    held: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct DatabaseProxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
    task: JoinHandle<()>,
}

impl DatabaseProxy {
    /// Listens on this address of the machine.
    pub(crate) async fn start(address: Ipv4Addr, database_port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState {
            link: watch::Sender::new(Link::Up),
            drops_notifications: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            held: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept_connections(listener, database_port, Arc::clone(&state)));
        Ok(Self { address, state, task })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cut(&self) {
        self.state.held.store(0, Ordering::Relaxed);
        self.state.link.send_replace(Link::Down);
    }

    pub(crate) fn heal(&self) {
        self.state.link.send_replace(Link::Up);
    }

    /// Chunks that were held up since the last cut.
    pub(crate) fn held(&self) -> u64 {
        self.state.held.load(Ordering::Relaxed)
    }

    pub(crate) fn drop_notifications(&self, is_dropping: bool) {
        self.state.drops_notifications.store(is_dropping, Ordering::Relaxed);
    }

    /// Notifications that were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for DatabaseProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_connections(listener: TcpListener, database_port: u16, state: Arc<ProxyState>) {
    while let Ok((node, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            state.wait_until_up().await;
            // While PostgreSQL is down, the node's connection is closed, as a machine without the service would.
            let Ok(database) = TcpStream::connect((Ipv4Addr::LOCALHOST, database_port)).await else { return };
            if node.set_nodelay(true).and_then(|()| database.set_nodelay(true)).is_err() {
                return;
            }
            let ((from_node, to_node), (from_database, to_database)) = (node.into_split(), database.into_split());
            let listens = AtomicBool::new(false);
            tokio::select! {
                () = state.forward_requests(from_node, to_database, &listens) => {}
                () = state.forward_answers(from_database, to_node, &listens) => {}
            }
        });
    }
}

impl ProxyState {
    async fn wait_until_up(&self) {
        // The sender is in `self`, so it cannot be gone.
        let _ = self.link.subscribe().wait_for(|link| *link == Link::Up).await;
    }

    /// Waits if the link is down, also for a chunk that was read before it was cut.
    async fn pass(&self) {
        if *self.link.borrow() == Link::Down {
            self.held.fetch_add(1, Ordering::Relaxed);
            self.wait_until_up().await;
        }
    }

    async fn forward_requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, listens: &AtomicBool) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = from.read(&mut chunk).await;
            // The end of a connection does not arrive either.
            self.pass().await;
            let Some(bytes) = read.ok().and_then(|read| chunk.get(..read)).filter(|bytes| !bytes.is_empty()) else {
                return;
            };
            if bytes.windows(LISTEN.len()).any(|window| window == LISTEN) {
                listens.store(true, Ordering::Relaxed);
            }
            if to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }

    async fn forward_answers(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, listens: &AtomicBool) {
        let mut chunk = vec![0; CHUNK_BYTES];
        // Only the answers to LISTEN and what follows are taken apart.
        let mut messages = Vec::new();
        loop {
            let read = from.read(&mut chunk).await;
            self.pass().await;
            let Some(bytes) = read.ok().and_then(|read| chunk.get(..read)).filter(|bytes| !bytes.is_empty()) else {
                return;
            };
            let written = if listens.load(Ordering::Relaxed) {
                messages.extend_from_slice(bytes);
                let passed = self.filter_messages(&mut messages);
                to.write_all(&passed).await
            } else {
                to.write_all(bytes).await
            };
            if written.is_err() {
                return;
            }
        }
    }

    /// Takes the whole messages, without the notifications while they are dropped.
    fn filter_messages(&self, buffer: &mut Vec<u8>) -> Vec<u8> {
        let mut passed = Vec::new();
        while let Some(message) = take_message(buffer) {
            if message.first() == Some(&NOTIFICATION) && self.drops_notifications.load(Ordering::Relaxed) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            } else {
                passed.extend_from_slice(&message);
            }
        }
        passed
    }
}

/// Takes the first message, if it is whole.
fn take_message(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length: [u8; 4] = buffer.get(1..HEADER_BYTES)?.try_into().ok()?;
    let end = usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(1)?;
    if buffer.len() < end {
        return None;
    }
    let rest = buffer.split_off(end);
    Some(std::mem::replace(buffer, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notifications_are_dropped_and_half_a_message_waits() {
        let state = ProxyState {
            link: watch::Sender::new(Link::Up),
            drops_notifications: AtomicBool::new(true),
            dropped: AtomicU64::new(0),
            held: AtomicU64::new(0),
        };
        let mut buffer = b"A\x00\x00\x00\x05xZ\x00\x00\x00\x05IC\x00\x00\x00".to_vec();
        assert_eq!(state.filter_messages(&mut buffer), b"Z\x00\x00\x00\x05I");
        assert_eq!(buffer, b"C\x00\x00\x00");
        assert_eq!(state.dropped.load(Ordering::Relaxed), 1);
    }
}
