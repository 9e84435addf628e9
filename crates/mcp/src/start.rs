//! Starts a server and shakes hands with it, in the generation of the protocol that it speaks.
//!
//! A server of 2026-07-28 answers `server/discover`; one of 2025-11-25 refuses it and is then initialized by the same
//! process. One that neither answers nor refuses is started a second time, and initialized at once.

use crate::connection::ServerConnection;
use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::link::ConnectionLink;
use crate::stdio_transport::{STOPPED_MESSAGE, StdioTransport};
use crate::tool_list::clean_text;
use model::definition::{McpProgram, McpTransport};
use model::error::{ErrorCode, ErrorInfo};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, serve_client_with_lifecycle};
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

/// A server that is ready, with its list of tools, and the handshake that it understood.
pub(crate) async fn start_server(
    toolbox: &Toolbox,
    label: &str,
    program: &McpProgram,
    known: Option<Handshake>,
) -> Result<(ServerConnection, Handshake), ErrorInfo> {
    let start_timeout = Duration::from_millis(program.start_timeout_ms);
    let now = Instant::now();
    let (half, whole) = (now + start_timeout / 2, now + start_timeout);
    if known != Some(Handshake::Initialize) {
        let deadline = if known.is_some() { whole } else { half };
        match start_once(toolbox, label, program, Handshake::Discover, deadline).await {
            Ok(connection) => return Ok((connection, Handshake::Discover)),
            // What cannot be started at all is not started twice.
            Err(ServerStartError::Spawn(error)) => return Err(error),
            Err(ServerStartError::Handshake(error)) if Instant::now() >= whole => return Err(error),
            Err(ServerStartError::Handshake(_)) => {}
        }
    }
    let connection = start_once(toolbox, label, program, Handshake::Initialize, whole).await;
    connection.map(|connection| (connection, Handshake::Initialize)).map_err(|error| match error {
        ServerStartError::Spawn(error) | ServerStartError::Handshake(error) => error,
    })
}

enum ServerStartError {
    Spawn(ErrorInfo),
    Handshake(ErrorInfo),
}

/// Dropping the future ends the program.
async fn start_once(
    toolbox: &Toolbox,
    label: &str,
    program: &McpProgram,
    handshake: Handshake,
    deadline: Instant,
) -> Result<ServerConnection, ServerStartError> {
    let too_late = || {
        let message =
            format!("The MCP server `{label}` was not ready within {} ms and was stopped.", program.start_timeout_ms);
        ErrorInfo::new(ErrorCode::McpUnavailable, message)
    };
    let McpTransport::Command(command) = &program.transport else {
        let message = format!("The MCP server `{label}` has a URL, which is not supported.");
        return Err(ServerStartError::Spawn(ErrorInfo::new(ErrorCode::McpUnavailable, message)));
    };
    let spawned = timeout_at(deadline, toolbox.start_process(command)).await;
    let (process, input) = spawned.map_err(|_| ServerStartError::Handshake(too_late()))?.map_err(|error| {
        let message = format!("The MCP server `{label}` cannot be started: {}", error.message);
        ServerStartError::Spawn(ErrorInfo::new(ErrorCode::McpUnavailable, message))
    })?;
    let link = Arc::new(ConnectionLink::default());
    let transport = StdioTransport::new(label, process, input, Arc::clone(&link));
    // The futures of the library are large.
    let starting = Box::pin(async {
        let serving = serve_client_with_lifecycle(client_config(), transport, lifecycle(handshake));
        let service = serving.await.map_err(|error| handshake_error(label, &error, &link))?;
        let list_timeout = Duration::from_millis(program.start_timeout_ms);
        let connection = ServerConnection::new(label, service, Arc::clone(&link), list_timeout);
        connection.tools().await?;
        Ok(connection)
    });
    timeout_at(deadline, starting).await.unwrap_or_else(|_| Err(too_late())).map_err(ServerStartError::Handshake)
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

/// No capabilities: a server may not ask for anything.
fn client_config() -> ClientConfig {
    let name = Implementation::new("headwater", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), name).with_protocol_version(ProtocolVersion::V_2025_11_25)
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
