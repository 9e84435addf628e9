//! Reading deltas without a tree gives the same events as reading everything as a tree: on every stream fixture, on the
//! fuzz corpus, and on both with their events changed at random.

use crate::delta_json::{DeltaIngest, DeltaTemplate};
use crate::{Ingest, chat, messages, responses};
use model::model_turn::ModelEvent;
use model_testing::{Rng, test_seeds};
use serde_json::{Value, json};
use sse::{DecodeLimits, Decoder, SseEvent};
use std::path::{Path, PathBuf};

/// Reads everything as a tree.
#[derive(Default)]
struct TreeOnly<T>(T);

impl<T: DeltaIngest> DeltaIngest for TreeOnly<T> {
    fn read_delta(&mut self, _event: &SseEvent, _out: &mut Vec<ModelEvent>) -> bool {
        false
    }

    fn read_tree(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) {
        self.0.read_tree(event, out);
    }

    fn read_end(&mut self, out: &mut Vec<ModelEvent>) {
        self.0.read_end(out);
    }
}

/// Reads events in both ways, compares what they give, and returns how many were read without a tree.
fn compare<T: DeltaIngest + Default>(events: &[SseEvent], what: &str) -> usize {
    let (mut quick, mut tree) = (T::default(), TreeOnly(T::default()));
    let (mut quick_out, mut tree_out) = (Vec::new(), Vec::new());
    let mut without_tree = 0;
    for event in events {
        if quick.read_delta(event, &mut quick_out) {
            without_tree += 1;
        } else {
            assert_eq!(quick_out, [], "refused, but with an effect: {} ({what})", event.data);
            quick.read_tree(event, &mut quick_out);
        }
        tree.on_event(event, &mut tree_out);
        assert_eq!(quick_out, tree_out, "{} ({what})", event.data);
        quick_out.clear();
        tree_out.clear();
    }
    quick.on_end(&mut quick_out);
    tree.on_end(&mut tree_out);
    assert_eq!(quick_out, tree_out, "at the end ({what})");
    without_tree
}

/// The stream fixtures and the fuzz corpus of a dialect.
fn streams(dialect: &str) -> Vec<(String, Vec<SseEvent>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixtures = root.join("tests/it/streams").join(dialect);
    let corpus = root.join("../../fuzz/corpus").join(format!("ingest_{dialect}"));
    let folders = [fixtures.join("beyond-sdk"), fixtures, corpus];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file() && path.extension().is_none_or(|extension| extension != "json"));
    files.sort();
    assert!(files.len() > 10, "{files:?}");
    files.iter().map(|path| (path.display().to_string(), decode(&std::fs::read(path).unwrap()))).collect()
}

fn decode(bytes: &[u8]) -> Vec<SseEvent> {
    let (mut decoder, mut rest) = (Decoder::new(DecodeLimits::default()), bytes);
    std::iter::from_fn(|| decoder.decode(&mut rest).unwrap_or_default()).collect()
}

fn event(name: Option<&str>, data: impl Into<String>) -> SseEvent {
    SseEvent { id: None, event: name.map(str::to_owned), data: data.into() }
}

fn every_stream_is_read_alike<T: DeltaIngest + Default>(dialect: &str) {
    let streams = streams(dialect);
    let without_tree: usize = streams.iter().map(|(name, events)| compare::<T>(events, name)).sum();
    assert!(without_tree > 50, "only {without_tree} deltas of {dialect} were read without a tree");
    let mut names = Vec::new();
    for (_, events) in &streams {
        events
            .iter()
            .filter_map(|event| serde_json::from_str(&event.data).ok())
            .for_each(|v| member_names(&v, &mut names));
    }
    for seed in test_seeds() {
        let mut change = Change { rng: Rng::new(seed), names: &names, percent: 4 };
        for (name, events) in &streams {
            let changed: Vec<SseEvent> = events.iter().map(|event| change.event(event)).collect();
            compare::<T>(&changed, &format!("{name}, SEED={seed}"));
        }
    }
}

