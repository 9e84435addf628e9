//! One call of a tool, as a stream of events.

use crate::connection::ConnectionUse;
use crate::content;
use crate::http_transport::ArgumentHeaders;
use crate::limits::{ERROR_TEXT_BYTES_MAX, PROGRESS_INTERVAL, PROGRESS_UPDATES_MAX};
use crate::link::{CallRoute, FailureSlot, ProgressSender, RequestFate, lost_call_error};
use crate::run_credentials::RunCredentials;
use crate::servers::{McpServers, ServerUser};
use crate::tool_list::{ListedTool, ToolList, clean_text};
use futures_util::stream;
use model::definition::McpTool;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{BoxStream, Clock};
use model::tool::{ProgressUpdate, ToolEvent, ToolOutput, ToolRequest};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long a call waits for the next start of a server that has failed, within its own time limit.
const BACKOFF_PATIENCE: Duration = Duration::from_secs(60);
/// tokio's timers end somewhere; no call is that long.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// Nothing happens before the stream is polled, and dropping it cancels the call.
pub(crate) fn call_tool(
    servers: McpServers,
    credentials: RunCredentials,
    tool: McpTool,
    request: ToolRequest,
    clock: Arc<dyn Clock>,
) -> BoxStream<'static, ToolEvent> {
    let state = CallPhase::New(Box::new(NewCall { servers, credentials, tool, request, clock }));
    Box::pin(stream::unfold(state, next_event))
}

struct NewCall {
    servers: McpServers,
    credentials: RunCredentials,
    tool: McpTool,
    request: ToolRequest,
    clock: Arc<dyn Clock>,
}

enum CallPhase {
    New(Box<NewCall>),
    Running(Box<RunningCall>),
    Ended,
}

async fn next_event(state: CallPhase) -> Option<(ToolEvent, CallPhase)> {
    let mut running = match state {
        CallPhase::New(call) => match start_call(*call).await {
            Ok(running) => Box::new(running),
            Err(error) => return Some((ToolEvent::End(ToolOutput::from_error(error)), CallPhase::Ended)),
        },
        CallPhase::Running(running) => running,
        CallPhase::Ended => return None,
    };
    let event = running.next_event().await;
    let next = if matches!(event, ToolEvent::End(_)) { CallPhase::Ended } else { CallPhase::Running(running) };
    Some((event, next))
}

async fn start_call(call: NewCall) -> Result<RunningCall, ErrorInfo> {
    let timeout_ms = call.request.deadline.saturating_sub(call.clock.now()).min(TIMEOUT_MS_MAX);
    let deadline = McpCallDeadline { at: Instant::now() + Duration::from_millis(timeout_ms), timeout_ms };
    let SentCall { pending, progress, failure } = send_call(&call, &deadline).await?;
    let (server, output_bytes_max) = (call.tool.server.clone(), call.request.output_bytes_max);
    Ok(RunningCall {
        pending: Some(pending),
        progress,
        failure,
        progress_at: Instant::now(),
        updates: 0,
        server,
        output_bytes_max,
        deadline,
        call: Some(call),
    })
}

/// A call that the server has been sent.
struct SentCall {
    pending: PendingRequest,
    progress: watch::Receiver<Option<ProgressUpdate>>,
    failure: FailureSlot,
}

async fn send_call(call: &NewCall, deadline: &McpCallDeadline) -> Result<SentCall, ErrorInfo> {
    let NewCall { servers, credentials, tool, request, .. } = call;
    let credential = credentials.find(&request.run, &tool.server, tool.has_user_credential)?;
    let sending = async {
        let server = ServerUser {
            label: &tool.server,
            program: &tool.program,
            user: &request.user,
            thread: &request.thread,
            credential,
        };
        let (connection, list) = servers.connect_listed(&server, BACKOFF_PATIENCE).await?;
        let permit = Arc::clone(&connection.calls).acquire_owned().await.map_err(|_| stopped(&tool.server))?;
        let listed = check_spec(&list, tool)?;
        send_request(connection, permit, listed, call).await
    };
    timeout_at(deadline.at, sending).await.map_err(|_| deadline.error())?
}

/// The tool must be the one that the run was started with, and that people may have approved.
fn check_spec<'a>(list: &'a ToolList, tool: &McpTool) -> Result<&'a ListedTool, ErrorInfo> {
    let what = match list.tools.get(&tool.tool) {
        Some(listed) if listed.digest == tool.spec_digest => return Ok(listed),
        Some(_) => "describes the tool in another way than when this run was started",
        None => "has this tool no more",
    };
    let message = format!("The MCP server `{}` {what}: it was not called. Start a new run to use it.", tool.server);
    Err(ErrorInfo::new(ErrorCode::ToolChanged, message))
}

async fn send_request(
    connection: ConnectionUse,
    permit: OwnedSemaphorePermit,
    listed: &ListedTool,
    call: &NewCall,
) -> Result<SentCall, ErrorInfo> {
    let NewCall { tool, request, .. } = call;
    let (progress, updates) = watch::channel(None);
    let progress: Arc<ProgressSender> = Arc::new(progress);
    let failure = FailureSlot::default();
    let mut call = CallToolRequest::new(CallToolRequestParams::new(tool.tool.clone()));
    call.extensions.insert(CallRoute { arguments: request.arguments.as_str().into(), progress });
    call.extensions.insert(failure.clone());
    call.extensions.insert(ArgumentHeaders::new(&listed.parameters, &request.arguments));
    let call = ClientRequest::CallToolRequest(call);
    let sent = connection.peer().send_request_with_option(call, PeerRequestOptions::no_options()).await;
    let handle = sent.map_err(|_| connection.link.close_reason().unwrap_or_else(|| stopped(&tool.server)))?;
    let pending = PendingRequest { handle: Some(handle), connection, _permit: permit };
    Ok(SentCall { pending, progress: updates, failure })
}

