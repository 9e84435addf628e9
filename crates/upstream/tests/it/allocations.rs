//! Counts the allocations of one delta, from the bytes of its SSE event to its model event, and of a turn of the history in
//! a request. Counts are deterministic, so they notice what timings cannot: a JSON tree that is built again, or a text that
//! is copied once more.

use crate::chat::event_lines::turn;
use model::content::ContentPart;
use model::history::HistoryEntry;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use sse::{DecodeLimits, Decoder, SseEvent};
use upstream::{Ingest, RequestTarget, chat, messages, responses};

/// Fills the buffers that are used again for each delta.
const WARM_UP_DELTAS: usize = 100;
const DELTAS: usize = 1000;
/// A buffer that keeps the whole text grows a few times.
const GROWTH_ALLOCATIONS: u64 = 8;

/// The text of the model event is the one allocation that a delta needs.
#[track_caller]
fn assert_one_allocation_per_delta(ingest: Box<dyn Ingest>, opening: &[&str], delta: &str) {
    let allocations = allocations_of_deltas(ingest, opening, delta);
    println!("{:.2} allocations per delta", allocations as f64 / DELTAS as f64);
    assert!(allocations <= DELTAS as u64 + GROWTH_ALLOCATIONS, "{allocations} allocations for {DELTAS} × {delta}");
}

fn allocations_of_deltas(mut ingest: Box<dyn Ingest>, opening: &[&str], delta: &str) -> u64 {
    let mut decoder = Decoder::new(DecodeLimits::default());
    let (mut event, mut out) = (SseEvent::default(), Vec::new());
    let mut read = |bytes: &[u8], out: &mut Vec<ModelEvent>| {
        let mut rest = bytes;
        while decoder.decode_into(&mut rest, &mut event).unwrap() {
            ingest.on_event(&event, out);
        }
    };
    for event in opening {
        read(frame(event).as_bytes(), &mut out);
    }
    let delta = frame(delta);
    for _ in 0..WARM_UP_DELTAS {
        out.clear();
        read(delta.as_bytes(), &mut out);
    }
    let counted = allocation_counter::measure(|| {
        for _ in 0..DELTAS {
            out.clear();
            read(delta.as_bytes(), &mut out);
        }
    });
    let [ModelEvent::Delta(event)] = &out[..] else { panic!("{out:?}") };
    assert!(!matches!(event, ModelDelta::Unknown(_)), "{event:?}");
    counted.count_total
}

/// An event with its name, as services of the dialects Responses and Messages send it.
fn frame(data: &str) -> String {
    let name = data.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
    name.map_or_else(|| format!("data: {data}\n\n"), |name| format!("event: {name}\ndata: {data}\n\n"))
}

fn chat_ingest() -> Box<dyn Ingest> {
    chat::new_ingest("here".to_owned(), &turn(Vec::new()))
}

fn responses_ingest() -> Box<dyn Ingest> {
    responses::new_ingest("here".to_owned(), &turn(Vec::new()))
}

fn messages_ingest() -> Box<dyn Ingest> {
    messages::new_ingest("here".to_owned(), &turn(Vec::new()))
}

fn chat_chunk(delta: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763000000,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_1","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"aB3"}}"#
    )
}

#[test]
fn a_text_delta_of_chat_is_one_allocation() {
    let opening = chat_chunk(r#"{"role":"assistant","content":"","refusal":null}"#);
    assert_one_allocation_per_delta(chat_ingest(), &[&opening], &chat_chunk(r#"{"content":" word"}"#));
}

#[test]
fn a_reasoning_delta_of_chat_is_one_allocation() {
    let delta = chat_chunk(r#"{"role":"assistant","content":null,"reasoning_content":" word"}"#);
    assert_one_allocation_per_delta(chat_ingest(), &[], &delta);
}

#[test]
fn an_arguments_delta_of_chat_is_one_allocation() {
    let call = r#"{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"[1"}}"#;
    let opening = chat_chunk(&format!(r#"{{"tool_calls":[{call}]}}"#));
    let delta = chat_chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":", 1"}}]}"#);
    assert_one_allocation_per_delta(chat_ingest(), &[&opening], &delta);
}

#[test]
fn a_text_delta_of_responses_is_one_allocation() {
    let opening = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message"}}"#;
    let delta = r#"{"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" word","logprobs":[],"obfuscation":"aB3"}"#;
    assert_one_allocation_per_delta(responses_ingest(), &[opening], delta);
}

#[test]
fn a_reasoning_delta_of_responses_is_one_allocation() {
    let opening = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning"}}"#;
    let delta = r#"{"type":"response.reasoning_summary_text.delta","sequence_number":7,"item_id":"rs_1","output_index":0,"summary_index":0,"delta":" word"}"#;
    assert_one_allocation_per_delta(responses_ingest(), &[opening], delta);
}

#[test]
fn an_arguments_delta_of_responses_is_one_allocation() {
    let opening = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"f"}}"#;
    let delta = r#"{"type":"response.function_call_arguments.delta","sequence_number":7,"item_id":"fc_1","output_index":0,"delta":", 1"}"#;
    assert_one_allocation_per_delta(responses_ingest(), &[opening], delta);
}

fn messages_delta(opening: &str, delta: &str) {
    let opening = format!(r#"{{"type":"content_block_start","index":0,"content_block":{opening}}}"#);
    let delta = format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
    assert_one_allocation_per_delta(messages_ingest(), &[&opening], &delta);
}

#[test]
fn a_text_delta_of_messages_is_one_allocation() {
    messages_delta(r#"{"type":"text","text":""}"#, r#"{"type":"text_delta","text":" word"}"#);
}

#[test]
fn a_thinking_delta_of_messages_is_one_allocation() {
    messages_delta(r#"{"type":"thinking","thinking":""}"#, r#"{"type":"thinking_delta","thinking":" word"}"#);
}

#[test]
fn an_input_delta_of_messages_is_one_allocation() {
    let opening = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#;
    messages_delta(opening, r#"{"type":"input_json_delta","partial_json":", 1"}"#);
}

/// The allocations that a further turn of history adds to the text of a request.
fn allocations_per_past_turn(write_request: impl Fn(&ModelRequest, &RequestTarget<'_>) -> Vec<u8>) -> f64 {
    let count = |turns: usize| {
        let past = |_| {
            let question = HistoryEntry::User { content: vec![ContentPart::text("x".repeat(100))] };
            [question, HistoryEntry::Assistant { id: "msg_1".into(), text: "y".repeat(100), raw: None }]
        };
        let turn = turn((0..turns).flat_map(past).collect());
        let target = RequestTarget { model: "m", origin: "here", store: false };
        allocation_counter::measure(|| drop(write_request(&turn, &target))).count_total
    };
    (count(1_100) - count(100)) as f64 / 1_000.0
}

/// A list of the parts of a message, and what it is told apart by; no tree, and no copy of a text.
#[test]
fn a_past_turn_in_a_request_is_a_few_allocations() {
    for (dialect, allocations, max) in [
        ("chat", allocations_per_past_turn(chat::write_request), 5.1),
        ("responses", allocations_per_past_turn(responses::write_request), 2.1),
    ] {
        println!("{dialect}: {allocations:.2} allocations per past turn");
        assert!(allocations <= max, "{dialect}: {allocations} allocations per past turn");
    }
}
