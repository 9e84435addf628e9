//! The server's back door, for whoever may open the data folder: a Unix socket in it.
//!
//! One request per connection, one line of JSON each way. The folder is locked while a server runs, so what changes
//! keys asks that server; and keys that change through it count at once. Only the folder's owner may connect.

use crate::api_keys::{self, ApiKeyError, NewApiKey};
use crate::auth::Authenticator;
use model::ports::{AccessKeyRow, Accounts};
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

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// Let somebody in.
    CreateKey { user: String },
    /// Who is let in?
    ListKeys,
    /// Let a key in no longer.
    RevokeKey { id: String },
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum ControlResponse {
    /// This key was made.
    Created(NewApiKey),
    /// These keys there are. Their digests stay where they are.
    Keys { keys: Vec<KeySummary> },
    /// It was revoked.
    Revoked,
    /// It could not be done.
    Failed { why: String },
}

/// A key as it may be shown.
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

/// Does what is asked.
pub(crate) async fn handle_control_request(accounts: &dyn Accounts, ask: ControlRequest) -> ControlResponse {
    let done = match ask {
        ControlRequest::CreateKey { user } => {
            api_keys::create_api_key(accounts, &user).await.map(ControlResponse::Created)
        }
        ControlRequest::ListKeys => {
            let keys = accounts.access_keys().await.map_err(ApiKeyError::from);
            keys.map(|keys| ControlResponse::Keys { keys: keys.into_iter().map(KeySummary::from).collect() })
        }
        ControlRequest::RevokeKey { id } => {
            api_keys::revoke_api_key(accounts, &id).await.map(|()| ControlResponse::Revoked)
        }
    };
    done.unwrap_or_else(|error| ControlResponse::Failed { why: error.to_string() })
}

/// Asks the server that has this folder.
pub(crate) async fn send_control_request(data_dir: &Path, ask: &ControlRequest) -> io::Result<ControlResponse> {
    let talk = async {
        let mut stream = UnixStream::connect(data_dir.join(SOCKET_NAME)).await?;
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        BufReader::new(stream).take(LINE_BYTES_MAX).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    };
    with_timeout(talk).await
}

/// Nobody is waited for longer.
async fn with_timeout<T>(talk: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(IO_TIMEOUT, talk).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// The open door. Dropping it removes the socket.
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl ControlSocket {
    /// Opens it. A socket that a crash left behind is replaced: the folder's lock says that nobody else is here.
    pub(crate) fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET_NAME);
        // Made where nobody else can reach it, then moved: it is never open to others, not even for a moment.
        let private = data_dir.join("control.new");
        let _stale = fs::remove_dir_all(&private);
        DirBuilder::new().mode(0o700).create(&private)?;
        let made = private.join("s");
        let bound = UnixListener::bind(&made).and_then(|listener| {
            fs::set_permissions(&made, Permissions::from_mode(0o600))?;
            fs::rename(&made, &path)?;
            Ok(listener)
        });
        let _empty = fs::remove_dir_all(&private);
        Ok(Self { path, listener: bound? })
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self, accounts: Arc<dyn Accounts>, auth: Authenticator) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (accounts, auth) = (Arc::clone(&accounts), auth.clone());
                    tokio::spawn(async move {
                        if let Err(error) = serve_request(stream, &*accounts, &auth).await {
                            tracing::debug!(%error, "a control connection broke off");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

async fn serve_request(mut stream: UnixStream, accounts: &dyn Accounts, auth: &Authenticator) -> io::Result<()> {
    let mut line = String::new();
    with_timeout(BufReader::new(&mut stream).take(LINE_BYTES_MAX).read_line(&mut line)).await?;
    // Without a limit, other than what others are waited for: what has changed in the store must come to count here.
    let answer = match serde_json::from_str(&line) {
        Ok(ask) => handle_control_request(accounts, ask).await,
        Err(_) => ControlResponse::Failed { why: "this is no question that the server knows".to_owned() },
    };
    if let Authenticator::Keys(keys) = auth
        && let Err(error) = keys.refresh(accounts).await
    {
        tracing::error!(%error, "the keys could not be read again");
    }
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    with_timeout(stream.write_all(text.as_bytes())).await
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}
