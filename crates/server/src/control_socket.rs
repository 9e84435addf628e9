//! The control socket: a Unix socket in the data folder through which `headwater keys` talks to a running server.
//!
//! One request per connection, one line of JSON each way. A running server holds the lock of the data folder, so keys
//! are changed through it, and changes take effect at once. Only the folder's owner may connect.

use crate::api_keys::{self, ApiKeyError, NewApiKey};
use crate::auth::Authenticator;
use model::ports::{AccessKeyRow, Accounts, Clock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

const SOCKET_NAME: &str = "control.sock";
const LINE_BYTES_MAX: u64 = 1024 * 1024;
const IO_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    CreateKey { user: String },
    ListKeys,
    RevokeKey { id: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum ControlResponse {
    Created(NewApiKey),
    /// Without their digests.
    Keys {
        keys: Vec<KeySummary>,
    },
    Revoked,
    Failed {
        why: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeySummary {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) created_at: u64,
    pub(crate) revoked_at: Option<u64>,
}

impl From<AccessKeyRow> for KeySummary {
    fn from(row: AccessKeyRow) -> Self {
        Self { id: row.id, user: row.user.to_string(), created_at: row.created_at, revoked_at: row.revoked_at }
    }
}

pub(crate) async fn handle_control_request(
    accounts: &dyn Accounts,
    clock: &dyn Clock,
    request: ControlRequest,
) -> ControlResponse {
    let result = match request {
        ControlRequest::CreateKey { user } => {
            api_keys::create_api_key(accounts, clock, &user).await.map(ControlResponse::Created)
        }
        ControlRequest::ListKeys => {
            let keys = accounts.access_keys().await.map_err(ApiKeyError::from);
            keys.map(|keys| ControlResponse::Keys { keys: keys.into_iter().map(KeySummary::from).collect() })
        }
        ControlRequest::RevokeKey { id } => {
            api_keys::revoke_api_key(accounts, clock, &id).await.map(|()| ControlResponse::Revoked)
        }
    };
    result.unwrap_or_else(|error| ControlResponse::Failed { why: error.to_string() })
}

/// Sends a request to the server that uses this data folder.
pub(crate) async fn send_control_request(data_dir: &Path, request: &ControlRequest) -> io::Result<ControlResponse> {
    let exchange = async {
        let mut stream = UnixStream::connect(data_dir.join(SOCKET_NAME)).await?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        let mut response = String::new();
        BufReader::new(stream).take(LINE_BYTES_MAX).read_line(&mut response).await?;
        Ok(serde_json::from_str(&response)?)
    };
    with_timeout(exchange).await
}

/// Whether no server has read the request: nothing listened, or it stopped listening first.
pub(crate) fn is_unread_request(error: &io::Error) -> bool {
    let kinds = [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    kinds.contains(&error.kind())
}

async fn with_timeout<T>(exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(IO_TIMEOUT, exchange).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Dropping it removes the socket.
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlSocket {
    /// Replaces a socket that a crash left behind: the lock of the folder excludes another server.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET_NAME);
        // Created in a private folder and then moved, so that others can never connect, not even for a moment.
        let private = data_dir.join("control.new");
        let _stale = fs::remove_dir_all(&private);
        DirBuilder::new().mode(0o700).create(&private)?;
        let new_path = private.join("s");
        let bound = UnixListener::bind(&new_path).and_then(|listener| {
            fs::set_permissions(&new_path, Permissions::from_mode(0o600))?;
            fs::rename(&new_path, &path)?;
            Ok(listener)
        });
        let _empty = fs::remove_dir_all(&private);
        Ok(Self { path, listener: bound? })
    }

    /// Runs until it is dropped.
    pub(crate) async fn serve(self, accounts: Arc<dyn Accounts>, clock: Arc<dyn Clock>, auth: Authenticator) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (accounts, clock, auth) = (Arc::clone(&accounts), Arc::clone(&clock), auth.clone());
                    tokio::spawn(async move {
                        if let Err(error) = serve_request(stream, &*accounts, &*clock, &auth).await {
                            tracing::debug!(%error, "a control connection failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept control connections");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

async fn serve_request(
    mut stream: UnixStream,
    accounts: &dyn Accounts,
    clock: &dyn Clock,
    auth: &Authenticator,
) -> io::Result<()> {
    let mut line = String::new();
    with_timeout(BufReader::new(&mut stream).take(LINE_BYTES_MAX).read_line(&mut line)).await?;
    // No time-out here: a change in the store must also take effect in this process.
    let response = match serde_json::from_str(&line) {
        Ok(request) => handle_control_request(accounts, clock, request).await,
        Err(_) => ControlResponse::Failed { why: "unknown request".to_owned() },
    };
    if let Authenticator::Keys(keys) = auth
        && let Err(error) = keys.refresh(accounts).await
    {
        tracing::error!(%error, "cannot reload the keys");
    }
    let mut text = serde_json::to_string(&response)?;
    text.push('\n');
    with_timeout(stream.write_all(text.as_bytes())).await
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}
