//! A server that has been started: its tools, and who uses it.

use crate::limits::{CALLS_PER_CONNECTION_MAX, LIST_AGE_MAX, LIST_PAGES_MAX, UNANSWERED_CALLS_MAX};
use crate::link::{ConnectionLink, FailureSlot, lock};
use crate::tool_list::ToolList;
use model::error::{ErrorCode, ErrorInfo};
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientRequest, ErrorCode as RpcErrorCode, ListToolsRequest, PaginatedRequestParams, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub(crate) struct ServerConnection {
    label: String,
    service: RunningService<RoleClient, ClientConfig>,
    pub(crate) link: Arc<ConnectionLink>,
    pub(crate) calls: Arc<Semaphore>,
    uses: Mutex<ConnectionUses>,
    list: Mutex<Option<CachedList>>,
    /// Held by the caller that asks for the list.
    listing: tokio::sync::Mutex<()>,
    list_timeout: Duration,
    /// Calls in a row that were given up before the server answered.
    unanswered_calls: AtomicU32,
}

struct ConnectionUses {
    count: usize,
    last_end: Instant,
    is_closing: bool,
}

struct CachedList {
    list: Arc<ToolList>,
    valid_until: Instant,
}

/// Keeps a connection from being closed as idle.
pub(crate) struct ConnectionUse(Arc<ServerConnection>);

impl std::ops::Deref for ConnectionUse {
    type Target = ServerConnection;

    fn deref(&self) -> &ServerConnection {
        &self.0
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        let mut uses = lock(&self.0.uses);
        uses.count = uses.count.saturating_sub(1);
        uses.last_end = Instant::now();
    }
}

impl ServerConnection {
    pub(crate) fn new(
        label: &str,
        service: RunningService<RoleClient, ClientConfig>,
        link: Arc<ConnectionLink>,
        list_timeout: Duration,
    ) -> Self {
        Self {
            label: label.to_owned(),
            service,
            link,
            calls: Arc::new(Semaphore::new(CALLS_PER_CONNECTION_MAX)),
            uses: Mutex::new(ConnectionUses { count: 0, last_end: Instant::now(), is_closing: false }),
            list: Mutex::new(None),
            listing: tokio::sync::Mutex::new(()),
            list_timeout,
            unanswered_calls: AtomicU32::new(0),
        }
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// `None` if the connection is closed or about to be.
    pub(crate) fn begin_use(self: &Arc<Self>) -> Option<ConnectionUse> {
        let mut uses = lock(&self.uses);
        if uses.is_closing || self.link.close_reason().is_some() {
            return None;
        }
        uses.count += 1;
        Some(ConnectionUse(Arc::clone(self)))
    }

    /// Closes the connection if nobody has used it for `idle`.
    pub(crate) fn close_if_idle(&self, idle: Duration) -> bool {
        let mut uses = lock(&self.uses);
        uses.is_closing |= uses.count == 0 && uses.last_end.elapsed() >= idle;
        let is_closing = uses.is_closing;
        drop(uses);
        if is_closing {
            self.close(ErrorInfo::new(ErrorCode::McpUnavailable, format!("The MCP server `{}` was idle.", self.label)));
        }
        is_closing
    }

    /// Whether it was closed because nobody used it.
    pub(crate) fn was_idle(&self) -> bool {
        lock(&self.uses).is_closing
    }

    /// When the last use ended; `None` while there is one.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let uses = lock(&self.uses);
        (uses.count == 0).then_some(uses.last_end)
    }

    /// Ends the program.
    pub(crate) fn close(&self, reason: ErrorInfo) {
        self.link.close(reason);
        self.service.cancellation_token().cancel();
    }

    pub(crate) fn note_answer(&self) {
        self.unanswered_calls.store(0, Ordering::Relaxed);
    }

    /// A call was given up. A server that answers nothing any more is started again for the next call; while others wait for
    /// it, they decide.
    pub(crate) fn note_unanswered(&self) {
        let count = self.unanswered_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let is_alone = self.calls.available_permits() + 1 >= CALLS_PER_CONNECTION_MAX;
        if count >= UNANSWERED_CALLS_MAX && is_alone {
            let message = format!("The MCP server `{}` did not answer {count} calls and was stopped.", self.label);
            self.close(ErrorInfo::new(ErrorCode::McpUnavailable, message));
        }
    }

