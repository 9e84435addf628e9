//! `headwater keys`: lets people in. Through the running server where there is one, else in the data folder itself.

use super::{DataDir, say};
use crate::control::{self, Answer, Ask};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use store::{SqliteStore, StoreOpenError};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    verb: KeysVerb,
}

#[derive(Debug, Subcommand)]
enum KeysVerb {
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
        KeysVerb::Create { user, folder } => (Ask::CreateKey { user }, folder),
        KeysVerb::List { folder } => (Ask::ListKeys, folder),
        KeysVerb::Revoke { id, folder } => (Ask::RevokeKey { id }, folder),
    };
    let makes = matches!(ask, Ask::CreateKey { .. });
    if !makes && !folder.data_dir.exists() {
        bail!("there is no data folder {}", folder.data_dir.display());
    }
    match asked(&folder.data_dir, ask).await? {
        Answer::Created(key) => {
            say(&key.secret);
            eprintln!("key {} of user {}: shown once, keep it", key.id, key.user);
        }
        Answer::Keys { keys } => {
            for key in keys {
                let state = key.revoked_at.map_or("live".to_owned(), |at| format!("revoked_at={at}"));
                say(format_args!("{}\t{}\tcreated_at={}\t{state}", key.id, key.user, key.created_at));
            }
        }
        Answer::Revoked => say("revoked"),
        Answer::Failed { why } => bail!(why),
    }
    Ok(ExitCode::SUCCESS)
}

async fn asked(dir: &Path, ask: Ask) -> anyhow::Result<Answer> {
    match SqliteStore::open(dir, &store::SqliteOptions::default()) {
        Ok(store) => {
            let answer = control::answer(&store, ask).await;
            store.close().await;
            Ok(answer)
        }
        Err(StoreOpenError::Locked(_)) => control::ask(dir, &ask)
            .await
            .with_context(|| format!("a server has {}, but it does not answer there", dir.display())),
        Err(error) => Err(error.into()),
    }
}
