//! Hooks: a program or an address that may rewrite what is said before the model sees it. JSON in, JSON out.

use crate::byte_source::read_to_end;
use crate::command::CommandSource;
use crate::http;
use crate::process::{Process, ProcessSpec};
use crate::secrets::CallSecrets;
use crate::toolbox::Toolbox;
use model::definition::InputHook;
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{HookRequest, HookResponse};
use reqwest::{Method, Request, Url};
use std::time::Duration;
use tokio::time::timeout;

/// A hook may send the whole history back, but no more than that.
const HOOK_ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Asks. Whatever goes wrong is `hook_failed`.
pub(crate) async fn call_hook(
    toolbox: &Toolbox,
    hook: &InputHook,
    request: &HookRequest,
) -> Result<HookResponse, ErrorInfo> {
    let within = Duration::from_millis(hook.timeout_ms);
    let late = || ErrorInfo::new(ErrorCode::HookFailed, format!("no answer within {} ms", hook.timeout_ms));
    let answer = timeout(within, Box::pin(fetch_answer(toolbox, hook, request))).await.unwrap_or_else(|_| Err(late()));
    answer.map_err(|error| ErrorInfo {
        code: ErrorCode::HookFailed.as_str().to_owned(),
        message: format!("the input hook failed: {}", error.message),
        ..error
    })
}

async fn fetch_answer(toolbox: &Toolbox, hook: &InputHook, request: &HookRequest) -> Result<HookResponse, ErrorInfo> {
    let question =
        serde_json::to_vec(request).map_err(|error| ErrorInfo::new(ErrorCode::HookFailed, error.to_string()))?;
    let answer = match &hook.url {
        Some(url) => call_url(toolbox, url, request, question).await?,
        None => call_command(toolbox, &hook.command, request, question).await?,
    };
    // Serde would also take a list in the order of the fields, and an empty one as an answer that changes nothing.
    if !answer.trim_ascii_start().starts_with(b"{") {
        return Err(ErrorInfo::new(ErrorCode::HookFailed, "its answer cannot be used: it is not an object"));
    }
    serde_json::from_slice(&answer)
        .map_err(|error| ErrorInfo::new(ErrorCode::HookFailed, format!("its answer cannot be used: {error}")))
}

async fn call_url(toolbox: &Toolbox, url: &str, asked: &HookRequest, body: Vec<u8>) -> Result<Vec<u8>, ErrorInfo> {
    let url = Url::parse(url)
        .map_err(|error| ErrorInfo::new(ErrorCode::HookFailed, format!("`{url}` is not an address: {error}")))?;
    let mut request = Request::new(Method::POST, url);
    http::set_json_body(&mut request, body);
    let who = [
        ("headwater-user", asked.user.as_str()),
        ("headwater-thread", asked.thread.as_str()),
        ("headwater-run", asked.run.as_str()),
    ];
    for (name, value) in who {
        http::set_header(request.headers_mut(), name, value)?;
    }
    read_to_end(http::send_request(&toolbox.http, request, &CallSecrets::default()).await?, HOOK_ANSWER_BYTES_MAX).await
}

async fn call_command(
    toolbox: &Toolbox,
    command: &[String],
    asked: &HookRequest,
    mut input: Vec<u8>,
) -> Result<Vec<u8>, ErrorInfo> {
    input.push(b'\n');
    let path = (toolbox.env)("PATH");
    let who = [
        ("HEADWATER_USER", asked.user.as_str()),
        ("HEADWATER_THREAD", asked.thread.as_str()),
        ("HEADWATER_RUN", asked.run.as_str()),
    ];
    // A hook has no list of what it may have of the environment. It has what scripts cannot do without.
    let env = who.into_iter().chain(path.as_deref().map(|path| ("PATH", path)));
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let process = Process::spawn(ProcessSpec { command, dir: None, env, stdin: input, search_path: path }).await?;
    read_to_end(CommandSource { process, secrets: CallSecrets::default() }, HOOK_ANSWER_BYTES_MAX).await
}
