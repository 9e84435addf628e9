//! The ports: calls of MCP tools, and the definitions of runs that have them.

use crate::catalog::ToolDescription;
use crate::elicitation::AnswerDesk;
use crate::limits::McpLimits;
use crate::run_credentials::RunCredentials;
use crate::servers::McpServers;
use crate::token_source::TokenSource;
use crate::{authorization_question, authorize_tool, call, catalog};
use model::definition::{Definitions, McpServer, McpTool, ToolExecutor};
use model::error::ErrorInfo;
use model::mcp_credentials::McpCredentials;
use model::ports::{BoxFuture, BoxStream, Clock, DefinitionResolver, McpPins, ResolveRequest, ToolRunner};
use model::question::QuestionAnswer;
use model::tool::{ToolEvent, ToolRequest};
use model::{CallId, TaskId};
use std::fmt;
use std::sync::Arc;
use tools::Toolbox;

/// Runs tools of every kind. Clones share their connections to MCP servers.
#[derive(Clone)]
pub struct McpTools {
    toolbox: Toolbox,
    servers: McpServers,
    credentials: RunCredentials,
    clock: Arc<dyn Clock>,
    pins: Option<Arc<dyn McpPins>>,
    limits: McpLimits,
    tokens: Option<Arc<dyn TokenSource>>,
    desk: AnswerDesk,
}

impl McpTools {
    /// Servers are started by the toolbox, with its environment and its mark. Deadlines are measured by its clock.
    #[must_use]
    pub fn new(toolbox: Toolbox, limits: McpLimits) -> Self {
        let (servers, clock) = (McpServers::new(toolbox.clone(), limits, None), toolbox.clock());
        let (credentials, desk) = (RunCredentials::default(), AnswerDesk::default());
        Self { toolbox, servers, credentials, clock, pins: None, limits, tokens: None, desk }
    }

    /// Gets the tokens of users who have authorized this server from here.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<dyn TokenSource>) -> Self {
        let servers = McpServers::new(self.toolbox.clone(), self.limits, Some(Arc::clone(&tokens)));
        Self { servers, tokens: Some(tokens), ..self }
    }
}

impl McpTools {
    fn call_mcp_tool(&self, tool: McpTool, mut request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let has_asked = authorization_question::take_answer(&mut request);
        let may_ask = self.tokens.is_some() && !has_asked && authorization_question::uses_oauth(&tool);
        let (label, servers) = (tool.server.clone(), self.servers.clone());
        let events = if authorize_tool::is_stand_in(&tool) {
            authorize_tool::call(servers, tool, request)
        } else {
            let ports = call::CallPorts {
                servers,
                credentials: self.credentials.clone(),
                clock: Arc::clone(&self.clock),
                pins: self.pins.clone(),
                desk: self.desk.clone(),
            };
            call::call_tool(ports, tool, request)
        };
        if may_ask { authorization_question::ask_for_authorization(events, label) } else { events }
    }

    /// Remembers what users know of their tools here. Without it, no tool is known to have changed.
    #[must_use]
    pub fn with_pins(self, pins: Arc<dyn McpPins>) -> Self {
        Self { pins: Some(pins), ..self }
    }

    /// The tools of a server, for the operator.
    ///
    /// # Errors
    /// When the server cannot be started or does not list them.
    pub async fn inspect_server(&self, label: &str, server: &McpServer) -> Result<Vec<ToolDescription>, ErrorInfo> {
        catalog::inspect(&self.servers, label, server).await
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").finish_non_exhaustive()
    }
}

impl ToolRunner for McpTools {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        match request.executor.as_ref() {
            ToolExecutor::Mcp(tool) => {
                let tool = tool.clone();
                self.call_mcp_tool(tool, request)
            }
            _ => self.toolbox.call_tool(request),
        }
    }

    fn answer_question(&self, call: &CallId, question: &str, answer: QuestionAnswer) {
        self.desk.answer(call, question, answer);
    }
}

impl DefinitionResolver for McpTools {
    fn resolve_definitions(&self, request: ResolveRequest) -> BoxFuture<'static, Result<Arc<Definitions>, ErrorInfo>> {
        let this = self.clone();
        Box::pin(async move {
            let (pins, now) = (this.pins.as_deref(), this.clock.now());
            let resolved = catalog::resolve(&this.servers, &this.credentials, pins, now, request.clone()).await?;
            Ok(authorize_tool::add_stand_ins(this.tokens, &request, resolved).await)
        })
    }

    fn keep_credentials(&self, run: &TaskId, credentials: McpCredentials) {
        self.credentials.keep(run, &credentials);
    }

    fn forget_credentials(&self, run: &TaskId) {
        self.credentials.forget(run);
    }
}
