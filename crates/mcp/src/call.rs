//! One call of a tool, as a stream of events.

use crate::connection::ConnectionUse;
use crate::content;
use crate::elicitation::{AnswerDesk, ElicitationStep, OpenElicitations, input_responses, read_input_required};
use crate::limits::{
    CALLS_PER_CONNECTION_MAX, ERROR_TEXT_BYTES_MAX, PROGRESS_INTERVAL, PROGRESS_UPDATES_MAX, REPEATED_CALL_DELAY,
    REPEATED_CALLS_MAX,
};
use crate::link::{CallRoute, ElicitationSender, FailureSlot, ProgressSender, RequestFate, lost_call_error};
use crate::param_headers::ArgumentHeaders;
use crate::run_credentials::RunCredentials;
use crate::servers::{McpServers, ServerUser};
use crate::targets::{read_target_result, target_request};
use crate::tool_list::{ListedTool, ToolList, clean_text};
use futures_util::stream;
use model::Millis;
use model::definition::{McpTarget, McpTool};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{BoxStream, Clock, McpPins};
use model::question::ToolAnswers;
use model::tool::{ProgressUpdate, ToolEvent, ToolOutput, ToolRequest};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use schema::ToolSchema;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long a call waits for the next start of a server that has failed, within its own time limit.
const BACKOFF_PATIENCE: Duration = Duration::from_secs(60);
/// tokio's timers end somewhere; no call is that long.
const TIMEOUT_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// What calls need of others.
#[derive(Clone)]
pub(crate) struct CallPorts {
    pub(crate) servers: McpServers,
    pub(crate) credentials: RunCredentials,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pins: Option<Arc<dyn McpPins>>,
    pub(crate) desk: AnswerDesk,
}

/// Nothing happens before the stream is polled, and dropping it cancels the call.
pub(crate) fn call_tool(ports: CallPorts, tool: McpTool, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
    let state = CallPhase::New(Box::new(NewCall { ports, tool, request, repeats: 0, is_sent_again: false }));
    Box::pin(stream::unfold(state, next_event))
}

#[derive(Clone)]
struct NewCall {
    ports: CallPorts,
    tool: McpTool,
    request: ToolRequest,
    /// How often the server has asked to be called again.
    repeats: u32,
    /// Whether the server has refused it once because its session had ended.
    is_sent_again: bool,
}

enum CallPhase {
    New(Box<NewCall>),
    Running(Box<RunningCall>),
    Ended,
}

async fn next_event(mut state: CallPhase) -> Option<(ToolEvent, CallPhase)> {
    loop {
        let mut running = match state {
            CallPhase::New(call) => match start_call(*call).await {
                Ok(running) => Box::new(running),
                Err(error) => return Some((ToolEvent::End(ToolOutput::from_error(error)), CallPhase::Ended)),
            },
            CallPhase::Running(running) => running,
            CallPhase::Ended => return None,
        };
        match running.next_step().await {
            CallStep::Event(event) => return Some((event, CallPhase::Running(running))),
            CallStep::End(event) => {
                running.count_outcome(&event);
                return Some((event, CallPhase::Ended));
            }
            CallStep::Continue => state = CallPhase::Running(running),
            CallStep::SendAgain => {
                let call = NewCall { is_sent_again: true, ..running.call.clone() };
                drop(running);
                state = CallPhase::New(Box::new(call));
            }
            CallStep::CallAgain(state_of_server) => {
                let deadline = running.deadline.at;
                match running.call_again(state_of_server) {
                    Ok(call) => {
                        drop(running);
                        sleep_until(deadline.min(Instant::now() + REPEATED_CALL_DELAY)).await;
                        state = CallPhase::New(Box::new(call));
                    }
                    Err(error) => return Some((ToolEvent::End(ToolOutput::from_error(error)), CallPhase::Ended)),
                }
            }
        }
    }
}

