//! The ports: calls of MCP tools, and the definitions of runs that have them.

use crate::limits::McpLimits;
use crate::run_credentials::RunCredentials;
use crate::servers::McpServers;
use crate::token_source::TokenSource;
use crate::{authorize_tool, call, catalog};
use model::TaskId;
use model::definition::{Definitions, ToolExecutor};
use model::error::ErrorInfo;
use model::mcp_credentials::McpCredentials;
use model::ports::{BoxFuture, BoxStream, Clock, DefinitionResolver, ResolveRequest, ToolRunner};
use model::tool::{ToolEvent, ToolRequest};
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
    tokens: Option<Arc<dyn TokenSource>>,
}

impl McpTools {
    /// Servers are started by the toolbox, with its environment and its mark. Deadlines are measured by its clock.
    #[must_use]
    pub fn new(toolbox: Toolbox, limits: McpLimits) -> Self {
        let (servers, clock) = (McpServers::new(toolbox.clone(), limits, None), toolbox.clock());
        Self { toolbox, servers, credentials: RunCredentials::default(), clock, limits, tokens: None }
    }

    /// Gets the tokens of users who have authorized this server from here.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<dyn TokenSource>) -> Self {
        let servers = McpServers::new(self.toolbox.clone(), self.limits, Some(Arc::clone(&tokens)));
        Self { servers, tokens: Some(tokens), ..self }
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
            ToolExecutor::Mcp(tool) if authorize_tool::is_stand_in(tool) => {
                let tool = tool.clone();
                authorize_tool::call(self.servers.clone(), tool, request)
            }
            ToolExecutor::Mcp(tool) => {
                let tool = tool.clone();
                let credentials = self.credentials.clone();
                call::call_tool(self.servers.clone(), credentials, tool, request, Arc::clone(&self.clock))
            }
            _ => self.toolbox.call_tool(request),
        }
    }
}

impl DefinitionResolver for McpTools {
    fn resolve_definitions(&self, request: ResolveRequest) -> BoxFuture<'static, Result<Arc<Definitions>, ErrorInfo>> {
        let (servers, credentials, tokens) = (self.servers.clone(), self.credentials.clone(), self.tokens.clone());
        Box::pin(async move {
            let resolved = catalog::resolve(servers, credentials, request.clone()).await?;
            Ok(authorize_tool::add_stand_ins(tokens, &request, resolved).await)
        })
    }

    fn keep_credentials(&self, run: &TaskId, credentials: McpCredentials) {
        self.credentials.keep(run, credentials);
    }

    fn forget_credentials(&self, run: &TaskId) {
        self.credentials.forget(run);
    }
}
