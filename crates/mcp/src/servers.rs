//! The pool of connections.
//!
//! A server is started when a run needs it. Who shares the program is its scope; a program that nobody has used for a while
//! is closed, and one that failed is not started again at once.
//!
//! ```text
//!            ┌────────── idle, or evicted ◀──────────┐
//!            ▼                                       │
//!   absent ──── needed ──▶ Starting ── ready ──▶ Ready ── died ──▶ Failed ── time is up, needed ──▶ Starting
//!                              └───────── failed ─────────────────▶ Failed
//! ```

use crate::connection::{ConnectionUse, ServerConnection};
use crate::http_session::EndpointCredential;
use crate::limits::{LISTS_PER_HOUR_MAX, McpLimits};
use crate::link::lock;
use crate::start::{ConnectionParts, Handshake, start_server};
use crate::token_source::{BearerToken, TokenSource, TokenUser};
use crate::tool_list::{ToolList, sha256_hex};
use model::definition::{McpAuth, McpEndpoint, McpProgram, McpScope, McpTransport};
use model::error::{ErrorCode, ErrorInfo};
use model::{ThreadId, UserId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tools::Toolbox;

/// Servers whose handshake is remembered.
const KNOWN_HANDSHAKES_MAX: usize = 256;
const HOUR: Duration = Duration::from_secs(3600);

/// Clones share their connections.
#[derive(Clone)]
pub(crate) struct McpServers(Arc<Pool>);

struct Pool {
    toolbox: Toolbox,
    limits: McpLimits,
    /// Tokens of users who have authorized this server.
    tokens: Option<Arc<dyn TokenSource>>,
    slots: Mutex<BTreeMap<SlotKey, Arc<Slot>>>,
    /// By program.
    handshakes: Mutex<HashMap<String, Handshake>>,
    /// The different lists of the last hour, by server.
    recent_lists: Mutex<HashMap<String, VecDeque<(String, Instant)>>>,
}

/// Who uses which program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SlotKey {
    label: String,
    /// As JSON.
    program: String,
    user: Option<UserId>,
    thread: Option<ThreadId>,
    /// A digest of the credential that came with the request: a session belongs to the credential that opened it.
    credential: Option<String>,
    is_endpoint: bool,
}

struct Slot {
    state: watch::Sender<SlotState>,
}

#[derive(Clone)]
enum SlotState {
    Starting { failures: u32 },
    Ready(Arc<ServerConnection>),
    Failed(FailedServer),
}

#[derive(Clone)]
struct FailedServer {
    error: ErrorInfo,
    /// Without a healthy time in between.
    failures: u32,
    retry_at: Instant,
}

/// A server, and for whom it is used.
pub(crate) struct ServerUser<'a> {
    pub(crate) label: &'a str,
    pub(crate) program: &'a McpProgram,
    pub(crate) user: &'a UserId,
    pub(crate) thread: &'a ThreadId,
    /// The user's own, for this server.
    pub(crate) credential: Option<BearerToken>,
}

impl McpServers {
    pub(crate) fn new(toolbox: Toolbox, limits: McpLimits, tokens: Option<Arc<dyn TokenSource>>) -> Self {
        let pool = Pool {
            toolbox,
            limits,
            tokens,
            slots: Mutex::default(),
            handshakes: Mutex::default(),
            recent_lists: Mutex::default(),
        };
        Self(Arc::new(pool))
    }

    /// A connection that is ready; starts the server if need be. It completes within the start time-out of the server; if the
    /// server has failed before, within `patience` besides.
    pub(crate) async fn connect(
        &self,
        server: &ServerUser<'_>,
        patience: Duration,
    ) -> Result<ConnectionUse, ErrorInfo> {
        let key = SlotKey::new(server);
        let mut may_wait = true;
        loop {
            let slot = self.find_slot(&key, server)?;
            let mut state = slot.state.subscribe();
            let now = state.borrow_and_update().clone();
            match now {
                SlotState::Ready(connection) => match connection.begin_use() {
                    Some(connection) => return Ok(connection),
                    // The task of the slot is about to say so.
                    None => drop(state.changed().await),
                },
                SlotState::Starting { .. } => {
                    may_wait = false;
                    drop(state.changed().await);
                    // If this start failed, that is the answer. One that has ended since without a failure is started again.
                    if let SlotState::Failed(failed) = &*state.borrow()
                        && failed.failures > 0
                    {
                        return Err(failed.error.clone());
                    }
                }
                SlotState::Failed(failed) if may_wait && failed.retry_at <= Instant::now() + patience => {
                    sleep_until(failed.retry_at).await;
                }
                SlotState::Failed(failed) => return Err(failed.error),
            }
        }
    }

