//! A client of one protocol uses a model of another: input and settings arrive, and the answer comes back.

use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::loopback::{Loopback, ResponseAction, stream_head};
use crate::harness::Server;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// A picture of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";

type UpstreamBodies = Arc<Mutex<Vec<Value>>>;

/// Upstreams of all protocols that greet, and their requests.
async fn start_with_providers() -> (Server, UpstreamBodies) {
    let heard = UpstreamBodies::default();
    let hears = Arc::clone(&heard);
    let upstream = Loopback::start(move |asked| {
        hears.lock().unwrap().push(asked.body);
        vec![
            stream_head(),
            ResponseAction::Send(ProviderDialect::from_path(&asked.path).full_answer("Hello.").into_bytes()),
        ]
    })
    .await;
    let mut config = String::new();
    for d in DIALECTS {
        let (name, kind, url) = (d.name(), d.config_kind(), upstream.url("/v1"));
        write!(config, "[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n").unwrap();
        write!(config, "[agents.to_{name}]\nmodel = \"{name}/m\"\ninstructions = \"Be brief.\"\n").unwrap();
    }
    (Server::with_config(&config, ""), heard)
}

/// A Messages request with a history.
fn message(model: &str) -> Value {
    let call = json!({"type": "tool_use", "id": "toolu_01", "name": "find", "input": {"n": 1}});
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "of another"});
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}});
    json!({
        "model": model, "max_tokens": 77, "temperature": 0.25, "system": "Be kind.",
        "tools": [{"name": "find", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "found"}]},
            {"role": "assistant", "content": "Here."},
            {"role": "user", "content": [picture, {"type": "text", "text": "And this?"}]},
        ],
    })
}

/// The same as a Chat Completions request.
fn completion(model: &str) -> Value {
    let call = json!({"id": "toolu_01", "type": "function", "function": {"name": "find", "arguments": "{\"n\":1}"}});
    let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}});
    json!({
        "model": model, "max_completion_tokens": 77, "temperature": 0.25,
        "tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Find it."},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "toolu_01", "content": "found"},
            {"role": "assistant", "content": "Here."},
            {"role": "user", "content": [picture, {"type": "text", "text": "And this?"}]},
        ],
    })
}

#[tokio::test]
async fn every_provider_protocol_gets_the_input_of_every_client_protocol() {
    let (hw, heard) = start_with_providers().await;
    for d in DIALECTS {
        for model in [format!("to_{}", d.name()), format!("{}/m", d.name())] {
            let answer = hw.post("/v1/messages", message(&model)).await.json();
            assert_eq!(answer["content"], json!([{"type": "text", "text": "Hello."}]), "{answer}");
            let answer = hw.post("/v1/chat/completions", completion(&model)).await.json();
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello.", "{answer}");
            let heard = std::mem::take(&mut *heard.lock().unwrap());
            let [by_message, by_completion] = heard.as_slice() else { panic!("{heard:?}") };
            assert_eq!(by_message, by_completion, "{model}: it cannot tell them apart");
            let text = by_message.to_string();
            let mut from = 0;
            for said in ["Find it.", "I look.", "\"find\"", "found", "Here.", PNG, "And this?"] {
                let at = text[from..].find(said);
                from += at.unwrap_or_else(|| panic!("{model}: no {said:?} in its place: {text}"));
            }
            assert!(text.contains("Be kind.") && !text.contains("Hm."), "{model}: {text}");
            assert_eq!(text.contains("Be brief."), model.starts_with("to_"), "{model}: {text}");
            assert_eq!(by_message["temperature"], json!(0.25), "{model}: {text}");
            let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
            assert!(limits.iter().any(|name| by_message[name] == 77), "{model}: {text}");
            let (calls, results) = d.calls_and_results(by_message);
            assert_eq!((calls.len(), &calls), (1, &results), "{model}: {text}");
        }
    }
}
