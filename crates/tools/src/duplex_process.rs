//! A program that stays, and is spoken to while it runs: an MCP server.
//!
//! It ends as every program of a tool does (`process`): with its process group, and by the guardian if this server dies.

use crate::command::{declared_env, exit_text, stderr_excerpt};
use crate::context::ToolContext;
use crate::process::{Process, ProcessSpec};
use crate::process_mark::ProcessMark;
use crate::secrets::CallSecrets;
use bytes::Bytes;
use model::definition::CommandTool;
use model::error::{ErrorCode, ErrorInfo};
use std::borrow::Cow;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;

/// The output of a program that stays. Dropping it terminates the program. It has no `Debug`: it holds secrets.
pub struct DuplexProcess {
    process: Process,
    secrets: CallSecrets,
}

/// The input of a program that stays. Dropping it closes the program's stdin.
#[derive(Debug)]
pub struct ProcessInput(ChildStdin);

impl DuplexProcess {
    pub(crate) async fn start(context: &ToolContext, program: &CommandTool) -> Result<(Self, ProcessInput), ErrorInfo> {
        let (mut env, secrets) = declared_env(context, program).await?;
        env.extend(context.process_mark.as_ref().map(ProcessMark::variable));
        let spec = ProcessSpec {
            command: &program.command,
            dir: program.dir.as_deref(),
            env,
            search_path: (context.env)("PATH"),
        };
        let (process, stdin) = Process::spawn_open(spec).await?;
        let stdin = stdin.ok_or_else(|| ErrorInfo::new(ErrorCode::CommandFailed, "the program has no stdin"))?;
        Ok((Self { process, secrets }, ProcessInput(stdin)))
    }

    /// The next piece of stdout; `None` when the program has exited and stdout is exhausted. A read that is cancelled loses
    /// nothing.
    pub async fn read(&mut self) -> Option<Bytes> {
        self.process.read_stdout().await
    }

    /// Kills what is left of the program, and says how it ended, with the end of its stderr.
    pub async fn describe_exit(&mut self) -> String {
        let outcome = match self.process.wait().await {
            Ok(status) => exit_text(status),
            Err(error) => format!("has ended: {error}"),
        };
        let stderr = self.stderr_excerpt();
        if stderr.is_empty() { outcome } else { format!("{outcome}: {stderr}") }
    }

    /// The end of what the program wrote to stderr, without secrets.
    #[must_use]
    pub fn stderr_excerpt(&self) -> String {
        stderr_excerpt(&self.process, &self.secrets)
    }

    /// A JSON text without the secrets that the program was started with.
    #[must_use]
    pub fn redact_json<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.secrets.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(self.secrets.redact_json(text)) }
    }
}

impl ProcessInput {
    /// Fails when the program does not read any more. A write that is cancelled may have written a part.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }
}
