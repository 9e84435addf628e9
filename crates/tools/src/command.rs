//! A tool that is a program: arguments on stdin, events and the result on stdout, diagnostics on stderr.

use crate::byte_source::{ByteSource, ToolResponse};
use crate::context::ToolContext;
use crate::output_parser::ToolOutputParser;
use crate::process::{Process, ProcessSpec};
use crate::process_mark::ProcessMark;
use crate::question_line::answer_line;
use crate::secrets::CallSecrets;
use crate::truncate;
use bytes::Bytes;
use model::definition::CommandTool;
use model::error::{ErrorCode, ErrorInfo};
use model::tool::ToolRequest;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

/// How much of stderr an error message quotes.
const STDERR_EXCERPT_BYTES_MAX: usize = 2 * 1024;

pub(crate) async fn start_command(
    context: &ToolContext,
    tool: &CommandTool,
    call: &ToolRequest,
) -> Result<ToolResponse<CommandSource>, ErrorInfo> {
    let (mut env, secrets) = declared_env(context, tool).await?;
    // These come last, so that no definition can impersonate another user or run.
    let identity = [
        ("HEADWATER_USER", call.user.as_str()),
        ("HEADWATER_THREAD", call.thread.as_str()),
        ("HEADWATER_RUN", call.run.as_str()),
        ("HEADWATER_CALL_ID", call.call_id.as_str()),
        ("HEADWATER_IDEMPOTENCY_KEY", call.call_id.as_str()),
    ];
    env.extend(identity.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env.extend(context.process_mark.as_ref().map(ProcessMark::variable));
    let spec =
        ProcessSpec { command: &tool.command, dir: tool.dir.as_deref(), env, search_path: (context.env)("PATH") };
    let mut input = format!("{}\n", call.arguments);
    if let Some(answers) = &call.answers {
        input.push_str(&answer_line(answers)?);
        input.push('\n');
    }
    let process = Process::spawn(spec, input.into_bytes()).await?;
    let secrets = Arc::new(secrets);
    let parser = ToolOutputParser::new(call.output_bytes_max, Arc::clone(&secrets));
    Ok(ToolResponse { source: CommandSource { process, secrets }, parser })
}

/// Dropping it terminates the program.
pub(crate) struct CommandSource {
    pub(crate) process: Process,
    pub(crate) secrets: Arc<CallSecrets>,
}

impl ByteSource for CommandSource {
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ErrorInfo> {
        if let Some(chunk) = self.process.read_stdout().await {
            return Ok(Some(chunk));
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
        let (outcome, details) = match (status.code(), status.signal()) {
            (Some(code), _) => (format!("the program {}", exit_text(status)), json!({ "status": code })),
            (None, signal) => {
                (format!("the program {}", exit_text(status)), json!({ "signal": signal.unwrap_or_default() }))
            }
        };
        let stderr = stderr_excerpt(&self.process, &self.secrets);
        let message = if stderr.is_empty() { outcome } else { format!("{outcome}: {stderr}") };
        ErrorInfo { details: Some(details), ..ErrorInfo::new(ErrorCode::CommandFailed, message) }
    }
}

/// The variables that a definition passes on or sets.
pub(crate) async fn declared_env(
    context: &ToolContext,
    tool: &CommandTool,
) -> Result<(Vec<(String, String)>, CallSecrets), ErrorInfo> {
    let mut secrets = CallSecrets::default();
    let passed = tool.env_pass.iter().filter_map(|name| Some((name.clone(), (context.env)(name)?)));
    let mut env: Vec<(String, String)> = passed.collect();
    for (name, value) in &tool.env {
        env.push((name.clone(), secrets.resolve(value, &context.env).await?));
    }
    Ok((env, secrets))
}

pub(crate) fn exit_text(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exited with status {code}"),
        None => format!("was terminated by signal {}", status.signal().unwrap_or_default()),
    }
}

/// The end of what the program wrote to stderr.
pub(crate) fn stderr_excerpt(process: &Process, secrets: &CallSecrets) -> String {
    // Redact before truncating: half a secret would not be recognised.
    let stderr = secrets.redact(&process.stderr_tail());
    truncate::last_bytes(stderr.trim(), STDERR_EXCERPT_BYTES_MAX).to_owned()
}