    /// A connection that is ready, and its list of tools. A session that has ended is followed by a new one.
    pub(crate) async fn connect_listed(
        &self,
        server: &ServerUser<'_>,
        patience: Duration,
    ) -> Result<(ConnectionUse, Arc<ToolList>), ErrorInfo> {
        let connection = self.connect(server, patience).await?;
        match connection.tools().await {
            Ok(list) => Ok((connection, list)),
            Err(_) if connection.link.has_session_ended() => {
                drop(connection);
                let connection = self.connect(server, patience).await?;
                let list = connection.tools().await?;
                Ok((connection, list))
            }
            Err(error) => Err(error),
        }
    }

    /// The slot of a key, starting its server where it is not running. Only here are slots added, so bounds hold.
    fn find_slot(&self, key: &SlotKey, server: &ServerUser<'_>) -> Result<Arc<Slot>, ErrorInfo> {
        let now = Instant::now();
        let mut slots = lock(&self.0.slots);
        let failures = match slots.get(key).map(|slot| (slot, slot.state.borrow().clone())) {
            None => 0,
            Some((_, SlotState::Failed(failed))) if failed.retry_at <= now => failed.failures,
            Some((slot, _)) => return Ok(Arc::clone(slot)),
        };
        slots.remove(key);
        // Those whose time is up have nothing to say any more.
        slots.retain(|_, slot| !matches!(&*slot.state.borrow(), SlotState::Failed(failed) if failed.retry_at <= now));
        let credential = self.credential(server)?;
        self.make_room(&slots, key)?;
        let slot = Arc::new(Slot { state: watch::Sender::new(SlotState::Starting { failures }) });
        slots.insert(key.clone(), Arc::clone(&slot));
        drop(slots);
        let start = SlotStart { key: key.clone(), program: server.program.clone(), credential };
        tokio::spawn(run_slot(self.clone(), start, Arc::clone(&slot)));
        Ok(slot)
    }

    /// What the requests of a connection carry. The one that came with the user's request takes precedence.
    fn credential(&self, server: &ServerUser<'_>) -> Result<EndpointCredential, ErrorInfo> {
        if let Some(token) = &server.credential {
            return Ok(EndpointCredential::Token(token.clone()));
        }
        let McpTransport::Endpoint(McpEndpoint { url, auth: Some(auth), .. }) = &server.program.transport else {
            return Ok(EndpointCredential::None);
        };
        match (&**auth, &self.0.tokens) {
            (McpAuth::User, _) => Err(missing_credential(server.label)),
            (McpAuth::OAuth(_) | McpAuth::ClientCredentials(_), None) => Ok(EndpointCredential::None),
            (McpAuth::OAuth(_) | McpAuth::ClientCredentials(_), Some(source)) => {
                let user = TokenUser {
                    user: server.user.clone(),
                    label: server.label.to_owned(),
                    url: url.clone(),
                    auth: Arc::clone(auth),
                };
                Ok(EndpointCredential::Source { source: Arc::clone(source), user })
            }
        }
    }

