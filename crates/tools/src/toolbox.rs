//! Dispatches calls and hooks: the one implementation of the ports that the engine uses.

use crate::byte_source::{self, CallDeadline};
use crate::context::ToolContext;
use crate::duplex_process::{DuplexProcess, ProcessInput};
use crate::endpoint::HttpEndpoint;
use crate::process_mark::ProcessMark;
use crate::secrets::EnvLookup;
use crate::{builtin, command, hook, http};
use futures_util::stream;
use model::definition::{CommandTool, InputHook, McpEndpoint, ToolExecutor};
use model::error::{ErrorCode, ErrorInfo};
use model::ports::{BoxFuture, BoxStream, Clock, HookRequest, HookResponse, HookRunner, ToolRunner};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use std::fmt;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client: {0}")]
pub struct ToolboxError(#[from] reqwest::Error);

/// Runs tools of every kind, and hooks. Clones share their connections.
#[derive(Clone)]
pub struct Toolbox {
    context: ToolContext,
}

impl Toolbox {
    /// `env` reads the server's environment; `clock` is the one that deadlines are measured by.
    pub fn new(env: EnvLookup, clock: Arc<dyn Clock>) -> Result<Self, ToolboxError> {
        // A redirect could take a secret's header to another host, and a proxy would be a setting that no page lists.
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("headwater/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
        };
        // Without a system trust store, plain HTTP still works.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build())?;
        Ok(Self { context: ToolContext { http, env, clock, process_mark: None } })
    }

    /// Measures deadlines by another clock: the one by which they are set.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.context.clock = clock;
        self
    }

    /// Marks the programs that are started from now on.
    #[must_use]
    pub fn with_process_mark(mut self, mark: ProcessMark) -> Self {
        self.context.process_mark = Some(mark);
        self
    }

    /// Starts a program that stays until it is dropped. It has the variables of its definition and no others.
    pub async fn start_process(&self, program: &CommandTool) -> Result<(DuplexProcess, ProcessInput), ErrorInfo> {
        DuplexProcess::start(&self.context, program).await
    }

    /// A server that is spoken to in many requests. Its secrets are resolved once.
    pub async fn open_endpoint(&self, endpoint: &McpEndpoint) -> Result<HttpEndpoint, ErrorInfo> {
        HttpEndpoint::open(&self.context, endpoint).await
    }

    /// The clock that deadlines are measured by.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.context.clock)
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").finish_non_exhaustive()
    }
}

impl ToolRunner for Toolbox {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let context = self.context.clone();
        let deadline = CallDeadline { clock: Arc::clone(&context.clock), at_ms: request.deadline };
        match request.executor.as_ref() {
            ToolExecutor::Builtin => builtin::call_builtin(request, context.clock),
            ToolExecutor::Http(tool) => {
                let tool = tool.clone();
                let start = async move { http::start_http_call(&context, &tool, &request).await };
                byte_source::stream_events(deadline, start)
            }
            ToolExecutor::Command(tool) => {
                let tool = tool.clone();
                let start = async move { command::start_command(&context, &tool, &request).await };
                byte_source::stream_events(deadline, start)
            }
            // The crate `mcp` calls the tools of MCP servers.
            ToolExecutor::Mcp(_)
            | ToolExecutor::ToolSearch
            | ToolExecutor::Client
            | ToolExecutor::Agent { .. }
            | ToolExecutor::Handoff { .. } => not_a_server_tool(&request.name),
        }
    }
}

impl HookRunner for Toolbox {
    fn run_hook(&self, hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        let (context, hook) = (self.context.clone(), hook.clone());
        Box::pin(async move { hook::call_hook(&context, &hook, &request).await })
    }
}

/// The run loop never dispatches these executors here; if it did, the run must not hang.
fn not_a_server_tool(name: &str) -> BoxStream<'static, ToolEvent> {
    let output = ToolOutput::failed(ErrorCode::InvalidTool, format!("the server does not run the tool `{name}`"));
    Box::pin(stream::iter([ToolEvent::End(output)]))
}
