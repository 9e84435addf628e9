//! What the mock sends: the same text in the frames of each protocol.
//!
//! The frames have the members that a client or an ingest of that protocol needs, and a delta has about the size of a
//! provider's (200 bytes), so that every server transports and parses what it would from a real one.

use crate::clock;
use crate::stream_protocol::StreamProtocol;
use std::fmt::Write;

/// The text after timestamp and number, as in `scenarios.toml`.
pub(crate) const DELTA_TEXT: &str = "once upon a time ";

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MockStreamEnd {
    Completed,
    Failed,
}

/// Writes the frames of one stream.
pub(crate) struct FrameWriter {
    protocol: StreamProtocol,
    /// All deltas, for the protocol that repeats them.
    text: String,
}

/// Frames that precede the first delta of a response.
const RESPONSES_OPENING_FRAMES: u32 = 3;

impl FrameWriter {
    pub(crate) fn new(protocol: StreamProtocol) -> Self {
        Self { protocol, text: String::new() }
    }

    /// The frames before the first delta.
    pub(crate) fn opening(&self) -> String {
        match self.protocol {
            StreamProtocol::Tasks => String::new(),
            StreamProtocol::Responses => {
                typed_frame(
                    "response.created",
                    "\"sequence_number\":0,\"response\":{\"id\":\"resp_mock\",\"object\":\"response\",\"created_at\":1763000000,\
                     \"status\":\"in_progress\",\"model\":\"story\",\"output\":[]}",
                ) + &typed_frame(
                    "response.output_item.added",
                    "\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\
                     \"status\":\"in_progress\",\"content\":[],\"role\":\"assistant\"}",
                ) + &typed_frame(
                    "response.content_part.added",
                    "\"sequence_number\":2,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\
                     \"part\":{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"\"}",
                )
            }
            StreamProtocol::Chat => chat_frame("{\"role\":\"assistant\",\"content\":\"\"}", "null"),
            StreamProtocol::Messages => {
                typed_frame(
                    "message_start",
                    "\"message\":{\"model\":\"story\",\"id\":\"msg_mock\",\"type\":\"message\",\"role\":\"assistant\",\
                     \"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
                     \"usage\":{\"input_tokens\":9,\"output_tokens\":1}}",
                ) + &typed_frame(
                    "content_block_start",
                    "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}",
                )
            }
            StreamProtocol::Blocks => {
                blocks_frame("message_start", "\"session_id\":\"thr_mock\",\"display_mode\":\"agent\",\"input\":[]")
                    + &blocks_frame(
                        "content_block_start",
                        "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"is_part\":false}",
                    )
            }
        }
    }

    /// Delta `number`, counted from 1, stamped with the current time.
    pub(crate) fn delta(&mut self, number: u32) -> String {
        let now = clock::now_us();
        match self.protocol {
            StreamProtocol::Tasks => task_delta(now, number),
            StreamProtocol::Responses => {
                let text = format!("{now} {number} {DELTA_TEXT}");
                let sequence = number - 1 + RESPONSES_OPENING_FRAMES;
                self.text.push_str(&text);
                typed_frame(
                    "response.output_text.delta",
                    &format!(
                        "\"sequence_number\":{sequence},\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\
                         \"delta\":\"{text}\",\"logprobs\":[]"
                    ),
                )
            }
            StreamProtocol::Chat => chat_frame(&format!("{{\"content\":\"{now} {number} {DELTA_TEXT}\"}}"), "null"),
            StreamProtocol::Messages => typed_frame(
                "content_block_delta",
                &format!("\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{now} {number} {DELTA_TEXT}\"}}"),
            ),
            StreamProtocol::Blocks => blocks_frame(
                "content_block_delta",
                &format!("\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{now} {number} {DELTA_TEXT}\"}}"),
            ),
        }
    }

    /// The frames after `deltas` deltas.
    pub(crate) fn terminal(&self, deltas: u32, end: MockStreamEnd) -> String {
        match (self.protocol, end) {
            (StreamProtocol::Tasks, MockStreamEnd::Completed) => task_terminal(deltas + 1, "task.completed"),
            (StreamProtocol::Tasks, MockStreamEnd::Failed) => task_terminal(deltas + 1, "task.failed"),
            (StreamProtocol::Responses, _) => self.responses_terminal(deltas, end),
            (StreamProtocol::Chat, MockStreamEnd::Completed) => {
                let usage = format!(
                    "data: {{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion.chunk\",\"created\":1763000000,\
                     \"model\":\"story\",\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{deltas},\
                     \"total_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
                    deltas + 9
                );
                chat_frame("{}", "\"stop\"") + &usage
            }
            (StreamProtocol::Chat, MockStreamEnd::Failed) => {
                "data: {\"error\":{\"message\":\"planted\",\"type\":\"server_error\",\"code\":null,\"param\":null}}\n\n"
                    .into()
            }
            (StreamProtocol::Messages, MockStreamEnd::Completed) => {
                typed_frame("content_block_stop", "\"index\":0")
                    + &typed_frame(
                        "message_delta",
                        &format!(
                            "\"delta\":{{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}},\
                             \"usage\":{{\"output_tokens\":{deltas}}}"
                        ),
                    )
                    + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
            }
            (StreamProtocol::Messages, MockStreamEnd::Failed) => {
                typed_frame("error", "\"error\":{\"type\":\"api_error\",\"message\":\"planted\"}")
            }
            (StreamProtocol::Blocks, end) => {
                let stop_reason = if end == MockStreamEnd::Completed { "end_turn" } else { "error" };
                blocks_frame("content_block_stop", "\"index\":0,\"is_final\":true")
                    + &blocks_frame("message_delta", &format!("\"delta\":{{\"stop_reason\":\"{stop_reason}\"}}"))
                    + &blocks_frame("message_stop", "\"duration_ms\":1")
            }
        }
    }

