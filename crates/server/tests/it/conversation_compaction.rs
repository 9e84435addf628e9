//! `POST /v1/responses/compact` and `compaction` items: what a client sends back is what the model reads.

use crate::auth::create_key;
use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::{Reply, Server};
use crate::responses::{create_response, output_text, parse_error};
use reqwest::Method;
use serde_json::{Value, json};

const SUMMARY: &str = "They talked about ships [1].";
const PATH: &str = "/v1/responses/compact";

async fn ship_server(keys: &str) -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(|dialect, body| {
        let is_summary = body.to_string().contains("Answer with the summary alone.");
        dialect.full_answer(if is_summary { SUMMARY } else { "Aye." })
    })
    .await;
    let server = Server::with_config(&(upstream.agents("instructions = \"Be a sailor.\"") + keys), "");
    (upstream, server)
}

async fn compact(hw: &Server, body: Value) -> Value {
    let reply = hw.post(PATH, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// The messages of a window, which has exactly one summary, at its end.
fn messages(window: &Value) -> Vec<Value> {
    let (last, messages) = window["output"].as_array().unwrap().split_last().unwrap();
    assert_eq!(last["type"], "compaction");
    assert!(last["id"].as_str().unwrap().starts_with("cmp_") && last["encrypted_content"].is_string());
    let message = |item: &Value| {
        assert_eq!(
            (&item["type"], &item["role"], &item["status"]),
            (&json!("message"), &json!("user"), &json!("completed"))
        );
        assert!(item["id"].is_string());
        item["content"].clone()
    };
    messages.iter().map(message).collect()
}

/// The window, then another message.
fn window_and(window: &Value, text: &str) -> Value {
    let mut input = window["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": text}));
    input.into()
}

fn text_part(text: &str) -> Value {
    json!([{"type": "input_text", "text": text}])
}

#[tokio::test]
async fn a_window_sent_back_gives_the_model_the_summary_and_the_messages() {
    let (upstream, hw) = ship_server("").await;
    for dialect in DIALECTS {
        let model = dialect.name();
        let input = json!([
            {"role": "user", "content": "Which ship?"},
            {"role": "assistant", "content": "The Argo."},
            {"type": "function_call", "call_id": "c1", "name": "sail", "arguments": "{\"to\":\"Colchis\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": "arrived"},
            {"role": "user", "content": [{"type": "input_text", "text": "And the crew?"}]},
        ]);
        let window = compact(&hw, json!({"model": model, "input": input})).await;
        assert_eq!(window["object"], "response.compaction");
        assert!(window["created_at"].as_u64().unwrap() > 1_700_000_000);
        assert_eq!(messages(&window), [text_part("Which ship?"), text_part("And the crew?")]);
        let usage = &window["usage"];
        assert_eq!((usage["total_tokens"].as_u64(), usage["input_tokens"].as_u64()), (Some(13), Some(9)), "{usage}");
        assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
        assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());

        let asked = upstream.last_request(dialect);
        assert_eq!((dialect.instructions(&asked), dialect.tool_names(&asked)), (String::new(), vec![]), "{asked}");
        let asked = asked.to_string();
        for part in ["Which ship?", "The Argo.", "Colchis", "arrived", "And the crew?", "Sum up"] {
            assert!(asked.contains(part), "{part} in {asked}");
        }

        let body = json!({"model": model, "input": window_and(&window, "Go on."), "store": false, "tools": []});
        assert_eq!(output_text(&create_response(&hw, body).await), "Aye.");
        let read = upstream.last_request(dialect).to_string();
        let place = |text: &str| read.find(text).unwrap_or_else(|| panic!("{text} in {read}"));
        assert!(place("Which ship?") < place(SUMMARY) && place(SUMMARY) < place("Go on."), "{read}");
        assert!(!read.contains("The Argo."), "{read}");
    }
}

