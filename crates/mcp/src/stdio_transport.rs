//! Messages over the stdin and stdout of a program, one per line.
//!
//! The library above spawns a task for every notification and request of a server and waits for ever for the rest of a
//! line. So this transport lets through responses alone: progress goes to its call, a request of the server is answered
//! here, and a server that exceeds a bound is stopped.

use crate::limits::{INLINE_LINE_BYTES_MAX, INVALID_LINES_MAX, LINE_BYTES_MAX, OUTGOING_MESSAGES_MAX};
use crate::line_buffer::LineBuffer;
use crate::link::ConnectionLink;
use crate::message::{self, SortedMessage, parse_message};
use crate::message_rate::MessageRate;
use bytes::Bytes;
use model::error::{ErrorCode, ErrorInfo};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tools::{DuplexProcess, ProcessInput};

/// Why a connection was closed for which nobody has given another reason.
pub(crate) const STOPPED_MESSAGE: &str = "The MCP server was stopped.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    #[error("the server has ended")]
    Closed,
    #[error("the message cannot be written: {0}")]
    Encode(#[from] serde_json::Error),
}

pub(crate) struct StdioTransport {
    label: String,
    /// `None` once it was stopped.
    process: Option<DuplexProcess>,
    lines: LineBuffer,
    outgoing: mpsc::Sender<Vec<u8>>,
    writer: JoinHandle<()>,
    link: Arc<ConnectionLink>,
    rate: MessageRate,
    /// Consecutive lines that were no messages.
    invalid_lines: usize,
    /// A long line that is being parsed: `receive` may be cancelled meanwhile.
    parsing: Option<JoinHandle<Option<ServerJsonRpcMessage>>>,
}

impl StdioTransport {
    pub(crate) fn new(label: &str, process: DuplexProcess, input: ProcessInput, link: Arc<ConnectionLink>) -> Self {
        let (outgoing, messages) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        Self {
            label: label.to_owned(),
            process: Some(process),
            lines: LineBuffer::default(),
            outgoing,
            writer: tokio::spawn(write_messages(input, messages)),
            link,
            rate: MessageRate::new(Instant::now()),
            invalid_lines: 0,
            parsing: None,
        }
    }

    /// Where messages to the server are written.
    pub(crate) fn outgoing(&self) -> mpsc::Sender<Vec<u8>> {
        self.outgoing.clone()
    }

    /// The next message that the library is to see.
    async fn next_message(&mut self) -> Result<ServerJsonRpcMessage, ErrorInfo> {
        loop {
            let parsed = match &mut self.parsing {
                Some(parsing) => {
                    let parsed = parsing.await.ok().flatten();
                    self.parsing = None;
                    parsed
                }
                None => match self.next_line().await? {
                    line if line.len() > INLINE_LINE_BYTES_MAX => {
                        self.parsing = Some(tokio::task::spawn_blocking(move || parse_message(&line)));
                        continue;
                    }
                    line if line.trim_ascii().is_empty() => continue,
                    line => parse_message(&line),
                },
            };
            match parsed {
                Some(message) => {
                    self.invalid_lines = 0;
                    if let Some(response) = self.filter_message(message)? {
                        return Ok(response);
                    }
                }
                None => {
                    self.invalid_lines += 1;
                    if self.invalid_lines >= INVALID_LINES_MAX {
                        return Err(
                            self.protocol_error(&format!("wrote {INVALID_LINES_MAX} lines that are not messages"))
                        );
                    }
                }
            }
        }
    }

    /// The next line, without secrets.
    async fn next_line(&mut self) -> Result<Bytes, ErrorInfo> {
        loop {
            let Some(process) = &mut self.process else { return Err(self.link.close_reason().unwrap_or_else(closed)) };
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    if self.rate.count_line(line.len(), Instant::now()).is_err() {
                        let message =
                            format!("The MCP server `{}` sent too many messages and was stopped.", self.label);
                        return Err(ErrorInfo::new(ErrorCode::McpFlood, message));
                    }
                    let text = std::str::from_utf8(&line).unwrap_or_default();
                    return Ok(match process.redact_json(text) {
                        std::borrow::Cow::Borrowed(_) => line,
                        std::borrow::Cow::Owned(redacted) => redacted.into_bytes().into(),
                    });
                }
                Ok(None) => match process.read().await {
                    Some(chunk) => self.lines.push(&chunk),
                    None => {
                        let outcome = process.describe_exit().await;
                        let message = format!("The MCP server `{}` {outcome}", self.label);
                        return Err(ErrorInfo::new(ErrorCode::McpUnavailable, message));
                    }
                },
                Err(_) => {
                    return Err(self.protocol_error(&format!("sent a message of more than {LINE_BYTES_MAX} bytes")));
                }
            }
        }
    }

    /// Keeps responses, and answers requests.
    fn filter_message(&mut self, message: ServerJsonRpcMessage) -> Result<Option<ServerJsonRpcMessage>, ErrorInfo> {
        match message::sort_message(message, &self.link, None) {
            SortedMessage::Response(response) => Ok(Some(response)),
            SortedMessage::Handled => Ok(None),
            SortedMessage::Answer(answer) => {
                let line = encode_line(&answer, None).map_err(|error| self.protocol_error(&error.to_string()))?;
                match self.outgoing.try_send(line) {
                    Ok(()) => Ok(None),
                    Err(_) => Err(self.protocol_error("asks, and does not read the answers")),
                }
            }
        }
    }

    fn protocol_error(&self, what: &str) -> ErrorInfo {
        let message = format!("The MCP server `{}` {what} and was stopped.", self.label);
        ErrorInfo::new(ErrorCode::McpProtocolError, message)
    }

    /// Ends the program.
    fn stop(&mut self, reason: ErrorInfo) {
        self.link.close(reason);
        self.writer.abort();
        self.process = None;
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = StdioError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let route = message::register_route(&message, &self.link);
        let line = encode_line(&message, route.as_ref().map(|route| &*route.arguments));
        let outgoing = self.outgoing.clone();
        async move { outgoing.send(line?).await.map_err(|_| StdioError::Closed) }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        match self.next_message().await {
            Ok(message) => Some(message),
            Err(reason) => {
                self.stop(reason);
                None
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.stop(closed());
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.stop(closed());
    }
}

pub(crate) fn closed() -> ErrorInfo {
    ErrorInfo::new(ErrorCode::McpUnavailable, STOPPED_MESSAGE)
}

async fn write_messages(mut input: ProcessInput, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = messages.recv().await {
        if input.write(&line).await.is_err() {
            return; // It has closed its stdin, so it is about to exit.
        }
    }
}

/// One line.
fn encode_line(message: &ClientJsonRpcMessage, arguments: Option<&str>) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = message::encode_message(message, arguments)?;
    // JSON has no line end of its own, unless the arguments were written over several lines.
    line.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, NumberOrString};
    use serde_json::Value;

    #[test]
    fn arguments_are_sent_digit_by_digit_and_on_one_line() {
        let call = CallToolRequest::new(CallToolRequestParams::new("trade"));
        let message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(call), NumberOrString::Number(7));
        let line = encode_line(&message, Some("{\"amount\":\n 10000000000000000000000.10}")).unwrap();
        let text = String::from_utf8(line).unwrap();
        assert!(text.contains("\"arguments\":{\"amount\":  10000000000000000000000.10}"), "{text}");
        assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["method"], &value["id"], &value["params"]["name"]),
            (&"tools/call".into(), &7.into(), &"trade".into())
        );
    }
}