fn member_names(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if !names.contains(name) {
                    names.push(name.clone());
                }
                member_names(value, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| member_names(value, names)),
        _ => {}
    }
}

/// Writes JSON with changes that a parser may treat differently: other types, duplicate and additional members, escapes,
/// arrays instead of objects, texts that are not quite JSON.
struct Change<'a> {
    rng: Rng,
    names: &'a [String],
    /// The probability of a change at each value.
    percent: u32,
}

impl Change<'_> {
    fn event(&mut self, event: &SseEvent) -> SseEvent {
        let mut changed = event.clone();
        if let Ok(value) = serde_json::from_str(&event.data)
            && self.rng.chance(30)
        {
            changed.data = self.value(&value);
        }
        if self.rng.chance(1) {
            changed.event = Some(self.rng.choose("error", &["", "response.output_text.delta", "ping"]).to_owned());
        }
        changed
    }

    fn value(&mut self, value: &Value) -> String {
        if self.rng.chance(self.percent) {
            return self.odd_value(0);
        }
        match value {
            Value::Object(members) if self.rng.chance(self.percent) => {
                let values: Vec<String> = members.values().map(|value| self.value(value)).collect();
                format!("[{}]", values.join(","))
            }
            Value::Object(members) => {
                let mut written = Vec::new();
                for (name, value) in members {
                    if self.rng.chance(self.percent) {
                        continue;
                    }
                    written.push(self.member(name, value));
                    if self.rng.chance(self.percent) {
                        written.push(self.member(name, value));
                    }
                }
                if self.rng.chance(self.percent * 2) {
                    let name = self.rng.pick(self.names).cloned().unwrap_or_default();
                    let value = self.odd_value(0);
                    let at = self.rng.below(written.len() + 1);
                    written.insert(at, format!("{}:{value}", json!(name)));
                }
                format!("{{{}}}", written.join(","))
            }
            Value::Array(list) => {
                let mut written: Vec<String> = list.iter().map(|value| self.value(value)).collect();
                if self.rng.chance(self.percent)
                    && let Some(first) = list.first()
                {
                    written.push(self.value(first));
                }
                format!("[{}]", written.join(", "))
            }
            Value::String(text) => self.string(text),
            other => other.to_string(),
        }
    }

    fn member(&mut self, name: &str, value: &Value) -> String {
        format!("{}:{}", self.string(name), self.value(value))
    }

    fn string(&mut self, text: &str) -> String {
        if self.rng.chance(self.percent) {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            return format!("\"{units}\"");
        }
        json!(text).to_string()
    }

    fn odd_value(&mut self, depth: u32) -> String {
        const LEAVES: [&str; 24] = [
            "null",
            "true",
            "0",
            "1",
            "-1",
            "0.0",
            "1e2",
            "4294967296",
            "18446744073709551616",
            "1e999",
            "NaN",
            "\"\"",
            "\"a\"",
            "\"error\"",
            "\"stop\"",
            "\"content_block_delta\"",
            "\"response.output_text.delta\"",
            r#""\n\"\u00e9\ud83d\ude00""#,
            r#""\ud800""#,
            "\"\u{1}\"",
            "[]",
            "{}",
            "[{}]",
            "tru",
        ];
        match self.rng.below(40) {
            0 => format!("{}{}", "[".repeat(200), "]".repeat(200)),
            1 => format!("{}{}", "[".repeat(90), "]".repeat(90)),
            2 | 3 if depth < 3 => format!("[{}]", self.odd_value(depth + 1)),
            4..7 if depth < 3 => {
                let name = self.rng.pick(self.names).cloned().unwrap_or_default();
                format!("{{{}:{}}}", json!(name), self.odd_value(depth + 1))
            }
            _ => self.rng.choose("\"b\"", &LEAVES).to_owned(),
        }
    }
}

#[test]
fn chat_is_read_alike_with_and_without_a_tree() {
    every_stream_is_read_alike::<chat::ChatIngest>("chat");
}

#[test]
fn messages_are_read_alike_with_and_without_a_tree() {
    every_stream_is_read_alike::<messages::MessagesIngest>("messages");
}

