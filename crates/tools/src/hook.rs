//! Input hooks: a program or a URL that may rewrite the input before the model sees it. JSON in, JSON out.

use crate::byte_source::read_to_end;
use crate::command::CommandSource;
use crate::context::ToolContext;
use crate::http;
use crate::process::{Process, ProcessSpec};
use crate::process_mark::ProcessMark;
use crate::secrets::CallSecrets;
use model::definition::InputHook;
use model::error::ErrorInfo;
use model::ports::{HookRequest, HookResponse};
use reqwest::{Method, Request, Url};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A hook may return the whole history.
const HOOK_RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Every failure has the code `hook_failed`.
pub(crate) async fn call_hook(
    context: &ToolContext,
    hook: &InputHook,
    request: &HookRequest,
) -> Result<HookResponse, ErrorInfo> {
    let limit = Duration::from_millis(hook.timeout_ms);
    let timed_out = || Err(ErrorInfo::external("", format!("no response within {} ms", hook.timeout_ms)));
    let response = timeout(limit, Box::pin(fetch_response(context, hook, request))).await;
    response.unwrap_or_else(|_| timed_out()).map_err(|error| ErrorInfo {
        code: "hook_failed".to_owned(),
        message: format!("the input hook failed: {}", error.message),
        ..error
    })
}

async fn fetch_response(
    context: &ToolContext,
    hook: &InputHook,
    request: &HookRequest,
) -> Result<HookResponse, ErrorInfo> {
    let body = serde_json::to_vec(request).map_err(|error| ErrorInfo::external("", error.to_string()))?;
    let response = match &hook.url {
        Some(url) => call_url(context, url, request, body).await?,
        None => call_command(context, &hook.command, request, body).await?,
    };
    // Serde would also accept an array in the order of the fields, and an empty one as a response that changes nothing.
    if !response.trim_ascii_start().starts_with(b"{") {
        return Err(ErrorInfo::external("", "its response is invalid: it is not an object"));
    }
    serde_json::from_slice(&response)
        .map_err(|error| ErrorInfo::external("", format!("its response is invalid: {error}")))
}

async fn call_url(
    context: &ToolContext,
    url: &str,
    hook_request: &HookRequest,
    body: Vec<u8>,
) -> Result<Vec<u8>, ErrorInfo> {
    let url = Url::parse(url).map_err(|error| ErrorInfo::external("", format!("`{url}` is not a URL: {error}")))?;
    let mut request = Request::new(Method::POST, url);
    http::set_json_body(&mut request, body);
    let identity = [
        ("headwater-user", hook_request.user.as_str()),
        ("headwater-thread", hook_request.thread.as_str()),
        ("headwater-run", hook_request.run.as_str()),
    ];
    for (name, value) in identity {
        http::set_header(request.headers_mut(), name, value)?;
    }
    read_to_end(http::send_request(&context.http, request, &CallSecrets::default()).await?, HOOK_RESPONSE_BYTES_MAX)
        .await
}

async fn call_command(
    context: &ToolContext,
    command: &[String],
    hook_request: &HookRequest,
    mut input: Vec<u8>,
) -> Result<Vec<u8>, ErrorInfo> {
    input.push(b'\n');
    let path = (context.env)("PATH");
    let identity = [
        ("HEADWATER_USER", hook_request.user.as_str()),
        ("HEADWATER_THREAD", hook_request.thread.as_str()),
        ("HEADWATER_RUN", hook_request.run.as_str()),
    ];
    // A hook has no `env_pass`, so it gets the one variable that scripts cannot do without.
    let env = identity.into_iter().chain(path.as_deref().map(|path| ("PATH", path)));
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = env.chain(context.process_mark.as_ref().map(ProcessMark::variable)).collect();
    let process = Process::spawn(ProcessSpec { command, dir: None, env, search_path: path }, input).await?;
    read_to_end(CommandSource { process, secrets: Arc::default() }, HOOK_RESPONSE_BYTES_MAX).await
}
