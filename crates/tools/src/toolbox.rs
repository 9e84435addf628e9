//! Who does it: the one implementation of the ports that the engine is given.

use crate::byte_source::{self, CallDeadline};
use crate::secrets::EnvLookup;
use crate::{builtin, command, hook, http};
use futures_util::stream;
use model::definition::{InputHook, ToolExecutor};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{BoxFuture, BoxStream, Clock, HookRequest, HookResponse, HookRunner, ToolRunner};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use std::fmt;
use std::sync::Arc;

/// Why there is no toolbox.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ToolboxError(#[from] reqwest::Error);

/// Runs tools of every kind, and asks hooks.
#[derive(Clone)]
pub struct Toolbox {
    pub(crate) http: reqwest::Client,
    pub(crate) env: EnvLookup,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Toolbox {
    /// With `env`, the door to the server's environment, and the time that deadlines are in.
    ///
    /// # Errors
    /// When the HTTP client cannot be set up.
    pub fn new(env: EnvLookup, clock: Arc<dyn Clock>) -> Result<Self, ToolboxError> {
        // A redirect could lead a secret's header to somebody else, and a proxy would be a setting that no page lists.
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
        };
        // A system without any list of whom to trust can still be asked over plain HTTP.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self { http, env, clock })
    }
}

/// The environment holds secrets, so nothing of it is shown.
impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").finish_non_exhaustive()
    }
}

impl ToolRunner for Toolbox {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let toolbox = self.clone();
        let deadline = CallDeadline { clock: Arc::clone(&self.clock), at_ms: request.deadline };
        match request.executor.as_ref() {
            ToolExecutor::Builtin => builtin::call_builtin(request, toolbox.clock),
            ToolExecutor::Http(tool) => {
                let tool = tool.clone();
                byte_source::stream_events(
                    deadline,
                    async move { http::start_http_call(&toolbox, &tool, &request).await },
                )
            }
            ToolExecutor::Command(tool) => {
                let tool = tool.clone();
                byte_source::stream_events(
                    deadline,
                    async move { command::start_command(&toolbox, &tool, &request).await },
                )
            }
            ToolExecutor::Client | ToolExecutor::Agent { .. } | ToolExecutor::Handoff { .. } => {
                not_a_server_tool(&request.name)
            }
        }
    }
}

impl HookRunner for Toolbox {
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        let (toolbox, hook) = (self.clone(), hook.clone());
        Box::pin(async move { hook::call_hook(&toolbox, &hook, &request).await })
    }
}

/// What the run loop has others do never gets here; if it did, the run must not hang.
fn not_a_server_tool(name: &str) -> BoxStream<'static, ToolEvent> {
    let output = ToolOutput::failed(ErrorCode::InvalidTool, format!("`{name}` is not a tool that the server runs"));
    Box::pin(stream::iter([ToolEvent::End(output)]))
}
