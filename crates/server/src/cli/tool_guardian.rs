//! `headwater tool-guardian`: the process that ends tool programs when the server dies (`tools::ProcessMark`). Hidden from
//! the help.

use super::read_pdf::own_program;
use clap::Args;
use gateway::secret_token::encode_hex;
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tools::{ProcessMark, ProgramOwner};
use uuid::Uuid;

pub(super) const COMMAND_NAME: &str = "tool-guardian";
/// How long to wait before a guardian that ended is replaced.
const RESTART_DELAY: Duration = Duration::from_secs(5);
const FOLDER_ID_BYTES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ToolGuardianArgs {
    mark: String,
}

pub(crate) fn run(args: &ToolGuardianArgs) -> ExitCode {
    let Some(mark) = ProcessMark::from_argument(&args.mark) else { return ExitCode::FAILURE };
    mark.guard(std::io::stdin());
    ExitCode::SUCCESS
}

/// The mark of this start of the server on its data folder, which exists.
pub(super) fn new_mark(data_dir: &Path) -> ProcessMark {
    let path = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let folder = encode_hex(digest.get(..FOLDER_ID_BYTES).unwrap_or_default());
    ProcessMark::new(folder, Uuid::now_v7().simple().to_string())
}

/// Kills what an earlier server of the folder left running, and starts the guardian of this one. The caller holds the
/// folder's lock, so no other server of it is alive.
pub(super) async fn take_over_programs(mark: &ProcessMark) {
    let earlier = mark.clone();
    let killed = tokio::task::spawn_blocking(move || earlier.kill_programs(ProgramOwner::Folder)).await.unwrap_or(0);
    if killed > 0 {
        tracing::warn!(processes = killed, "ended tool programs that an earlier server had left running");
    }
    tokio::spawn(keep_guardian(mark.clone()));
}

/// Runs a guardian for as long as the server lives. Dropping the child closes its pipe.
async fn keep_guardian(mark: ProcessMark) {
    loop {
        match spawn_guardian(&mark) {
            Ok(mut guardian) => {
                let pipe = guardian.stdin.take();
                let ended = guardian.wait().await;
                drop(pipe);
                tracing::warn!(?ended, "the guardian of tool programs ended; another one is started");
            }
            Err(error) => {
                tracing::warn!(%error, "no guardian: if the server is killed, its tool programs run to their end");
            }
        }
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// It has its own process group, so that Ctrl-C reaches the server alone, which then closes the pipe. In the root folder it
/// keeps no file system from being unmounted.
fn spawn_guardian(mark: &ProcessMark) -> std::io::Result<Child> {
    let mut command = Command::new(own_program()?);
    command.args([COMMAND_NAME, &mark.to_argument()]).env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
