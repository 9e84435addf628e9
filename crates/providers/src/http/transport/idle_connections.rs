//! Connections between two turns.

use super::connection::Connection;
use http::Uri;
use http::uri::{Authority, Scheme};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Services close idle connections after about a minute; to be first avoids requests on a connection that is closing.
const IDLE_TIME_MAX: Duration = Duration::from_secs(45);
/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);
/// Per service. More connections than this are closed after their response.
const CONNECTIONS_MAX: usize = 256;

#[derive(Default)]
pub(super) struct IdleConnections(Mutex<IdleState>);

#[derive(Default)]
struct IdleState {
    /// By service; the one that was used last is last.
    connections: HashMap<(Option<Scheme>, Option<Authority>), Vec<IdleConnection>>,
    is_swept: bool,
}

struct IdleConnection {
    connection: Connection,
    since: Instant,
}

impl IdleConnections {
    /// A connection that is open, as far as one can know.
    pub(super) fn take(&self, uri: &Uri) -> Option<Connection> {
        loop {
            let newest = self.lock().connections.get_mut(&key_of(uri)).and_then(Vec::pop)?;
            let IdleConnection { mut connection, since } = newest;
            if since.elapsed() < IDLE_TIME_MAX && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    pub(super) fn put(self: &Arc<Self>, uri: &Uri, connection: Connection) {
        let mut state = self.lock();
        let connections = state.connections.entry(key_of(uri)).or_default();
        if connections.len() >= CONNECTIONS_MAX {
            return;
        }
        connections.push(IdleConnection { connection, since: Instant::now() });
        if !std::mem::replace(&mut state.is_swept, true) {
            tokio::spawn(Arc::clone(self).sweep());
        }
    }

    /// Closes what is old or was closed by the service. Ends when nothing is left.
    async fn sweep(self: Arc<Self>) {
        loop {
            sleep(SWEEP_INTERVAL).await;
            let mut state = self.lock();
            state.connections.retain(|_, connections| {
                connections.retain_mut(|idle| idle.since.elapsed() < IDLE_TIME_MAX && idle.connection.is_usable());
                !connections.is_empty()
            });
            if state.connections.is_empty() {
                state.is_swept = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnections").finish_non_exhaustive()
    }
}

fn key_of(uri: &Uri) -> (Option<Scheme>, Option<Authority>) {
    (uri.scheme().cloned(), uri.authority().cloned())
}