/// What a call that runs does next.
enum CallStep {
    Event(ToolEvent),
    /// The last event.
    End(ToolEvent),
    /// Nothing to report.
    Continue,
    /// The session had ended, and the server has done nothing.
    SendAgain,
    /// The server has nothing to ask, and wants to be called again with this state.
    CallAgain(Option<String>),
}

async fn start_call(call: NewCall) -> Result<RunningCall, ErrorInfo> {
    let NewCall { ports: CallPorts { servers, credentials, clock, pins, desk }, tool, request, .. } = call.clone();
    let timeout_ms = request.deadline.saturating_sub(clock.now()).min(TIMEOUT_MS_MAX);
    let deadline = McpCallDeadline { at: Instant::now() + Duration::from_millis(timeout_ms), timeout_ms };
    let (elicitations, open_elicitations) = OpenElicitations::new(&request.call_id, &request.user, desk);
    let failure = FailureSlot::default();
    let starting = async {
        let server = ServerUser {
            label: &tool.server,
            program: &tool.program,
            user: &request.user,
            thread: &request.thread,
            credential: credentials.find(&request.run, &tool.server, tool.has_user_credential)?,
        };
        let (connection, list) = servers.connect_listed(&server, BACKOFF_PATIENCE).await?;
        let permits = if connection.link.has_asked() { CALLS_PER_CONNECTION_MAX } else { 1 };
        let permits = u32::try_from(permits).unwrap_or(1);
        let permit = Arc::clone(&connection.calls).acquire_many_owned(permits).await;
        let permit = permit.map_err(|_| stopped(&tool.server))?;
        let listed = check_spec(&list, &tool)?;
        accept_change(pins.as_deref(), &tool, &request, clock.now()).await;
        let message = new_request(&tool, &request, listed, elicitations, &failure);
        let promised = listed.and_then(|listed| listed.output_schema.clone());
        Ok::<_, ErrorInfo>((send_call(connection, permit, &tool.server, message).await?, promised))
    };
    let ((pending, progress), promised) = timeout_at(deadline.at, starting).await.map_err(|_| deadline.error())??;
    Ok(RunningCall {
        pending: Some(pending),
        progress,
        failure,
        progress_at: Instant::now(),
        updates: 0,
        elicitations: open_elicitations,
        server: tool.server,
        target: tool.target,
        promised,
        output_bytes_max: request.output_bytes_max,
        deadline,
        call,
    })
}

/// A tool that has changed runs only if a person approved the call, and with it the change.
async fn accept_change(pins: Option<&dyn McpPins>, tool: &McpTool, request: &ToolRequest, now: Millis) {
    let Some(pins) = pins.filter(|_| tool.is_changed) else { return };
    let replaced = pins.replace_pin(&request.user, &tool.server, &tool.tool, &tool.spec_digest, now).await;
    if let Err(error) = replaced {
        tracing::warn!(server = tool.server, %error, "the consent to a changed tool is not kept: people are asked again");
    }
}

/// The tool must be the one that the run was started with, and that people may have approved. `None` for what no server
/// lists.
fn check_spec<'a>(list: &'a ToolList, tool: &McpTool) -> Result<Option<&'a ListedTool>, ErrorInfo> {
    if tool.target != McpTarget::Tool {
        return Ok(None);
    }
    let what = match list.tools.get(&tool.tool) {
        Some(listed) if listed.digest == tool.spec_digest => return Ok(Some(listed)),
        Some(_) => "describes the tool in another way than when this run was started",
        None => "has this tool no more",
    };
    let message = format!("The MCP server `{}` {what}: it was not called. Start a new run to use it.", tool.server);
    Err(ErrorInfo::new(ErrorCode::ToolChanged, message))
}

/// The newest progress of a call.
type ProgressReceiver = watch::Receiver<Option<ProgressUpdate>>;

