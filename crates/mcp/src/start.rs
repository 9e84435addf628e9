//! Starts a server and shakes hands with it, in the generation of the protocol that it speaks.
//!
//! A server of 2026-07-28 answers `server/discover`; one of 2025-11-25 refuses it and is then initialized by the same
//! process or in the same conversation. One that neither answers nor refuses is started a second time, and initialized at
//! once.

use crate::client_config::client_config;
use crate::connection::ServerConnection;
use crate::http_session::{EndpointCredential, HttpSession};
use crate::http_transport::HttpTransport;
use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::link::ConnectionLink;
use crate::stdio_transport::{STOPPED_MESSAGE, StdioTransport};
use crate::tool_list::clean_text;
use model::definition::{McpProgram, McpScope, McpTransport};
use model::error::{ErrorCode, ErrorInfo};
use rmcp::RoleClient;
use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle};
use rmcp::transport::Transport;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tools::Toolbox;

/// How a server begins a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// It answers `server/discover`, if only with an error.
    Discover,
    /// It answers `initialize` alone.
    Initialize,
}

/// What a connection is made of, besides the server.
pub(crate) struct ConnectionParts<'a> {
    pub(crate) toolbox: &'a Toolbox,
    pub(crate) label: &'a str,
    pub(crate) program: &'a McpProgram,
    /// For servers with a URL.
    pub(crate) credential: EndpointCredential,
}

/// A server that is ready, with its list of tools, and the handshake that it understood.
pub(crate) async fn start_server(
    parts: ConnectionParts<'_>,
    known: Option<Handshake>,
) -> Result<(ServerConnection, Handshake), ErrorInfo> {
    let start_timeout = Duration::from_millis(parts.program.start_timeout_ms);
    let now = Instant::now();
    let (half, whole) = (now + start_timeout / 2, now + start_timeout);
    if known != Some(Handshake::Initialize) {
        let deadline = if known.is_some() { whole } else { half };
        match start_once(&parts, Handshake::Discover, deadline).await {
            Ok(connection) => return Ok((connection, Handshake::Discover)),
            // What cannot be started at all is not started twice.
            Err(ServerStartError::Final(error)) => return Err(error),
            Err(ServerStartError::Handshake(error)) if Instant::now() >= whole => return Err(error),
            Err(ServerStartError::Handshake(_)) => {}
        }
    }
    let connection = start_once(&parts, Handshake::Initialize, whole).await;
    connection.map(|connection| (connection, Handshake::Initialize)).map_err(|error| match error {
        ServerStartError::Final(error) | ServerStartError::Handshake(error) => error,
    })
}

enum ServerStartError {
    Final(ErrorInfo),
    Handshake(ErrorInfo),
}

/// Dropping the future ends the program.
async fn start_once(
    parts: &ConnectionParts<'_>,
    handshake: Handshake,
    deadline: Instant,
) -> Result<ServerConnection, ServerStartError> {
    let ConnectionParts { toolbox, label, program, credential } = parts;
    let too_late = || {
        let message =
            format!("The MCP server `{label}` was not ready within {} ms and was stopped.", program.start_timeout_ms);
        ServerStartError::Handshake(ErrorInfo::new(ErrorCode::McpUnavailable, message))
    };
    let cannot_start = |error: ErrorInfo| {
        let message = format!("The MCP server `{label}` cannot be started: {}", error.message);
        ServerStartError::Final(ErrorInfo::new(ErrorCode::McpUnavailable, message))
    };
    let link = Arc::new(ConnectionLink::default());
    let list_timeout = Duration::from_millis(program.start_timeout_ms);
    // The question of a server that several users share could reach the wrong one.
    let may_ask = program.scope != McpScope::Shared;
    // The futures of the library are large.
    let starting = async {
        match &program.transport {
            McpTransport::Command(command) => {
                let (process, input) = toolbox.start_process(command).await.map_err(cannot_start)?;
                let transport = StdioTransport::new(label, process, input, Arc::clone(&link));
                if may_ask {
                    link.allow_questions(transport.outgoing());
                }
                let opened = OpenedTransport { transport, may_ask, handshake };
                Box::pin(shake_hands(label, opened, &link, list_timeout)).await
            }
            McpTransport::Endpoint(endpoint) => {
                let endpoint = toolbox.open_endpoint(endpoint).await.map_err(cannot_start)?;
                let session = HttpSession::new(label, endpoint, credential.clone(), Arc::clone(&link));
                let transport = HttpTransport::new(session, may_ask);
                let opened = OpenedTransport { transport, may_ask, handshake };
                Box::pin(shake_hands(label, opened, &link, list_timeout)).await
            }
        }
    };
    timeout_at(deadline, starting).await.unwrap_or_else(|_| Err(too_late()))
}

struct OpenedTransport<T> {
    transport: T,
    /// Whether the server may ask people.
    may_ask: bool,
    handshake: Handshake,
}

async fn shake_hands<T: Transport<RoleClient> + 'static>(
    label: &str,
    opened: OpenedTransport<T>,
    link: &Arc<ConnectionLink>,
    list_timeout: Duration,
) -> Result<ServerConnection, ServerStartError> {
    let OpenedTransport { transport, may_ask, handshake } = opened;
    let serving = serve_client_with_lifecycle(client_config(may_ask), transport, lifecycle(handshake));
    let started = match serving.await {
        Ok(service) => {
            let connection = ServerConnection::new(label, service, Arc::clone(link), list_timeout);
            connection.tools().await.map(|_| connection)
        }
        Err(error) => Err(handshake_error(label, &error, link)),
    };
    started.map_err(|error| match error.has_code(ErrorCode::McpUnauthorized) {
        true => ServerStartError::Final(error),
        false => ServerStartError::Handshake(error),
    })
}

fn lifecycle(handshake: Handshake) -> ClientLifecycleMode {
    match handshake {
        Handshake::Discover => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
        Handshake::Initialize => ClientLifecycleMode::Initialize,
    }
}

/// The library's own texts quote whole messages.
fn handshake_error(label: &str, error: &ClientInitializeError, link: &ConnectionLink) -> ErrorInfo {
    if let Some(reason) = link.close_reason().filter(|reason| reason.message != STOPPED_MESSAGE) {
        return reason;
    }
    let refused = |error: &ClientInitializeError| match error {
        ClientInitializeError::JsonRpcError(error) => {
            format!("refused the connection: {}", clean_text(&error.message, ERROR_TEXT_BYTES_MAX))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "speaks no version of the protocol that is known here".to_owned()
        }
        _ => "did not complete the handshake".to_owned(),
    };
    let what = match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refused(fallback),
        other => refused(other),
    };
    ErrorInfo::new(ErrorCode::McpUnavailable, format!("The MCP server `{label}` {what}"))
}