#[tokio::test]
async fn a_conversation_of_the_log_is_compacted_by_the_id_of_its_last_response() {
    let (upstream, hw) = ship_server("").await;
    let first = create_response(&hw, json!({"model": "responses", "input": "Which ship?"})).await;
    let more = json!({"model": "responses", "input": "And the crew?", "previous_response_id": first["id"]});
    let second = create_response(&hw, more).await;
    let by_id = json!({"model": "responses", "previous_response_id": second["id"], "input": null});
    let window = compact(&hw, by_id).await;
    assert_eq!(messages(&window), [text_part("Which ship?"), text_part("And the crew?")]);
    let both = json!({"model": "responses", "previous_response_id": second["id"], "input": "Also the sails?"});
    let window = compact(&hw, both).await;
    assert_eq!(messages(&window).last(), Some(&text_part("Also the sails?")));
    let asked = upstream.last_request(ProviderDialect::Responses).to_string();
    assert!(asked.contains("Aye.") && asked.contains("Also the sails?"), "{asked}");

    // The window is no part of the thread that it came from.
    let next = json!({"model": "responses", "input": window_and(&window, "Go on.")});
    let next = create_response(&hw, next).await;
    let read = upstream.last_request(ProviderDialect::Responses).to_string();
    assert!(read.contains(SUMMARY) && !read.contains("Aye."), "{read}");
    // A further turn with all that the client has continues that one.
    let mut all = window_and(&window, "Go on.").as_array().unwrap().clone();
    all.extend(next["output"].as_array().unwrap().clone());
    all.push(json!({"role": "user", "content": "Farther!"}));
    create_response(&hw, json!({"model": "responses", "input": all})).await;
    let read = upstream.last_request(ProviderDialect::Responses).to_string();
    assert_eq!((read.matches(SUMMARY).count(), read.matches("Aye.").count()), (1, 1), "{read}");
}

#[tokio::test]
async fn a_summary_is_in_no_listing_and_cannot_be_retrieved_or_continued() {
    let (_upstream, hw) = ship_server("").await;
    let window = compact(&hw, json!({"model": "chat", "input": "Which ship?"})).await;
    for list in ["/v1/threads", "/v1/tasks"] {
        assert_eq!(hw.get(list).await.json()["data"], json!([]), "{list}");
    }
    let id = window["id"].as_str().unwrap();
    assert_eq!(hw.get(&format!("/v1/responses/{id}")).await.status, 404);
    let next = hw.post("/v1/responses", json!({"model": "chat", "input": "on", "previous_response_id": id})).await;
    let expected = (400, "previous_response_not_found".to_owned(), json!("previous_response_id"));
    assert_eq!(parse_error(&next), expected);
}

#[tokio::test]
async fn a_foreign_or_altered_summary_is_refused() {
    let (_upstream, hw) = ship_server("[auth]\nmode = \"keys\"").await;
    let (ann, bob) = (create_key(&hw, "ann"), create_key(&hw, "bob"));
    let hw = hw.with_key(&ann);
    let window = compact(&hw, json!({"model": "chat", "input": "Which ship?"})).await;
    let good = window["output"][1]["encrypted_content"].as_str().unwrap();
    let altered = format!("{}A{}", &good[..40], &good[41..]);
    let post = async |key: &str, content: &str, path: &str, field: &str| -> Reply {
        let items = json!([{"role": "user", "content": "a"}, {"type": "compaction", "encrypted_content": content}]);
        let body = json!({"model": "chat", field: items}).to_string();
        let (auth, json) = (format!("Bearer {key}"), "application/json");
        hw.request(Method::POST, path, &[("authorization", &auth), ("content-type", json)], Some(body.into())).await
    };
    let expected = |field: &str| (400, "invalid_body".to_owned(), json!(format!("{field}[1].encrypted_content")));
    for content in [altered.as_str(), "", "gAAAAABo", &"A".repeat(20_000)] {
        for path in ["/v1/responses", PATH] {
            assert_eq!(parse_error(&post(&ann, content, path, "input").await), expected("input"), "{path} {content}");
        }
        let reply = post(&ann, content, "/v1/conversations", "items").await;
        assert_eq!(parse_error(&reply), expected("items"));
    }
    assert_eq!(parse_error(&post(&bob, good, "/v1/responses", "input").await), expected("input"), "another user's");
    assert_eq!(post(&ann, good, "/v1/responses", "input").await.status, 200, "the id may be missing");
    let tasks = hw.get("/v1/tasks").await.json();
    assert_eq!(tasks["data"].as_array().unwrap().len(), 1, "what was refused has left nothing: {tasks}");
}