    /// The tools as the server lists them now, or has listed them a while ago if it has not said since that they changed.
    pub(crate) async fn tools(&self) -> Result<Arc<ToolList>, ErrorInfo> {
        if let Some(list) = self.valid_list() {
            return Ok(list);
        }
        let _turn = self.listing.lock().await;
        if let Some(list) = self.valid_list() {
            return Ok(list);
        }
        let fetched = tokio::select! {
            biased;
            reason = self.link.closed() => return Err(reason),
            fetched = timeout(self.list_timeout, self.fetch_list()) => fetched,
        };
        let Ok(fetched) = fetched else {
            let message = format!("The MCP server `{}` did not list its tools in time and was stopped.", self.label);
            let error = ErrorInfo::new(ErrorCode::McpUnavailable, message);
            self.close(error.clone());
            return Err(error);
        };
        let (list, age_max) = fetched?;
        let cached = CachedList { list: Arc::clone(&list), valid_until: Instant::now() + age_max };
        *lock(&self.list) = Some(cached);
        Ok(list)
    }

    fn valid_list(&self) -> Option<Arc<ToolList>> {
        let mut cached = lock(&self.list);
        if self.link.take_new_tools() {
            *cached = None;
        }
        cached.as_ref().filter(|cached| Instant::now() < cached.valid_until).map(|cached| Arc::clone(&cached.list))
    }

    /// The tools, and how long the list is valid.
    async fn fetch_list(&self) -> Result<(Arc<ToolList>, Duration), ErrorInfo> {
        let (mut listed, mut cursor, mut age_max) = (Vec::new(), None, LIST_AGE_MAX);
        for _ in 0..LIST_PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let (failure, mut request) = (FailureSlot::default(), ListToolsRequest::with_param(params));
            request.extensions.insert(failure.clone());
            let request = ClientRequest::ListToolsRequest(request);
            let handle = self.peer().send_request_with_option(request, PeerRequestOptions::no_options()).await;
            let response = match handle {
                Ok(handle) => handle.await_response().await,
                Err(error) => Err(error),
            };
            let page = match response {
                Ok(result) => read_page(result).ok_or_else(|| self.list_error("is not a list of tools"))?,
                Err(ServiceError::McpError(_)) if let Some(failure) = failure.get() => {
                    return Err(failure.error.clone());
                }
                // A server without tools need not know the request.
                Err(ServiceError::McpError(error)) if error.code == RpcErrorCode::METHOD_NOT_FOUND => break,
                Err(ServiceError::McpError(error)) => return Err(self.list_error(&error.message)),
                Err(_) => return Err(self.link.close_reason().unwrap_or_else(|| self.list_error("is missing"))),
            };
            listed.extend(page.tools);
            age_max = page.ttl.map_or(age_max, |ttl| age_max.min(ttl));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let reading = tokio::task::spawn_blocking(move || ToolList::read(listed));
        let list = reading.await.map_err(|_| self.list_error("cannot be read"))?;
        Ok((Arc::new(list), age_max))
    }

    fn list_error(&self, what: &str) -> ErrorInfo {
        let what = crate::tool_list::clean_text(what, crate::limits::ERROR_TEXT_BYTES_MAX);
        let message = format!("The MCP server `{}` cannot list its tools: {what}", self.label);
        ErrorInfo::new(ErrorCode::McpUnavailable, message)
    }
}

struct ToolPage {
    tools: Vec<Value>,
    next_cursor: Option<String>,
    ttl: Option<Duration>,
}

/// One tool that is not a tool makes a page that the library does not recognise; the others are read all the same.
fn read_page(result: ServerResult) -> Option<ToolPage> {
    match result {
        ServerResult::ListToolsResult(page) => Some(ToolPage {
            tools: page.tools.iter().filter_map(|tool| serde_json::to_value(tool).ok()).collect(),
            next_cursor: page.next_cursor,
            ttl: page.ttl_ms.map(Duration::from_millis),
        }),
        ServerResult::CustomResult(page) => {
            let next_cursor = page.0.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let ttl = page.0.get("ttlMs").and_then(Value::as_u64).map(Duration::from_millis);
            Some(ToolPage { tools: page.0.get("tools")?.as_array()?.clone(), next_cursor, ttl })
        }
        _ => None,
    }
}