struct McpCallDeadline {
    at: Instant,
    timeout_ms: u64,
}

impl McpCallDeadline {
    fn error(&self) -> ErrorInfo {
        let message = format!("The tool did not finish within {} ms and was stopped.", self.timeout_ms);
        ErrorInfo::new(ErrorCode::ToolTimeout, message)
    }
}

struct RunningCall {
    /// `None` once it has been answered or given up.
    pending: Option<PendingRequest>,
    progress: watch::Receiver<Option<ProgressUpdate>>,
    failure: FailureSlot,
    /// When the next update may be shown.
    progress_at: Instant,
    updates: usize,
    server: String,
    output_bytes_max: usize,
    deadline: McpCallDeadline,
    /// To send it again, once, where the server has refused it because its session had ended.
    call: Option<NewCall>,
}

/// A request without its response. Dropping it tells the server.
struct PendingRequest {
    handle: Option<RequestHandle<RoleClient>>,
    connection: ConnectionUse,
    _permit: OwnedSemaphorePermit,
}

impl PendingRequest {
    fn finish(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.connection.link.remove_route(&handle.progress_token);
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.connection.link.remove_route(&handle.progress_token);
        self.connection.note_unanswered();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(handle.cancel(Some("the call was given up".to_owned())));
        }
    }
}

impl RunningCall {
    async fn next_event(&mut self) -> ToolEvent {
        let Some(pending) = &mut self.pending else {
            return ToolEvent::End(ToolOutput::from_error(stopped(&self.server)));
        };
        let Some(handle) = &mut pending.handle else {
            return ToolEvent::End(ToolOutput::from_error(stopped(&self.server)));
        };
        let may_update = self.updates < PROGRESS_UPDATES_MAX;
        let response = tokio::select! {
            biased;
            update = next_update(&mut self.progress, self.progress_at), if may_update => {
                self.updates += 1;
                self.progress_at = Instant::now() + PROGRESS_INTERVAL;
                return ToolEvent::Progress(update);
            }
            response = &mut handle.rx => response.unwrap_or(Err(ServiceError::TransportClosed)),
            _ = pending.connection.link.closed() => Err(ServiceError::TransportClosed),
            () = sleep_until(self.deadline.at) => {
                self.pending = None;
                return ToolEvent::End(ToolOutput::from_error(self.deadline.error()));
            }
        };
        let closed = pending.connection.link.close_reason();
        pending.finish();
        pending.connection.note_answer();
        self.pending = None;
        let has_no_session = self.failure.get().is_some_and(|failure| failure.fate == RequestFate::SessionEnded);
        if let Some(call) = self.call.take().filter(|_| has_no_session) {
            return self.send_again(&call).await;
        }
        ToolEvent::End(self.read_response(response, closed))
    }

    /// The same call in a new session: in the one that had ended, nothing was done.
    async fn send_again(&mut self, call: &NewCall) -> ToolEvent {
        match send_call(call, &self.deadline).await {
            Ok(SentCall { pending, progress, failure }) => {
                (self.pending, self.progress, self.failure) = (Some(pending), progress, failure);
                Box::pin(self.next_event()).await
            }
            Err(error) => ToolEvent::End(ToolOutput::from_error(error)),
        }
    }

    fn read_response(&self, response: Result<ServerResult, ServiceError>, closed: Option<ErrorInfo>) -> ToolOutput {
        let server = &self.server;
        if let Some(failure) = self.failure.get() {
            return ToolOutput::from_error(failure.clone().into_call_error());
        }
        let error = match response {
            Ok(ServerResult::CallToolResult(result)) => return content::read_result(result, self.output_bytes_max),
            Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_)) => {
                let message = format!("The MCP server `{server}` asks for more, which is not supported.");
                ErrorInfo::new(ErrorCode::McpUnsupported, message)
            }
            Ok(_) => {
                let message = format!("The MCP server `{server}` answered with something that is not a result.");
                ErrorInfo::new(ErrorCode::McpProtocolError, message)
            }
            Err(ServiceError::McpError(error)) => {
                let text = clean_text(&error.message, ERROR_TEXT_BYTES_MAX);
                ErrorInfo::new(ErrorCode::ToolFailed, format!("The MCP server `{server}` refused the call: {text}"))
            }
            Err(_) => lost_call_error(closed.unwrap_or_else(|| stopped(server))),
        };
        ToolOutput::from_error(error)
    }
}

/// The newest update, not before `at`.
async fn next_update(progress: &mut watch::Receiver<Option<ProgressUpdate>>, at: Instant) -> ProgressUpdate {
    loop {
        if progress.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        sleep_until(at).await;
        if let Some(update) = progress.borrow_and_update().clone() {
            return update;
        }
    }
}

fn stopped(server: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::McpUnavailable, format!("The MCP server `{server}` was stopped."))
}
