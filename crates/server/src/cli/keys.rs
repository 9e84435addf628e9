//! `headwater keys`: manages API keys. In a data folder through the running server if there is one, otherwise in the folder
//! itself; in a database directly, beside the servers that use it.

use super::config_args::{DataDirArgs, DataPlace};
use super::{TextColor, paint, print_line};
use crate::api_keys;
use crate::config::AuthMode;
use crate::control_socket::{self, ControlRequest, ControlResponse, KeySummary};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use store::{DatabaseUrl, PostgresClient, SqliteStore, StoreOpenError};

/// Ten seconds, in which a server that is starting or stopping does either.
const SERVER_ATTEMPTS_MAX: u32 = 100;
const SERVER_RETRY_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    verb: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Create a key for a user. The key is printed once.
    Create {
        /// The user's name.
        #[arg(long)]
        user: String,
        #[command(flatten)]
        folder: DataDirArgs,
    },
    /// List all keys.
    List {
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        folder: DataDirArgs,
    },
    /// Revoke a key and close its streams.
    Revoke {
        /// The key's id (`key_…`), as printed by `list`.
        id: String,
        #[command(flatten)]
        folder: DataDirArgs,
    },
}

pub(crate) async fn run(args: KeysArgs) -> anyhow::Result<ExitCode> {
    let mut format = ListFormat::Lines;
    let (request, folder) = match args.verb {
        KeysCommand::Create { user, folder } => (ControlRequest::CreateKey { user }, folder),
        KeysCommand::List { folder, json: as_json } => {
            format = if as_json { ListFormat::Json } else { ListFormat::Lines };
            (ControlRequest::ListKeys, folder)
        }
        KeysCommand::Revoke { id, folder } => (ControlRequest::RevokeKey { id }, folder),
    };
    // Checked before anything is created.
    if let ControlRequest::CreateKey { user } = &request {
        api_keys::check_user_name(user)?;
    }
    let (response, auth) = match folder.resolve()? {
        DataPlace::Folder { path, auth } => {
            if !path.exists() && !matches!(request, ControlRequest::CreateKey { .. }) {
                bail!("the data folder {} does not exist", path.display());
            }
            (run_in_folder(&path, request).await?, auth)
        }
        DataPlace::Database(place) => (run_in_database(&place.url, request).await?, Some(place.auth)),
    };
    match response {
        ControlResponse::Created(key) => {
            print_line(&key.secret);
            eprintln!("key {} of user {}: it is not shown again", key.id, key.user);
            if auth == Some(AuthMode::None) {
                eprintln!("the config does not use keys: set [auth] mode = \"keys\" before you hand it out");
            }
        }
        ControlResponse::Keys { keys } => print_keys(&keys, format)?,
        ControlResponse::Revoked => print_line("revoked"),
        ControlResponse::Failed { why } => bail!(why),
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy)]
enum ListFormat {
    Lines,
    Json,
}

fn print_keys(keys: &[KeySummary], format: ListFormat) -> anyhow::Result<()> {
    if matches!(format, ListFormat::Json) {
        print_line(serde_json::to_string(keys)?);
        return Ok(());
    }
    for KeySummary { id, user, created_at, revoked_at } in keys {
        let (state, color) = match revoked_at {
            None => ("live".to_owned(), TextColor::Green),
            Some(at) => (format!("revoked_at={at}"), TextColor::Dim),
        };
        print_line(format_args!("{id}\t{user}\tcreated_at={created_at}\t{}", paint(state, color)));
    }
    Ok(())
}

/// The first key may be created before a server has used the database.
async fn run_in_database(url: &DatabaseUrl, request: ControlRequest) -> anyhow::Result<ControlResponse> {
    let client = match request {
        ControlRequest::CreateKey { .. } => PostgresClient::open_or_create(url).await?,
        ControlRequest::ListKeys | ControlRequest::RevokeKey { .. } => PostgresClient::open(url).await?,
    };
    Ok(control_socket::handle_control_request(&client, &engine::SystemClock, request).await)
}

/// A server that starts or stops holds the lock of the folder for a moment without listening on its control socket.
async fn run_in_folder(dir: &Path, request: ControlRequest) -> anyhow::Result<ControlResponse> {
    let mut attempt = 1;
    loop {
        match SqliteStore::open(dir, &store::SqliteOptions::default()) {
            Ok(store) => {
                let response = control_socket::handle_control_request(&store, &engine::SystemClock, request).await;
                store.close().await;
                return Ok(response);
            }
            Err(StoreOpenError::Locked(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match control_socket::send_control_request(dir, &request).await {
            Err(error) if attempt < SERVER_ATTEMPTS_MAX && control_socket::is_unread_request(&error) => {
                attempt += 1;
                tokio::time::sleep(SERVER_RETRY_INTERVAL).await;
            }
            response => {
                let dir = dir.display();
                return response
                    .with_context(|| format!("a server uses {dir} but does not answer on its control socket"));
            }
        }
    }
}