/// The request of a call, with what the transport needs to know of it.
fn new_request(
    tool: &McpTool,
    request: &ToolRequest,
    listed: Option<&ListedTool>,
    elicitations: ElicitationSender,
    failure: &FailureSlot,
) -> (ClientRequest, ProgressReceiver) {
    let (progress, updates) = watch::channel(None);
    let progress: Arc<ProgressSender> = Arc::new(progress);
    if let Some(call) = target_request(tool.target, &request.arguments, failure) {
        return (call, updates);
    }
    let mut params = CallToolRequestParams::new(tool.tool.clone());
    if let Some(answers) = &request.answers {
        params.input_responses = Some(input_responses(answers));
        params.request_state.clone_from(&answers.state);
    }
    let mut call = CallToolRequest::new(params);
    call.extensions.insert(CallRoute { arguments: request.arguments.as_str().into(), progress, elicitations });
    call.extensions.insert(failure.clone());
    if let Some(listed) = listed {
        call.extensions.insert(ArgumentHeaders::new(&listed.parameters, &request.arguments));
    }
    (ClientRequest::CallToolRequest(call), updates)
}

async fn send_call(
    connection: ConnectionUse,
    permit: OwnedSemaphorePermit,
    server: &str,
    (call, updates): (ClientRequest, ProgressReceiver),
) -> Result<(PendingRequest, ProgressReceiver), ErrorInfo> {
    let sent = connection.peer().send_request_with_option(call, PeerRequestOptions::no_options()).await;
    let handle = sent.map_err(|_| connection.link.close_reason().unwrap_or_else(|| stopped(server)))?;
    Ok((PendingRequest { handle: Some(handle), connection, _permit: permit }, updates))
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
    progress: ProgressReceiver,
    failure: FailureSlot,
    /// When the next update may be shown.
    progress_at: Instant,
    updates: usize,
    elicitations: OpenElicitations,
    server: String,
    target: McpTarget,
    /// What results must be.
    promised: Option<Arc<ToolSchema>>,
    output_bytes_max: usize,
    deadline: McpCallDeadline,
    /// To call the server once more.
    call: NewCall,
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
    fn count_outcome(&self, event: &ToolEvent) {
        let outcome = match event {
            ToolEvent::End(ToolOutput { error: None, .. }) => "completed",
            ToolEvent::End(_) => "failed",
            ToolEvent::Lost(_) => "lost",
            _ => return,
        };
        metrics::counter!("headwater_mcp_calls_total", "server" => self.server.clone(), "outcome" => outcome)
            .increment(1);
    }

    async fn next_step(&mut self) -> CallStep {
        let Some(pending) = &mut self.pending else { return self.fail(stopped(&self.server)) };
        let Some(handle) = &mut pending.handle else { return self.fail(stopped(&self.server)) };
        let link = Arc::clone(&pending.connection.link);
        let may_update = self.updates < PROGRESS_UPDATES_MAX;
        // The time of a person does not count.
        let is_asking = self.elicitations.has_open();
        let response = tokio::select! {
            biased;
            update = next_update(&mut self.progress, self.progress_at), if may_update && !is_asking => {
                self.updates += 1;
                self.progress_at = Instant::now() + PROGRESS_INTERVAL;
                return CallStep::Event(ToolEvent::Progress(update));
            }
            response = &mut handle.rx => response.unwrap_or(Err(ServiceError::TransportClosed)),
            _ = link.closed() => Err(ServiceError::TransportClosed),
            step = self.elicitations.next_step(&link) => return self.take_elicitation(step),
            () = sleep_until(self.deadline.at), if !is_asking => {
                self.pending = None;
                return self.fail(self.deadline.error());
            }
        };
        let closed = link.close_reason();
        pending.finish();
        pending.connection.note_answer();
        self.pending = None;
        let has_no_session = self.failure.get().is_some_and(|failure| failure.fate == RequestFate::SessionEnded);
        if has_no_session && !self.call.is_sent_again {
            return CallStep::SendAgain;
        }
        match response {
            Ok(ServerResult::CallToolResult(result)) if self.target == McpTarget::Tool => {
                CallStep::End(ToolEvent::End(self.read_result(result).await))
            }
            Ok(result) if self.target != McpTarget::Tool && !is_request_for_input(&result) => {
                let output = read_target_result(&self.server, self.target, result, self.output_bytes_max);
                CallStep::End(ToolEvent::End(output))
            }
            Ok(ServerResult::InputRequiredResult(result)) if self.target == McpTarget::Tool => {
                match read_input_required(&self.server, result) {
                    Ok(input) if input.questions.is_empty() => CallStep::CallAgain(input.state),
                    Ok(input) => CallStep::End(ToolEvent::InputRequired(input)),
                    Err(error) => self.fail(error),
                }
            }
            response => CallStep::End(self.read_failure(response, closed)),
        }
    }

    fn take_elicitation(&mut self, step: ElicitationStep) -> CallStep {
        match step {
            ElicitationStep::Ask(question) => CallStep::Event(ToolEvent::Question(question)),
            ElicitationStep::Withdraw => CallStep::Event(ToolEvent::QuestionWithdrawn),
            ElicitationStep::Answered(after) => {
                self.deadline.at += after;
                CallStep::Continue
            }
        }
    }

    fn fail(&self, error: ErrorInfo) -> CallStep {
        CallStep::End(ToolEvent::End(ToolOutput::from_error(error)))
    }

    /// The same call once more, with the state of the server.
    fn call_again(&self, state: Option<String>) -> Result<NewCall, ErrorInfo> {
        let repeats = self.call.repeats + 1;
        if repeats > REPEATED_CALLS_MAX {
            let message = format!(
                "The MCP server `{}` asked {REPEATED_CALLS_MAX} times to be called again, and asks once more.",
                self.server
            );
            return Err(ErrorInfo::new(ErrorCode::TooManyQuestions, message));
        }
        let mut call = self.call.clone();
        call.request.answers = Some(ToolAnswers { state, ..ToolAnswers::default() });
        Ok(NewCall { repeats, ..call })
    }

    /// Checks and reads a result beside the async workers: it may be large.
    async fn read_result(&self, result: CallToolResult) -> ToolOutput {
        let (promised, bytes_max) = (self.promised.clone(), self.output_bytes_max);
        let reading = tokio::task::spawn_blocking(move || content::read_result(result, promised.as_deref(), bytes_max));
        reading.await.unwrap_or_else(|_| ToolOutput::failed(ErrorCode::Internal, "The result cannot be read."))
    }

    fn read_failure(&self, response: Result<ServerResult, ServiceError>, closed: Option<ErrorInfo>) -> ToolEvent {
        let server = &self.server;
        if let Some(failure) = self.failure.get() {
            let is_lost = failure.fate == RequestFate::Unknown && failure.error.has_code(ErrorCode::McpUnavailable);
            let error = failure.clone().into_call_error();
            return if is_lost { ToolEvent::Lost(error) } else { ToolEvent::End(ToolOutput::from_error(error)) };
        }
        let error = match response {
            Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_)) => {
                let message = format!("The MCP server `{server}` asks for something that is not supported.");
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
            Err(_) => {
                let reason = closed.unwrap_or_else(|| stopped(server));
                // A server that was stopped for what it sent would send it again.
                if reason.has_code(ErrorCode::McpUnavailable) {
                    return ToolEvent::Lost(ErrorInfo { message: end_sentence(&reason.message), ..reason });
                }
                lost_call_error(reason)
            }
        };
        ToolEvent::End(ToolOutput::from_error(error))
    }
}

fn is_request_for_input(result: &ServerResult) -> bool {
    matches!(result, ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_))
}

/// The newest update, not before `at`.
async fn next_update(progress: &mut ProgressReceiver, at: Instant) -> ProgressUpdate {
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

fn end_sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

fn stopped(server: &str) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::McpUnavailable, format!("The MCP server `{server}` was stopped."))
}