    fn responses_terminal(&self, deltas: u32, end: MockStreamEnd) -> String {
        let (next, text) = (deltas + RESPONSES_OPENING_FRAMES, &self.text);
        let part = format!("{{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"{text}\"}}");
        let item = format!(
            "{{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\"content\":[{part}],\"role\":\"assistant\"}}"
        );
        let (name, status, error) = match end {
            MockStreamEnd::Completed => ("response.completed", "completed", "null"),
            MockStreamEnd::Failed => {
                ("response.failed", "failed", "{\"code\":\"server_error\",\"message\":\"planted\"}")
            }
        };
        let place = "\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0";
        typed_frame(
            "response.output_text.done",
            &format!("\"sequence_number\":{next},{place},\"text\":\"{text}\",\"logprobs\":[]"),
        ) + &typed_frame(
            "response.content_part.done",
            &format!("\"sequence_number\":{},{place},\"part\":{part}", next + 1),
        ) + &typed_frame(
            "response.output_item.done",
            &format!("\"sequence_number\":{},\"output_index\":0,\"item\":{item}", next + 2),
        ) + &typed_frame(
            name,
            &format!(
                "\"sequence_number\":{},\"response\":{{\"id\":\"resp_mock\",\"object\":\"response\",\
                 \"created_at\":1763000000,\"status\":\"{status}\",\"error\":{error},\"model\":\"story\",\"output\":[{item}],\
                 \"usage\":{{\"input_tokens\":9,\"output_tokens\":{deltas},\"total_tokens\":{}}}}}",
                next + 3,
                deltas + 9
            ),
        ) + "data: [DONE]\n\n"
    }
}

/// A frame whose `type` is also its event's name, as in Responses and Messages.
fn typed_frame(name: &str, members: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\",{members}}}\n\n")
}

/// A frame of content blocks, with the members that all of them have.
fn blocks_frame(name: &str, members: &str) -> String {
    typed_frame(
        name,
        &format!("{members},\"message_id\":\"task_0199f3a20000000000000000000000aa\",\"cursor\":\"17-00000000\""),
    )
}

fn chat_frame(delta: &str, finish_reason: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion.chunk\",\"created\":1763000000,\"model\":\"story\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
}

fn task_delta(now: u64, seq: u32) -> String {
    let mut frame = String::with_capacity(256);
    let at = now / 1000;
    // Writing to a String cannot fail.
    let _ = write!(
        frame,
        "id: {seq}\nevent: task.text.delta\ndata: {{\"type\":\"task.text.delta\",\"task_id\":\"task_0199f3a2\",\
         \"item_id\":\"msg_0199f3a21\",\"output_index\":0,\"block_index\":0,\"delta\":\"{now} {seq} {DELTA_TEXT}\",\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    );
    frame
}

fn task_terminal(seq: u32, kind: &str) -> String {
    let at = clock::now_us() / 1000;
    format!(
        "id: {seq}\nevent: {kind}\ndata: {{\"type\":\"{kind}\",\"task_id\":\"task_0199f3a2\",\"usage\":{{}},\
         \"seq\":{seq},\"at\":{at}}}\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_about_as_large_as_a_providers() {
        for (protocol, bytes) in [
            (StreamProtocol::Tasks, 150..=200),
            (StreamProtocol::Responses, 150..=200),
            (StreamProtocol::Chat, 170..=220),
            (StreamProtocol::Messages, 100..=150),
            (StreamProtocol::Blocks, 180..=240),
        ] {
            let frame = FrameWriter::new(protocol).delta(100);
            let (_, data) = frame.split_once("data: ").unwrap();
            assert!(bytes.contains(&data.trim_end().len()), "{protocol:?}: {}", data.len());
        }
    }

    #[test]
    fn every_frame_is_json() {
        for protocol in StreamProtocol::ALL {
            for end in [MockStreamEnd::Completed, MockStreamEnd::Failed] {
                let mut writer = FrameWriter::new(protocol);
                let frames = writer.opening() + &writer.delta(1) + &writer.terminal(1, end);
                let data = frames.lines().filter_map(|line| line.strip_prefix("data: "));
                for data in data.filter(|data| *data != "[DONE]") {
                    serde_json::from_str::<serde_json::Value>(data).expect(data);
                }
            }
        }
    }
}
