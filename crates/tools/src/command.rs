//! A tool that is a program: arguments on stdin, events and the result on stdout, complaints on stderr.

use crate::byte_source::{ByteSource, ToolResponse};
use crate::output_parser::ToolOutputParser;
use crate::process::{Process, ProcessSpec};
use crate::secrets::CallSecrets;
use crate::toolbox::Toolbox;
use crate::truncate;
use bytes::Bytes;
use model::definition::CommandTool;
use model::error::{ErrorCode, ErrorInfo};
use model::tool::ToolRequest;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// So much of stderr is put into the error.
const STDERR_EXCERPT_BYTES_MAX: usize = 2 * 1024;

/// Starts the program.
pub(crate) async fn start_command(
    toolbox: &Toolbox,
    tool: &CommandTool,
    call: &ToolRequest,
) -> Result<ToolResponse<CommandSource>, ErrorInfo> {
    let mut secrets = CallSecrets::default();
    let passed = tool.env_pass.iter().filter_map(|name| Some((name.clone(), (toolbox.env)(name)?)));
    let mut env: Vec<(String, String)> = passed.collect();
    for (name, value) in &tool.env {
        env.push((name.clone(), secrets.resolve(value, &toolbox.env).await?));
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
    let launch = ProcessSpec {
        command: &tool.command,
        dir: tool.dir.as_deref(),
        env,
        stdin: format!("{}\n", call.arguments).into_bytes(),
        search_path: (toolbox.env)("PATH"),
    };
    let process = Process::spawn(launch).await?;
    Ok(ToolResponse {
        source: CommandSource { process, secrets },
        parser: ToolOutputParser::new(call.output_bytes_max),
    })
}

/// A program as a source. Dropping it ends the program.
pub(crate) struct CommandSource {
    pub(crate) process: Process,
    pub(crate) secrets: CallSecrets,
}

impl ByteSource for CommandSource {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        if let Some(piece) = self.process.read_stdout().await {
            return Ok(Some(piece));
        }
        match self.process.wait().await {
            Ok(status) if status.success() => Ok(None),
            Ok(status) => Err(self.exit_error(status)),
            Err(error) => {
                Err(ErrorInfo::new(ErrorCode::CommandFailed, format!("cannot wait for the program: {error}")))
            }
        }
    }
}

impl CommandSource {
    fn exit_error(&self, status: ExitStatus) -> ErrorInfo {
        let (how, details) = match (status.code(), status.signal()) {
            (Some(code), _) => (format!("the program ended with status {code}"), json!({ "status": code })),
            (None, signal) => {
                let number = signal.unwrap_or_default();
                (format!("the program was ended by signal {number}"), json!({ "signal": number }))
            }
        };
        // First redacted, then cut: half a secret would not be found.
        let said = self.secrets.redact(&self.process.stderr_tail());
        let said = truncate::last_bytes(said.trim(), STDERR_EXCERPT_BYTES_MAX);
        let message = if said.is_empty() { how } else { format!("{how}: {said}") };
        ErrorInfo { details: Some(details), ..ErrorInfo::new(ErrorCode::CommandFailed, message) }
    }
}
