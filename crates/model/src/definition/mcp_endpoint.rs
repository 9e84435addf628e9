//! MCP servers with a URL.

use super::{CommandTool, McpAuth};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// A program, spoken to over its stdin and stdout.
    Command(CommandTool),
    /// Streamable HTTP.
    Endpoint(McpEndpoint),
}

/// A server with a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpEndpoint {
    pub url: String,
    /// Values may contain secret references, which are resolved for each connection.
    pub headers: BTreeMap<String, String>,
    /// `None`: the headers are all that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Arc<McpAuth>>,
}
