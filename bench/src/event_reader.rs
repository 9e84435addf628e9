//! What one event of a stream means for its check, in each protocol.

use crate::stream_protocol::StreamProtocol;
use serde::Deserialize;
use std::borrow::Cow;

/// One event, reduced to what is checked.
#[derive(Debug, PartialEq)]
pub(crate) struct CheckedEvent<'a> {
    /// Of an event that is numbered.
    pub(crate) sequence: Option<u64>,
    pub(crate) meaning: EventMeaning<'a>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum EventMeaning<'a> {
    /// A piece of text.
    Delta(Cow<'a, str>),
    /// All deltas again.
    FullText(Cow<'a, str>),
    /// The output is complete; in some protocols more events follow.
    Completed,
    /// The output is complete, and this is the last event.
    CompletedAndLast,
    /// The last event, after [`Self::Completed`]. It has no number.
    Last,
    /// The run ended otherwise.
    Failed,
    Other,
}

/// The event is not one of its protocol's.
#[derive(Debug, PartialEq)]
pub(crate) struct NotAnEvent;

/// The last event of OpenAI's protocols, the only one that is not JSON.
pub(crate) const END_MARKER: &[u8] = b"[DONE]";

/// Reads the `data` of one event.
pub(crate) fn read_event(protocol: StreamProtocol, data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    match protocol {
        StreamProtocol::Responses | StreamProtocol::Chat if data == END_MARKER => {
            Ok(CheckedEvent { sequence: None, meaning: EventMeaning::Last })
        }
        StreamProtocol::Tasks => read_task_event(data),
        StreamProtocol::Responses => read_responses_event(data),
        StreamProtocol::Chat => read_chat_chunk(data),
        StreamProtocol::Messages => read_messages_event(data),
        StreamProtocol::Blocks => read_blocks_event(data),
    }
}

fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, NotAnEvent> {
    serde_json::from_slice(data).map_err(|_| NotAnEvent)
}

#[derive(Deserialize)]
struct TaskEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    #[serde(borrow, default)]
    delta: Cow<'a, str>,
    #[serde(borrow, default)]
    item: TextItem<'a>,
}

#[derive(Default, Deserialize)]
struct TextItem<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

fn read_task_event(data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    let event: TaskEvent<'_> = parse(data)?;
    let meaning = match &*event.kind {
        "task.text.delta" => EventMeaning::Delta(event.delta),
        // Long texts are not repeated, so a missing one is no fault.
        "task.text.done" if !event.item.text.is_empty() => EventMeaning::FullText(event.item.text),
        "task.completed" => EventMeaning::CompletedAndLast,
        "task.failed" | "task.incomplete" | "task.cancelled" => EventMeaning::Failed,
        _ => EventMeaning::Other,
    };
    Ok(CheckedEvent { sequence: Some(event.seq), meaning })
}

#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    sequence_number: u64,
    #[serde(borrow, default)]
    delta: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

fn read_responses_event(data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    let event: ResponsesEvent<'_> = parse(data)?;
    let meaning = match &*event.kind {
        "response.output_text.delta" => EventMeaning::Delta(event.delta),
        "response.output_text.done" => EventMeaning::FullText(event.text),
        "response.completed" => EventMeaning::Completed,
        "response.failed" | "response.incomplete" | "error" => EventMeaning::Failed,
        _ => EventMeaning::Other,
    };
    Ok(CheckedEvent { sequence: Some(event.sequence_number), meaning })
}

#[derive(Deserialize)]
struct ChatChunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<ChatChoice<'a>>,
    #[serde(default)]
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(borrow)]
    delta: ChatDelta<'a>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ChatDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
}

fn read_chat_chunk(data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    let chunk: ChatChunk<'_> = parse(data)?;
    let meaning = match chunk.choices.into_iter().next() {
        _ if chunk.error.is_some() => EventMeaning::Failed,
        Some(ChatChoice { finish_reason: Some(reason), .. }) if reason == "stop" => EventMeaning::Completed,
        Some(ChatChoice { finish_reason: Some(_), .. }) => EventMeaning::Failed,
        Some(ChatChoice { delta: ChatDelta { content: Some(content) }, .. }) if !content.is_empty() => {
            EventMeaning::Delta(content)
        }
        _ => EventMeaning::Other,
    };
    Ok(CheckedEvent { sequence: None, meaning })
}

