//! Hooks: a program or an address that may rewrite what is said before the model sees it. JSON in, JSON out.

use crate::command::Program;
use crate::http;
use crate::process::{Launch, Process};
use crate::secret::Secrets;
use crate::source::gather;
use crate::toolbox::Toolbox;
use model::definition::InputHook;
use model::event::ErrorInfo;
use model::ports::{HookRequest, HookResponse};
use reqwest::{Method, Request, Url};
use std::time::Duration;
use tokio::time::timeout;

/// A hook may send the whole history back, but no more than that.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Asks. Whatever goes wrong is `hook_failed`.
pub(crate) async fn ask(toolbox: &Toolbox, hook: &InputHook, request: &HookRequest) -> Result<HookResponse, ErrorInfo> {
    let within = Duration::from_millis(hook.timeout_ms);
    let late = || ErrorInfo::new("", format!("no answer within {} ms", hook.timeout_ms));
    let answer = timeout(within, Box::pin(answer(toolbox, hook, request))).await.unwrap_or_else(|_| Err(late()));
    answer.map_err(|error| ErrorInfo {
        code: "hook_failed".to_owned(),
        message: format!("the input hook failed: {}", error.message),
        ..error
    })
}

async fn answer(toolbox: &Toolbox, hook: &InputHook, request: &HookRequest) -> Result<HookResponse, ErrorInfo> {
    let question = serde_json::to_vec(request).map_err(|error| ErrorInfo::new("", error.to_string()))?;
    let answer = match &hook.url {
        Some(url) => post(toolbox, url, request, question).await?,
        None => run(toolbox, &hook.command, request, question).await?,
    };
    // Serde would also take a list in the order of the fields, and an empty one as an answer that changes nothing.
    if !answer.trim_ascii_start().starts_with(b"{") {
        return Err(ErrorInfo::new("", "its answer cannot be used: it is not an object"));
    }
    serde_json::from_slice(&answer).map_err(|error| ErrorInfo::new("", format!("its answer cannot be used: {error}")))
}

async fn post(toolbox: &Toolbox, url: &str, asked: &HookRequest, body: Vec<u8>) -> Result<Vec<u8>, ErrorInfo> {
    let url = Url::parse(url).map_err(|error| ErrorInfo::new("", format!("`{url}` is not an address: {error}")))?;
    let mut request = Request::new(Method::POST, url);
    http::set_json(&mut request, body);
    let who = [
        ("headwater-user", asked.user.as_str()),
        ("headwater-thread", asked.thread.as_str()),
        ("headwater-run", asked.run.as_str()),
    ];
    for (name, value) in who {
        http::put(request.headers_mut(), name, value)?;
    }
    gather(http::send(&toolbox.http, request, &Secrets::default()).await?, ANSWER_BYTES_MAX).await
}

async fn run(
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
    let process = Process::start(Launch { command, dir: None, env, input, path }).await?;
    gather(Program { process, secrets: Secrets::default() }, ANSWER_BYTES_MAX).await
}