#[test]
fn responses_are_read_alike_with_and_without_a_tree() {
    every_stream_is_read_alike::<responses::ResponsesIngest>("responses");
}

/// Each of these rows has a member that makes it more than a usual delta.
#[test]
fn unusual_chunks_of_chat_are_read_as_a_tree() {
    let chunk = |choice: &str, more: &str| format!(r#"{{"choices":[{{"index":0,{choice}}}]{more}}}"#);
    let text = r#""delta":{"content":"a"}"#;
    let call = r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}"#;
    let rows = [
        chunk(&format!(r#"{text},"finish_reason":"stop""#), ""),
        chunk(&format!(r#"{text},"logprobs":{{"content":[{{"token":"a"}}]}}"#), ""),
        chunk(&format!(r#"{text},"usage":{{"prompt_tokens":1}}"#), ""),
        chunk(&format!(r#"{text},"error":"no""#), ""),
        chunk(&format!(r#"{text},"object":"error""#), ""),
        chunk(text, r#","usage":{"prompt_tokens":1}"#),
        chunk(text, r#","x_groq":{"usage":{"prompt_tokens":1}}"#),
        chunk(text, r#","error":{"message":"no"}"#),
        chunk(text, r#","object":"error""#),
        chunk(text, r#","choices":[]"#),
        chunk(r#""delta":{},"message":{"content":"a"}"#, ""),
        chunk(r#""delta":["a"]"#, ""),
        chunk(r#""delta":{"content":[{"type":"text","text":"a"}]}"#, ""),
        chunk(r#""delta":{"content":"a","content":"b"}"#, ""),
        chunk(r#""delta":{"content":"a","refusal":"b"}"#, ""),
        chunk(r#""delta":{"content":"a","annotations":[{"type":"x"}]}"#, ""),
        chunk(r#""delta":{"content":"a","images":[{"type":"image_url","image_url":"u"}]}"#, ""),
        chunk(r#""delta":{"content":"a","audio":{"id":"a"}}"#, ""),
        chunk(r#""delta":{"content":"a","reasoning_details":[{"text":"a"}]}"#, ""),
        chunk(r#""delta":{"content":"a","function_call":{"name":"f","arguments":"{}"}}"#, ""),
        chunk(&format!(r#""delta":{{"tool_calls":{call}}}"#), ""),
        chunk(&format!(r#""delta":{{"tool_calls":[{call},{call}]}}"#), ""),
        chunk(r#""delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":{"x":1}}}]}"#, ""),
        chunk(r#""delta":{"tool_calls":[{"index":0,"function":{"name":"f"},"extra_content":{"s":1}}]}"#, ""),
        chunk(&format!(r#""delta":{{"content":"a"}},"x":{}{}"#, "[".repeat(200), "]".repeat(200)), ""),
        r#"{"choices":[{"index":1,"delta":{"content":"a"}}]}"#.to_owned(),
        r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#.to_owned(),
        r#"[null,null,null,[{"delta":{"content":"a"}}]]"#.to_owned(),
    ];
    for data in rows {
        assert_eq!(compare::<chat::ChatIngest>(&[event(None, data.as_str())], &data), 0, "{data}");
    }
    assert_eq!(compare::<chat::ChatIngest>(&[event(Some("error"), chunk(text, ""))], "named error"), 0);
}

#[test]
fn usual_deltas_with_unimportant_members_need_no_tree() {
    let chat = [
        r#"{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"a","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"new":{"a":[1]},"obfuscation":"x"}"#,
        r#" {"choices":[{"delta":{"content":null,"reasoning":"é\n"},"finish_reason":""}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"b","reasoning_content":"a","content":"c"}}],"new":"\ud800"}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}],"new":1e999}"#,
    ];
    let chat = chat.map(|data| event(None, data));
    assert_eq!(compare::<chat::ChatIngest>(&chat, "chat"), chat.len());
    let text = r#""type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0"#;
    let responses = [
        format!(r#"{{{text},"delta":"a","logprobs":[],"obfuscation":"x","sequence_number":4}}"#),
        format!(r#"{{{text},"delta":"\u00e9\n","logprobs":null}}"#),
        r#"{"type":"response.custom_tool_call_input.delta","item_id":"c","output_index":1,"delta":"x"}"#.to_owned(),
        r#"{"type":"response.output_text.done","item_id":"m","output_index":0,"content_index":0,"text":"aé\n"}"#
            .to_owned(),
        // Its part has ended, so the whole event is passed on.
        format!(r#"{{{text},"delta":"late","new":[1]}}"#),
    ];
    let responses = responses.map(|data| event(None, data));
    assert_eq!(compare::<responses::ResponsesIngest>(&responses, "responses"), responses.len() - 1);
}

#[test]
fn unusual_deltas_of_responses_and_messages_are_read_as_a_tree() {
    for data in [
        r#"{"type":"response.output_text.delta","delta":"a","logprobs":[{"token":"a"}]}"#,
        r#"{"type":"response.output_text.delta","delta":"a","logprobs":{}}"#,
        r#"{"type":"response.output_text.delta","delta":"a","delta":"b"}"#,
        r#"{"type":"response.output_text.delta","delta":{"text":"a"}}"#,
        r#"{"type":"response.output_text.delta","delta":"a","output_index":4294967296}"#,
        r#"{"delta":"a","item_id":"m"}"#,
        r#"["response.output_text.delta","a",null,null,null,null,null]"#,
    ] {
        let event = event(Some("response.output_text.delta"), data);
        assert_eq!(compare::<responses::ResponsesIngest>(&[event], data), 0, "{data}");
    }
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    for data in [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":["text_delta","a",null,null]}"#,
        r#"["content_block_delta",0,["text_delta","a",null,null]]"#,
        r#"{"type":"content_block_delta","index":0,"index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}"#,
    ] {
        let events = [event(None, start), event(Some("content_block_delta"), data)];
        assert_eq!(compare::<messages::MessagesIngest>(&events, data), 0, "{data}");
    }
}

/// What looks like the delta before it except for the text is read by comparison; what only looks so is not.
#[test]
fn a_delta_that_differs_in_its_text_alone_is_found_by_comparison() {
    let last = r#"{"id":"text","model":"text","choices":[{"delta":{"content":"text"}}]}"#;
    let content_at = last.rfind("text").unwrap();
    let template = DeltaTemplate::new((), last, &last[content_at..content_at + 4]).unwrap();
    let chunk =
        |text: &str| format!(r#"{{"id":"text","model":"text","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
    for text in ["", "a", "Grüße 🌊", "}}]}"] {
        assert_eq!(template.find_text(&chunk(text)), Some(((), text)));
    }
    let more = r#"a"},"usage":{"x":"y"#;
    for text in [r"a\n", r#"a","refusal":"no"#, more, "a\n", r"\ud83d\ude00"] {
        assert_eq!(template.find_text(&chunk(text)), None, "{text}");
    }
    assert_eq!(template.find_text(&chunk("a").replace("\"id\":\"text\"", "\"id\":\"other\"")), None);
    assert_eq!(template.find_text(r#"{"id":"text","model":"text","choices":[{"delta":{"content":"#), None);
    assert!(DeltaTemplate::new((), last, "text of another string").is_none());
    // Texts that differ, models that change between them, and a text that needs the parser.
    let said =
        |model: &str, text: &str| format!(r#"{{"model":"{model}","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
    let other = r#"{"model":"c","choices":[],"usage":{"prompt_tokens":1}}"#.to_owned();
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned();
    let stream =
        [said("a", "1"), said("a", "2"), said("b", "3"), said("b", r"4\n"), said("b", "5"), other, said("b", "6")];
    let events: Vec<SseEvent> = stream.into_iter().chain([end]).map(|data| event(None, data)).collect();
    compare::<chat::ChatIngest>(&events, "one after the other");
    compare::<chat::ChatIngest>(&events[..events.len() - 2], "without the last delta");
}