#[derive(Deserialize)]
struct MessagesEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    delta: MessagesDelta<'a>,
}

#[derive(Default, Deserialize)]
struct MessagesDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
}

fn read_messages_event(data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    let event: MessagesEvent<'_> = parse(data)?;
    let meaning = match (&*event.kind, event.delta) {
        ("content_block_delta", MessagesDelta { text: Some(text), .. }) => EventMeaning::Delta(text),
        ("message_delta", MessagesDelta { stop_reason: Some(reason), .. }) if reason == "end_turn" => {
            EventMeaning::Completed
        }
        ("message_delta", MessagesDelta { stop_reason: Some(_), .. }) | ("error", _) => EventMeaning::Failed,
        ("message_stop", _) => EventMeaning::Last,
        _ => EventMeaning::Other,
    };
    Ok(CheckedEvent { sequence: None, meaning })
}

#[derive(Deserialize)]
struct BlocksEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    delta: BlocksEventDelta<'a>,
}

#[derive(Default, Deserialize)]
struct BlocksEventDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    /// Of the text that says why a turn ended early.
    #[serde(default)]
    extras: Option<serde::de::IgnoredAny>,
}

fn read_blocks_event(data: &[u8]) -> Result<CheckedEvent<'_>, NotAnEvent> {
    let event: BlocksEvent<'_> = parse(data)?;
    let meaning = match (&*event.kind, event.delta) {
        ("content_block_delta", BlocksEventDelta { extras: Some(_), .. }) | ("error", _) => EventMeaning::Failed,
        ("content_block_delta", BlocksEventDelta { text: Some(text), .. }) => EventMeaning::Delta(text),
        ("message_delta", BlocksEventDelta { stop_reason: Some(reason), .. }) if reason == "end_turn" => {
            EventMeaning::Completed
        }
        ("message_delta", BlocksEventDelta { stop_reason: Some(_), .. }) => EventMeaning::Failed,
        ("message_stop", _) => EventMeaning::Last,
        _ => EventMeaning::Other,
    };
    Ok(CheckedEvent { sequence: None, meaning })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(protocol: StreamProtocol, data: &str) -> EventMeaning<'_> {
        read_event(protocol, data.as_bytes()).unwrap().meaning
    }

    #[test]
    fn a_limit_is_not_a_completion() {
        let chunk = r#"{"choices":[{"delta":{},"finish_reason":"length","index":0}]}"#;
        assert_eq!(meaning(StreamProtocol::Chat, chunk), EventMeaning::Failed);
        let delta = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#;
        assert_eq!(meaning(StreamProtocol::Messages, delta), EventMeaning::Failed);
        let incomplete = r#"{"type":"response.incomplete","sequence_number":4,"response":{}}"#;
        assert_eq!(meaning(StreamProtocol::Responses, incomplete), EventMeaning::Failed);
        let limited =
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"message_id":"task_1","cursor":"9"}"#;
        assert_eq!(meaning(StreamProtocol::Blocks, limited), EventMeaning::Failed);
        let stopped =
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Đã","extras":{}}}"#;
        assert_eq!(meaning(StreamProtocol::Blocks, stopped), EventMeaning::Failed);
        let cancelled = r#"{"type":"task.cancelled","seq":4}"#;
        assert_eq!(meaning(StreamProtocol::Tasks, cancelled), EventMeaning::Failed);
    }

    #[test]
    fn an_event_without_its_number_is_malformed() {
        assert_eq!(read_event(StreamProtocol::Responses, br#"{"type":"response.created"}"#), Err(NotAnEvent));
        assert_eq!(read_event(StreamProtocol::Tasks, br#"{"type":"task.created"}"#), Err(NotAnEvent));
    }
}
