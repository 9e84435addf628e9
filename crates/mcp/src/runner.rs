//! The ports: calls of MCP tools, and the definitions of runs that have them.

use crate::elicitation::AnswerDesk;
use crate::limits::McpLimits;
use crate::run_credentials::RunCredentials;
use crate::servers::McpServers;
use crate::token_source::TokenSource;
use crate::{call, catalog};
use model::definition::{Definitions, ToolExecutor};
use model::error::ErrorInfo;
use model::mcp_credentials::McpCredentials;
use model::ports::{BoxFuture, BoxStream, Clock, DefinitionResolver, ResolveRequest, ToolRunner};
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
    limits: McpLimits,
    desk: AnswerDesk,
}

impl McpTools {
    /// Servers are started by the toolbox, with its environment and its mark. Deadlines are measured by its clock.
    #[must_use]
    pub fn new(toolbox: Toolbox, limits: McpLimits) -> Self {
        let (servers, clock) = (McpServers::new(toolbox.clone(), limits, None), toolbox.clock());
        let (credentials, desk) = (RunCredentials::default(), AnswerDesk::default());
        Self { toolbox, servers, credentials, clock, limits, desk }
    }

    /// Gets the tokens of users who have authorized this server from here.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<dyn TokenSource>) -> Self {
        let servers = McpServers::new(self.toolbox.clone(), self.limits, Some(tokens));
        Self { servers, ..self }
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
                let (servers, credentials) = (self.servers.clone(), self.credentials.clone());
                call::call_tool(servers, credentials, tool, request, Arc::clone(&self.clock), self.desk.clone())
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
        let (servers, credentials) = (self.servers.clone(), self.credentials.clone());
        Box::pin(async move { catalog::resolve(servers, credentials, request).await })
    }

    fn keep_credentials(&self, run: &TaskId, credentials: McpCredentials) {
        self.credentials.keep(run, &credentials);
    }

    fn forget_credentials(&self, run: &TaskId) {
        self.credentials.forget(run);
    }
}
