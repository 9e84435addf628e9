//! The handler of Messages and Chat Completions: `gateway::resent_history` finds the run, and this sends its segment as a
//! stream or as one object.

use crate::app::App;
use crate::auth::Caller;
use crate::idempotency_key::parse_idempotency_key;
use crate::json_body::JsonBody;
use crate::mcp_authorization::parse_mcp_credentials;
use crate::problem::Problem;
use crate::sse::{self, SseStyle};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use engine::NewRun;
use gateway::attachments::uploads::{self, Uploads};
use gateway::client_tools::check_client_tools;
use gateway::resent_history::{
    SegmentEnd, check_stateless_request, client_tool_segment, project_segment, split_resent_history, start_of_segment,
};
use gateway::resolve_run::{RequestInput, ResolvedRun, resolve_run};
use gateway::stream_start::wait_for_end;
use heavy_work::run_in_place;
use model::error::ErrorCode;
use model::json::{ExactValue, JsonObject};
use model::ports::Projection;
use model::{TaskId, UserId};
use protocol::client_input::InvalidField;
use protocol::stateless::{RunFailure, RunFailureKind, StatelessRequest};

/// Tells SDKs whether to retry.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What differs between these protocols; `P` is the projection.
pub(crate) struct StatelessProtocol<P> {
    pub(crate) route: &'static str,
    pub(crate) sse_style: SseStyle,
    pub(crate) parse_request: fn(&JsonObject) -> Result<StatelessRequest, InvalidField>,
    /// From a run, its segment, and whether the stream includes usage.
    pub(crate) new_response: fn(TaskId, u32, bool) -> P,
    pub(crate) object: fn(&P) -> ExactValue,
    pub(crate) failure: fn(&P) -> Option<&RunFailure>,
    /// Whether the segment has ended, with an object or a failure.
    pub(crate) is_over: fn(&P) -> bool,
}

pub(crate) async fn handle<P: Projection + Clone + 'static>(
    app: App,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
    protocol: StatelessProtocol<P>,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let body_permit = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, protocol.route, || json.digest())?;
    let metadata = json.metadata();
    let body: JsonObject = json.into_object()?;
    let mut request = (protocol.parse_request)(&body)?;
    drop(body);
    request.metadata = metadata;
    check_stateless_request(&app.gateway, &caller.user, &request, idempotency.as_ref()).await?;
    let (stream, include_usage) = (request.stream, request.include_usage);
    // Who waits for the object takes a stream's place.
    let stream_permit = sse::acquire_stream_permit(&app, &caller)?;
    // Before the comparison with the log, which has URLs in place of bytes.
    let parts = uploads::parts_of_client_input(&mut request.input);
    let uploads = Uploads::extract(&app.gateway.attachments, "messages", parts).await?;
    let (items, conversation) = split_resent_history(&app.gateway, &caller.user, request.input).await?;
    let new = NewRun {
        agent: request.model,
        tools: check_client_tools(&app.gateway, &caller.user, request.tools).await?,
        metadata: request.metadata,
        model_settings: request.model_settings,
        idempotency,
        mcp_credentials: parse_mcp_credentials(&app, &headers)?,
        ..NewRun::default()
    };
    let input = RequestInput { items, uploads };
    let resolved = Box::pin(resolve_run(&app.gateway, &caller.user, input, conversation, new)).await?;
    drop(body_permit);
    let segment = client_tool_segment(&app.gateway, &caller.user, &resolved).await?;
    let response = (protocol.new_response)(resolved.run.clone(), segment, include_usage);
    let name = format!("{}/{}/{segment}/{include_usage}", protocol.route, resolved.run);
    let start = start_of_segment(&app.gateway, &caller.user, &resolved, name, response.boxed_clone()).await?;
    if stream {
        return Ok(sse::sse_response_with_permit(&app, &caller, start, protocol.sse_style, stream_permit));
    }
    app.check_stream_end(wait_for_end(&app.gateway, &caller.user, &resolved.run, start).await?)?;
    read_full_response(&app, &caller.user, &resolved, response, &protocol).await
}

/// Reads a segment that has ended as one object.
async fn read_full_response<P: Projection>(
    app: &App,
    user: &UserId,
    resolved: &ResolvedRun,
    mut response: P,
    protocol: &StatelessProtocol<P>,
) -> Result<Response, Problem> {
    match project_segment(&app.gateway, user, resolved, &mut response, protocol.is_over).await? {
        SegmentEnd::Reached => {}
        SegmentEnd::Missing => {
            let message = "The run was given up before it began.".to_owned();
            let failure = RunFailure { kind: RunFailureKind::Cancelled, message, retryable: false };
            return Err(problem_of_failure(&failure));
        }
    }
    match (protocol.failure)(&response) {
        Some(failure) => Err(problem_of_failure(failure)),
        None => Ok(run_in_place(|| axum::Json((protocol.object)(&response)).into_response())),
    }
}

fn problem_of_failure(failure: &RunFailure) -> Problem {
    let code = match failure.kind {
        RunFailureKind::RateLimited => ErrorCode::RateLimited,
        RunFailureKind::Overloaded => ErrorCode::Overloaded,
        RunFailureKind::Cancelled => ErrorCode::Cancelled,
        RunFailureKind::Other => ErrorCode::RunFailed,
    };
    let should_retry = if failure.retryable { "true" } else { "false" };
    Problem::new(code, failure.message.clone()).with_header(SHOULD_RETRY, should_retry)
}