    /// Closes the program or session that was unused for longest where there are as many as there may be.
    fn make_room(&self, slots: &BTreeMap<SlotKey, Arc<Slot>>, key: &SlotKey) -> Result<(), ErrorInfo> {
        let limits = &self.0.limits;
        let (all_max, own_max) = match key.is_endpoint {
            true => (limits.sessions_max, limits.sessions_per_user_max),
            false => (limits.processes_max, limits.processes_per_user_max),
        };
        let of_kind = |(other, _): &(&SlotKey, &Arc<Slot>)| other.is_endpoint == key.is_endpoint;
        let is_running = |slot: &Arc<Slot>| !matches!(&*slot.state.borrow(), SlotState::Failed(_));
        let of_user = |other: &SlotKey| key.user.is_some() && other.user == key.user;
        let all = slots.iter().filter(of_kind).filter(|(_, slot)| is_running(slot)).count();
        let own = slots.iter().filter(of_kind).filter(|(other, slot)| of_user(other) && is_running(slot)).count();
        let (is_own, limit) = match (own >= own_max, all >= all_max) {
            (true, _) => (true, own_max),
            (false, true) => (false, all_max),
            (false, false) => return Ok(()),
        };
        let candidates = slots.iter().filter(of_kind).filter(|(other, _)| !is_own || of_user(other));
        let unused = candidates.filter_map(|(_, slot)| match &*slot.state.borrow() {
            SlotState::Ready(connection) => Some((connection.unused_since()?, Arc::clone(connection))),
            SlotState::Starting { .. } | SlotState::Failed(_) => None,
        });
        let oldest = unused.min_by_key(|(since, _)| *since).map(|(_, connection)| connection);
        if oldest.is_some_and(|connection| connection.close_if_idle(Duration::ZERO)) {
            return Ok(());
        }
        let whose = if is_own { "you use" } else { "are in use" };
        let message = format!(
            "The MCP server `{}` was not started: {limit} MCP servers {whose} already; try again later.",
            key.label
        );
        Err(ErrorInfo::new(ErrorCode::McpUnavailable, message))
    }

    /// Counts the different lists of a server: each is stored with its runs, and kept.
    pub(crate) fn check_list_rate(&self, label: &str, list: &ToolList) -> Result<(), ErrorInfo> {
        if self.count_list(label, &list.digest) {
            return Ok(());
        }
        let message =
            format!("The MCP server `{label}` changes its tools more than {LISTS_PER_HOUR_MAX} times an hour.");
        Err(ErrorInfo::new(ErrorCode::McpUnavailable, message))
    }

    /// The reason why a server has no list is stored with runs, too. One that always has another gets a general one.
    pub(crate) fn limit_list_errors(&self, label: &str, error: ErrorInfo) -> ErrorInfo {
        if self.count_list(label, &error.message) {
            return error;
        }
        ErrorInfo { message: format!("The MCP server `{label}` cannot be used."), ..error }
    }

    /// Whether there were not too many different ones in the last hour.
    fn count_list(&self, label: &str, digest: &str) -> bool {
        let now = Instant::now();
        let mut recent = lock(&self.0.recent_lists);
        let lists = recent.entry(label.to_owned()).or_default();
        lists.retain(|(_, at)| now.duration_since(*at) < HOUR);
        let is_known = lists.iter().any(|(known, _)| known == digest);
        if !is_known && lists.len() < LISTS_PER_HOUR_MAX {
            lists.push_back((digest.to_owned(), now));
            return true;
        }
        is_known
    }

    fn backoff(&self, failures: u32) -> Duration {
        let McpLimits { backoff_min, backoff_max, .. } = self.0.limits;
        backoff_min.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(backoff_max)
    }

    fn remember_handshake(&self, program: &str, handshake: Handshake) {
        let mut handshakes = lock(&self.0.handshakes);
        if handshakes.len() >= KNOWN_HANDSHAKES_MAX {
            handshakes.clear();
        }
        handshakes.insert(program.to_owned(), handshake);
    }
}

