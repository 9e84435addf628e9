//! A tool that is a program: arguments on stdin, events and the result on stdout, complaints on stderr.

use crate::lines::Lines;
use crate::process::{Launch, Process};
use crate::secret::Secrets;
use crate::source::{Answer, Source};
use crate::tail;
use crate::toolbox::Toolbox;
use bytes::Bytes;
use model::definition::CommandTool;
use model::event::ErrorInfo;
use model::tool::ToolRequest;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// So much of stderr is put into the error.
const COMPLAINT_BYTES_MAX: usize = 2 * 1024;

/// Starts the program.
pub(crate) async fn start(
    toolbox: &Toolbox,
    tool: &CommandTool,
    call: &ToolRequest,
) -> Result<Answer<Program>, ErrorInfo> {
    let mut secrets = Secrets::default();
    let passed = tool.env_pass.iter().filter_map(|name| Some((name.clone(), (toolbox.env)(name)?)));
    let mut env: Vec<(String, String)> = passed.collect();
    for (name, value) in &tool.env {
        env.push((name.clone(), secrets.fill(value, &toolbox.env).await?));
    }
    // Ours come last, so that no definition can speak for somebody else.
    let ours = [
        ("HEADWATER_USER", call.user.as_str()),
        ("HEADWATER_THREAD", call.thread.as_str()),
        ("HEADWATER_RUN", call.run.as_str()),
        ("HEADWATER_CALL_ID", call.call_id.as_str()),
        ("HEADWATER_IDEMPOTENCY_KEY", call.call_id.as_str()),
    ];
    env.extend(ours.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let launch = Launch {
        command: &tool.command,
        dir: tool.dir.as_deref(),
        env,
        input: format!("{}\n", call.arguments).into_bytes(),
        path: (toolbox.env)("PATH"),
    };
    let process = Process::start(launch).await?;
    Ok(Answer { source: Program { process, secrets }, lines: Lines::new(call.output_bytes_max) })
}

/// A program as a source. Dropping it ends the program.
pub(crate) struct Program {
    pub(crate) process: Process,
    pub(crate) secrets: Secrets,
}

impl Source for Program {
    async fn read(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        if let Some(piece) = self.process.read().await {
            return Ok(Some(piece));
        }
        match self.process.end().await {
            Ok(status) if status.success() => Ok(None),
            Ok(status) => Err(self.complaint(status)),
            Err(error) => Err(ErrorInfo::new("command_failed", format!("cannot wait for the program: {error}"))),
        }
    }
}

impl Program {
    fn complaint(&self, status: ExitStatus) -> ErrorInfo {
        let (how, details) = match (status.code(), status.signal()) {
            (Some(code), _) => (format!("the program ended with status {code}"), json!({ "status": code })),
            (None, signal) => {
                let number = signal.unwrap_or_default();
                (format!("the program was ended by signal {number}"), json!({ "signal": number }))
            }
        };
        // First redacted, then cut: half a secret would not be found.
        let said = self.secrets.redact(&self.process.said());
        let said = tail::last(said.trim(), COMPLAINT_BYTES_MAX);
        let message = if said.is_empty() { how } else { format!("{how}: {said}") };
        ErrorInfo { details: Some(details), ..ErrorInfo::new("command_failed", message) }
    }
}