#[tokio::test]
async fn a_compaction_costs_tokens_and_happens_once_for_a_key() {
    let (upstream, hw) = ship_server("").await;
    let body = json!({"model": "messages", "input": "Which ship?", "instructions": "In Greek."}).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let first = hw.request(Method::POST, PATH, &headers, Some(body.clone().into())).await;
    let again = hw.request(Method::POST, PATH, &headers, Some(body.into())).await;
    assert_eq!((first.status, &first.text), (200, &again.text));
    let asked = upstream.requests(ProviderDialect::Messages);
    assert_eq!(asked.len(), 1);
    assert_eq!(ProviderDialect::Messages.instructions(&asked[0]), "In Greek.");
    let other = hw.request(Method::POST, PATH, &headers, Some(r#"{"model":"messages","input":"a"}"#.into())).await;
    assert_eq!(parse_error(&other).1, "idempotency_key_reused");
    let usage = hw.get("/v1/usage").await.json();
    assert_eq!(usage["usage"]["input_tokens"], 9, "{usage}");
}

#[tokio::test]
async fn a_long_conversation_is_summed_up_part_by_part() {
    let (upstream, hw) = ship_server("").await;
    let message = |n: usize| json!({"role": "user", "content": format!("{n} {}", "word ".repeat(4_000))});
    let window = compact(&hw, json!({"model": "chat", "input": (0..12).map(message).collect::<Vec<_>>()})).await;
    let asked = upstream.requests(ProviderDialect::Chat);
    assert!(asked.len() > 2, "{}", asked.len());
    assert!(asked.last().unwrap().to_string().contains(SUMMARY), "each part is read with the summary of those before");
    assert_eq!(window["usage"]["output_tokens"], 4 * asked.len());
    let kept = messages(&window);
    assert!(kept.len() < 12 && kept.last().unwrap().to_string().contains("11 word"), "{}", kept.len());
    let next = json!({"model": "chat", "input": window_and(&window, "Go on.")});
    assert_eq!(output_text(&create_response(&hw, next).await), "Aye.", "a window fits a request");
}

#[tokio::test]
async fn bad_requests_are_refused_and_a_failure_of_the_model_is_an_error() {
    let hw = Server::demo();
    let refused = async |body: Value| parse_error(&hw.post(PATH, body).await);
    let bad = |field: &str| (400, "invalid_body".to_owned(), json!(field));
    assert_eq!(refused(json!({"input": "a"})).await, bad("model"));
    assert_eq!(refused(json!({"model": "demo"})).await, bad("input"));
    assert_eq!(refused(json!({"model": "demo", "input": ""})).await, bad("input"));
    assert_eq!(refused(json!({"model": "demo", "input": 1})).await, bad("input"));
    assert_eq!(
        refused(json!({"model": "demo", "input": "a", "prompt_cache_key": "k".repeat(65)})).await,
        bad("prompt_cache_key")
    );
    let unknown = refused(json!({"model": "nobody", "input": "a"})).await;
    assert_eq!((unknown.0, unknown.1.as_str()), (400, "model_not_found"));
    let previous = refused(json!({"model": "demo", "previous_response_id": "resp_1"})).await;
    assert_eq!(previous, (400, "previous_response_not_found".to_owned(), json!("previous_response_id")));
    let failing = "[[scenario]]\n[[scenario.turn]]\nsteps = [{ text = 'They' }, { error = { code = 'provider_error', message = 'broken' } }]\n";
    let failing = Server::with_scenarios(failing);
    let failed = parse_error(&failing.post(PATH, json!({"model": "demo", "input": "a"})).await);
    assert_eq!((failed.0, failed.1.as_str()), (500, "run_failed"), "half a summary is none");
}
