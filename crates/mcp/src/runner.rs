//! The ports: calls of MCP tools, and the definitions of runs that have them.

use crate::limits::McpLimits;
use crate::servers::McpServers;
use crate::token_source::TokenSource;
use crate::{call, catalog};
use model::definition::{Definitions, ToolExecutor};
use model::error::ErrorInfo;
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
    clock: Arc<dyn Clock>,
    limits: McpLimits,
}

impl McpTools {
    /// Servers are started by the toolbox, with its environment and its mark. Deadlines are measured by its clock.
    #[must_use]
    pub fn new(toolbox: Toolbox, limits: McpLimits) -> Self {
        let (servers, clock) = (McpServers::new(toolbox.clone(), limits, None), toolbox.clock());
        Self { toolbox, servers, clock, limits }
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
                call::call_tool(self.servers.clone(), tool, request, Arc::clone(&self.clock))
            }
            _ => self.toolbox.call_tool(request),
        }
    }
}

impl DefinitionResolver for McpTools {
    fn resolve_definitions(&self, request: ResolveRequest) -> BoxFuture<'static, Result<Arc<Definitions>, ErrorInfo>> {
        let servers = self.servers.clone();
        Box::pin(async move { catalog::resolve(servers, request).await })
    }
}