impl SlotKey {
    fn new(server: &ServerUser<'_>) -> Self {
        let scope = server.program.scope;
        let endpoint = match &server.program.transport {
            McpTransport::Endpoint(endpoint) => Some(endpoint),
            McpTransport::Command(_) => None,
        };
        // What a user's credential opens is never shared with another user.
        let is_personal = server.credential.is_some() || endpoint.is_some_and(|endpoint| endpoint.auth.is_some());
        Self {
            label: server.label.to_owned(),
            // Its keys are strings, so it can be written.
            program: serde_json::to_string(server.program).unwrap_or_default(),
            user: (scope != McpScope::Shared || is_personal).then(|| server.user.clone()),
            thread: (scope == McpScope::Thread).then(|| server.thread.clone()),
            credential: server.credential.as_ref().map(|token| sha256_hex(token.as_str().as_bytes())),
            is_endpoint: endpoint.is_some(),
        }
    }
}

/// Counts a connection while it is open.
struct OpenConnection(metrics::Gauge);

impl OpenConnection {
    fn count(label: &str) -> Self {
        metrics::counter!("headwater_mcp_starts_total", "server" => label.to_owned()).increment(1);
        let gauge = metrics::gauge!("headwater_mcp_connections_open", "server" => label.to_owned());
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The error of a call or a run that needs the user's credential and has none.
pub(crate) fn missing_credential(label: &str) -> ErrorInfo {
    let message = format!(
        "The MCP server `{label}` needs your own credential. Send it with the request that starts the run, in the header \
         `Headwater-Mcp-Authorization: {label} TOKEN`; it is kept in memory until the run ends, and lost when Headwater \
         restarts."
    );
    ErrorInfo::new(ErrorCode::McpUnauthorized, message)
}

struct SlotStart {
    key: SlotKey,
    program: McpProgram,
    credential: EndpointCredential,
}

/// Starts a server and watches it until it ends.
async fn run_slot(servers: McpServers, start: SlotStart, slot: Arc<Slot>) {
    let SlotStart { key, program, credential } = start;
    let failures = match &*slot.state.borrow() {
        SlotState::Starting { failures } => *failures,
        SlotState::Ready(_) | SlotState::Failed(_) => 0,
    };
    let known = lock(&servers.0.handshakes).get(&key.program).copied();
    let fail = |error: ErrorInfo, failures: u32| {
        tracing::warn!(server = key.label, failures, error = error.message, "an MCP server has failed");
        metrics::counter!("headwater_mcp_failures_total", "server" => key.label.clone()).increment(1);
        // A user with another credential, or who has authorized this server meanwhile, does not wait.
        let backoff = match error.has_code(ErrorCode::McpUnauthorized) {
            true => Duration::ZERO,
            false => servers.backoff(failures),
        };
        let retry_at = Instant::now() + backoff;
        slot.state.send_replace(SlotState::Failed(FailedServer { error, failures, retry_at }));
    };
    let parts = ConnectionParts { toolbox: &servers.0.toolbox, label: &key.label, program: &program, credential };
    let connection = match start_server(parts, known).await {
        Ok((connection, handshake)) => {
            servers.remember_handshake(&key.program, handshake);
            Arc::new(connection)
        }
        Err(error) => return fail(error, failures.saturating_add(1)),
    };
    let ready_at = Instant::now();
    slot.state.send_replace(SlotState::Ready(Arc::clone(&connection)));
    tracing::info!(server = key.label, "an MCP server is ready");
    let _open = OpenConnection::count(&key.label);
    let idle = servers.0.limits.idle;
    loop {
        tokio::select! {
            reason = connection.link.closed() => {
                connection.close(reason.clone());
                if connection.was_idle() || connection.link.has_session_ended() {
                    break;
                }
                let is_healthy = ready_at.elapsed() >= servers.0.limits.healthy;
                return fail(reason, if is_healthy { 1 } else { failures.saturating_add(1) });
            }
            () = sleep(idle / 2) => {
                connection.close_if_idle(idle);
            }
        }
    }
    let mut slots = lock(&servers.0.slots);
    if slots.get(&key).is_some_and(|current| Arc::ptr_eq(current, &slot)) {
        slots.remove(&key);
    }
    drop(slots);
    // A call that waits for this slot looks for it again, and starts the server.
    let error = ErrorInfo::new(ErrorCode::McpUnavailable, "The MCP server was idle.");
    slot.state.send_replace(SlotState::Failed(FailedServer { error, failures: 0, retry_at: Instant::now() }));
}
