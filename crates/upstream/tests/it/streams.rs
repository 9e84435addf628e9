//! The expected result of each answer: its text, calls and tokens, in a `.json` next to the `.sse`.
//!
//! `e2e/streams.test.mjs` decodes the same streams with the services' own clients and compares them with the same
//! files, so streams that those clients cannot parse have none. To rewrite the files, and then review the changes:
//! `UPDATE_STREAMS=1 cargo test -p upstream every_stream_matches`.

use std::collections::BTreeMap;
use std::path::Path;

use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind};
use model::usage::Usage;
use serde_json::{Value, json};

/// Compares every stream of a protocol's folder with its file.
pub(crate) fn hold(room: &str, read: impl Fn(&[u8]) -> Vec<ModelEvent>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/streams").join(room);
    let (mut held, mut differing) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let stream = entry.unwrap().path();
        let file = stream.with_extension("json");
        match stream.extension().and_then(|extension| extension.to_str()) {
            Some("sse") => {}
            Some("json") if !stream.with_extension("sse").exists() => panic!("{} has no stream", file.display()),
            _ => continue,
        }
        held += 1;
        let told = format!("{:#}\n", sum(&read(&std::fs::read(&stream).unwrap())));
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if told == expected {
            continue;
        }
        if update() {
            std::fs::write(&file, told).unwrap();
        } else {
            differing.push(format!("{}\n{}", file.display(), difference(&expected, &told)));
        }
    }
    assert!(held > 0, "no stream in {room}");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn update() -> bool {
    #[expect(clippy::disallowed_methods, reason = "a wish of who runs the test, which is not a setting of the server")]
    std::env::var("UPDATE_STREAMS").is_ok()
}

/// The lines in only one of the two.
fn difference(expected: &str, told: &str) -> String {
    let only = |sign: char, one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|there| there == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    only('-', expected, told) + &only('+', told, expected)
}

/// An answer without its steps.
fn sum(events: &[ModelEvent]) -> Value {
    let mut said: BTreeMap<(u32, u32), (&str, String)> = BTreeMap::new();
    let mut calls: BTreeMap<u32, (&str, String)> = BTreeMap::new();
    let mut usage = Usage::default();
    let mut end = ("error", json!(null));
    for event in events {
        match event {
            ModelEvent::Delta(ModelDelta::Text { slot, part, text, .. }) => {
                said.entry((*slot, *part)).or_insert(("text", String::new())).1.push_str(text);
            }
            ModelEvent::Delta(ModelDelta::Refusal { slot, part, text }) => {
                said.entry((*slot, *part)).or_insert(("refusal", String::new())).1.push_str(text);
            }
            ModelEvent::Delta(ModelDelta::Reasoning { slot, part, text }) => {
                said.entry((*slot, *part)).or_insert(("reasoning", String::new())).1.push_str(text);
            }
            ModelEvent::Delta(ModelDelta::Started { slot, item: ModelItemKind::ToolCall { name, .. } }) => {
                assert!(calls.insert(*slot, (name, String::new())).is_none(), "{slot} begins twice");
            }
            // Those of a computer call or of a request for approval belong to no function.
            ModelEvent::Delta(ModelDelta::Arguments { slot, text }) => {
                if let Some((_, arguments)) = calls.get_mut(slot) {
                    arguments.push_str(text);
                }
            }
            ModelEvent::Delta(ModelDelta::Usage(so_far)) => usage = *so_far,
            ModelEvent::Delta(_) => {}
            ModelEvent::End(ended) => (usage, end) = (ended.usage, ("stop", json!(ended.stop_reason))),
            ModelEvent::Failed(failure) => end = ("error", json!(failure.error.code)),
        }
    }
    let all =
        |kind: &str| said.values().filter(|(of, _)| *of == kind).map(|(_, text)| text.as_str()).collect::<String>();
    let call = |(name, arguments): &(&str, String)| json!({"name": name, "arguments": arguments});
    let (ended, how) = end;
    json!({
        "text": all("text"),
        "refusal": all("refusal"),
        "reasoning": all("reasoning"),
        "calls": calls.values().map(call).collect::<Vec<_>>(),
        "usage": {
            "input": usage.input_tokens,
            "cached": usage.cached_tokens,
            "cache_write": usage.cache_write_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.reasoning_tokens,
        },
        ended: how,
    })
}
