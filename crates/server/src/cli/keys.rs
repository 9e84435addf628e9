//! `headwater keys`: lets people in. Through the running server where there is one, else in the data folder itself.

use super::{DataDir, print_line};
use crate::control_socket::{self, ControlRequest, ControlResponse};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use store::{SqliteStore, StoreOpenError};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    verb: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make a key for a user. It is shown once.
    Create {
        /// Whom it lets in.
        #[arg(long)]
        user: String,
        #[command(flatten)]
        folder: DataDir,
    },
    /// List all keys.
    List {
        #[command(flatten)]
        folder: DataDir,
    },
    /// Let a key in no longer; its streams are cut.
    Revoke {
        /// The key's name (`key_…`), as `list` shows it.
        id: String,
        #[command(flatten)]
        folder: DataDir,
    },
}

pub(crate) async fn run(args: KeysArgs) -> anyhow::Result<ExitCode> {
    let (ask, folder) = match args.verb {
        KeysCommand::Create { user, folder } => (ControlRequest::CreateKey { user }, folder),
        KeysCommand::List { folder } => (ControlRequest::ListKeys, folder),
        KeysCommand::Revoke { id, folder } => (ControlRequest::RevokeKey { id }, folder),
    };
    let makes = matches!(ask, ControlRequest::CreateKey { .. });
    if !makes && !folder.data_dir.exists() {
        bail!("there is no data folder {}", folder.data_dir.display());
    }
    match run_key_request(&folder.data_dir, ask).await? {
        ControlResponse::Created(key) => {
            print_line(&key.secret);
            eprintln!("key {} of user {}: shown once, keep it", key.id, key.user);
        }
        ControlResponse::Keys { keys } => {
            for key in keys {
                let state = key.revoked_at.map_or("live".to_owned(), |at| format!("revoked_at={at}"));
                print_line(format_args!("{}\t{}\tcreated_at={}\t{state}", key.id, key.user, key.created_at));
            }
        }
        ControlResponse::Revoked => print_line("revoked"),
        ControlResponse::Failed { why } => bail!(why),
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_key_request(dir: &Path, ask: ControlRequest) -> anyhow::Result<ControlResponse> {
    match SqliteStore::open(dir, &store::SqliteOptions::default()) {
        Ok(store) => {
            let answer = control_socket::handle_control_request(&store, ask).await;
            store.close().await;
            Ok(answer)
        }
        Err(StoreOpenError::Locked(_)) => control_socket::send_control_request(dir, &ask)
            .await
            .with_context(|| format!("a server has {}, but it does not answer there", dir.display())),
        Err(error) => Err(error.into()),
    }
}
