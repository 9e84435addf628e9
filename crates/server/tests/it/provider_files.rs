//! Files as models receive them, and images from models and tools: all bytes arrive, and no log contains them.

mod generated_images;
mod hosted_calls;

use crate::attachments;
use crate::blobs::{data_url, file_part};
use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, full_response, stream_head};
use crate::harness::{Server, parse_frames};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// The requests to the upstreams, in order.
type ReceivedBodies = Arc<Mutex<Vec<Value>>>;

/// A file of this many bytes with a PNG header.
fn png(bytes: usize, seed: u32) -> Vec<u8> {
    let mut picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0".to_vec();
    let mut state = seed;
    picture.resize_with(bytes, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(state >> 24).unwrap()
    });
    picture
}

fn pdf() -> Vec<u8> {
    [b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n".to_vec(), png(5_000, 9), b"\n%%EOF\n".to_vec()].concat()
}

/// Agents `to_responses`, `to_messages` and `to_chat`, whose models answer as `answer` says.
async fn start_with_providers(
    more: &str,
    answer: impl Fn(&ReceivedRequest) -> Vec<ResponseAction> + Send + Sync + 'static,
) -> (Server, ReceivedBodies) {
    let heard = ReceivedBodies::default();
    let hears = Arc::clone(&heard);
    let upstream = Loopback::start(move |asked| {
        let acts = answer(&asked);
        hears.lock().unwrap().push(asked.body);
        acts
    })
    .await;
    let mut config = more.replace("@site@", &upstream.url(""));
    for d in DIALECTS {
        let (name, kind, url) = (d.name(), d.config_kind(), upstream.url("/v1"));
        write!(config, "\n[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n").unwrap();
        write!(config, "[agents.to_{name}]\nmodel = \"{name}/m\"\ntools = [{}]\n", tools(more)).unwrap();
    }
    (Server::with_config(&config, ""), heard)
}

fn tools(config: &str) -> &'static str {
    if config.contains("[tools.work]") { "\"work\"" } else { "" }
}

fn greeting_actions(asked: &ReceivedRequest) -> Vec<ResponseAction> {
    vec![
        stream_head(),
        ResponseAction::Send(ProviderDialect::from_path(&asked.path).full_answer("Hello.").into_bytes()),
    ]
}

fn take_bodies(heard: &ReceivedBodies) -> Vec<Value> {
    std::mem::take(&mut *heard.lock().unwrap())
}

/// Uploads a file and returns the part that refers to it.
async fn sent(hw: &Server, name: &str, bytes: &[u8]) -> Value {
    file_part(&attachments::upload_file(hw, &format!("?name={name}"), bytes).await)
}

/// Runs to the end and gives the task.
async fn run_agent(hw: &Server, agent: &str, input: Value) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": agent, "input": input, "wait": true})).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.text);
    reply.json()
}

/// The parts of the last message in a request.
fn parts(dialect: ProviderDialect, body: &Value) -> Vec<Value> {
    let list = body[if dialect == ProviderDialect::Responses { "input" } else { "messages" }].as_array().unwrap();
    let mut parts = list.last().unwrap()["content"].as_array().unwrap().clone();
    // Cache marks are not part of the content.
    parts.iter_mut().filter_map(Value::as_object_mut).for_each(|part| drop(part.remove("cache_control")));
    parts
}

/// An image in a protocol's format.
fn image_part(dialect: ProviderDialect, bytes: &[u8]) -> Value {
    let url = data_url("image/png", bytes);
    match dialect {
        ProviderDialect::Responses => json!({"type": "input_image", "detail": "auto", "image_url": url}),
        ProviderDialect::Messages => {
            let source = json!({"type": "base64", "media_type": "image/png", "data": STANDARD.encode(bytes)});
            json!({"type": "image", "source": source})
        }
        ProviderDialect::Chat => json!({"type": "image_url", "image_url": {"url": url}}),
    }
}

/// A PDF in a protocol's format.
fn document_part(dialect: ProviderDialect, name: &str, bytes: &[u8]) -> Value {
    let url = data_url("application/pdf", bytes);
    match dialect {
        ProviderDialect::Responses => json!({"type": "input_file", "filename": name, "file_data": url}),
        ProviderDialect::Messages => {
            let source = json!({"type": "base64", "media_type": "application/pdf", "data": STANDARD.encode(bytes)});
            json!({"type": "document", "source": source, "title": name})
        }
        ProviderDialect::Chat => json!({"type": "file", "file": {"filename": name, "file_data": url}}),
    }
}

fn text_part(dialect: ProviderDialect, text: &str) -> Value {
    json!({"type": if dialect == ProviderDialect::Responses { "input_text" } else { "text" }, "text": text})
}

#[tokio::test]
async fn uploaded_files_reach_every_provider_in_its_format_byte_for_byte() {
    let (hw, heard) = start_with_providers("", greeting_actions).await;
    let (a, b, text) = (png(1_000_000, 1), pdf(), "Größe: 7\n");
    let note = sent(&hw, "note.txt", text.as_bytes()).await;
    let input = json!([
        {"type": "text", "text": "Look."},
        sent(&hw, "a.png", &a).await,
        sent(&hw, "b.pdf", &b).await,
        {"type": "text", "text": "And this."},
        sent(&hw, "a.png", &a).await,
        note,
    ]);
    for d in DIALECTS {
        let task = run_agent(&hw, &format!("to_{}", d.name()), input.clone()).await;
        let bodies = take_bodies(&heard);
        assert_eq!(bodies.len(), 1, "{d:?}");
        let file = format!("File note.txt:\n\n{text}");
        let expected = vec![
            text_part(d, "Look."),
            image_part(d, &a),
            document_part(d, "b.pdf", &b),
            text_part(d, "And this."),
            image_part(d, &a),
            text_part(d, &file),
        ];
        let found = parts(d, &bodies[0]);
        assert!(found == expected, "{d:?}: {}", short(&json!(found)));
        // The same when the conversation continues.
        let more = json!({"model": format!("to_{}", d.name()), "input": "More.", "wait": true,
            "thread_id": task["thread_id"]});
        assert_eq!(hw.post("/v1/tasks", more).await.json()["status"], "completed");
        let again = take_bodies(&heard).remove(0).to_string();
        assert_eq!(again.matches(&STANDARD.encode(&a)).count(), 2, "{d:?}");
        assert!(again.contains(&STANDARD.encode(&b)) && again.contains("Größe: 7"), "{d:?}");
    }
}

#[tokio::test]
async fn image_detail_reaches_the_providers_that_support_it() {
    let (hw, heard) = start_with_providers("", greeting_actions).await;
    let url = data_url("image/png", &png(1_000, 1));
    for d in DIALECTS {
        let model = format!("to_{}", d.name());
        let by_responses = json!({"model": model, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": url, "detail": "low"}]}]});
        let by_chat = json!({"model": model, "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}]});
        let by_task = json!({"model": model, "wait": true, "input": [
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]});
        for (path, body) in [("/v1/responses", by_responses), ("/v1/chat/completions", by_chat), ("/v1/tasks", by_task)]
        {
            assert_eq!(hw.post(path, body).await.status, 200);
            let found = parts(d, &take_bodies(&heard).remove(0)).remove(0);
            let detail = match d {
                ProviderDialect::Responses => &found["detail"],
                ProviderDialect::Chat => &found["image_url"]["detail"],
                ProviderDialect::Messages => &json!("low"),
            };
            assert_eq!(detail, "low", "{d:?} {path}: {}", short(&found));
        }
    }
    let body =
        json!({"model": "to_chat", "input": [{"type": "image_url", "image_url": {"url": url, "detail": "all"}}]});
    assert_eq!(hw.post("/v1/tasks", body).await.status, 422);
}

#[tokio::test]
async fn an_uploaded_html_page_is_reduced_to_text_and_utf_16_is_text() {
    let (hw, heard) = start_with_providers("", greeting_actions).await;
    let page = "<!DOCTYPE html><title>Prices</title><style>p{}</style><p>Tea is <b>7</b> &euro;.";
    let wide: Vec<u8> = "\u{feff}Größe: 7\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let input = json!([
        sent(&hw, "prices.html", page.as_bytes()).await,
        {"type": "text", "text": "And this."},
        {"type": "file", "file": {"url": data_url("text/html", page.as_bytes())}},
        {"type": "text", "text": "And that."},
        sent(&hw, "wide.txt", &wide).await,
    ]);
    for d in DIALECTS {
        run_agent(&hw, &format!("to_{}", d.name()), input.clone()).await;
        let body = take_bodies(&heard).remove(0);
        let told = match d {
            ProviderDialect::Chat => parts_or_text(&body).as_str().unwrap().to_owned(),
            ProviderDialect::Responses | ProviderDialect::Messages => {
                let texts = parts(d, &body).into_iter().map(|part| part["text"].as_str().unwrap().to_owned());
                texts.collect::<Vec<_>>().join("\n")
            }
        };
        let words = "Prices\n\nTea is 7 €.";
        let expected = format!(
            "File prices.html:\n\n{words}\nAnd this.\nFile file.txt:\n\n{words}\nAnd that.\nFile wide.txt:\n\nGröße: 7\r\n"
        );
        assert_eq!(told, expected, "{d:?}");
    }
}

/// JSON for assertion messages: long texts are truncated.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > 60 => format!("{}… {} bytes", &text[..40], text.len()),
        Value::Array(list) => format!("[{}]", list.iter().map(short).collect::<Vec<_>>().join(", ")),
        Value::Object(object) => {
            let fields = object.iter().map(|(name, value)| format!("{name}: {}", short(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[tokio::test]
async fn unsupported_files_become_notes_and_excess_files_are_dropped_oldest_first() {
    let (hw, heard) = start_with_providers("[files]\nmodel_bytes_max = 2500", greeting_actions).await;
    let zip = b"PK\x03\x04\x14\0\0\0\x08\0binary\0".to_vec();
    let (old, new) = (png(2_000, 1), png(2_000, 2));
    for d in DIALECTS {
        let input = json!([
            sent(&hw, "old.png", &old).await,
            sent(&hw, "a.zip", &zip).await,
            sent(&hw, "new.png", &new).await,
            {"type": "text", "text": "Look."},
        ]);
        run_agent(&hw, &format!("to_{}", d.name()), input).await;
        let found = parts(d, &take_bodies(&heard).remove(0));
        let (left_out, named) = ("[file old.png left out: too large]", "[file a.zip]");
        let notes = match d {
            ProviderDialect::Chat => vec![text_part(d, &format!("{left_out}\n{named}"))],
            ProviderDialect::Responses | ProviderDialect::Messages => vec![text_part(d, left_out), text_part(d, named)],
        };
        let expected = [notes, vec![image_part(d, &new), text_part(d, "Look.")]].concat();
        assert!(found == expected, "{d:?}: {}", short(&json!(found)));
    }
}

#[tokio::test]
async fn a_lost_file_becomes_a_note_and_an_unavailable_store_is_retried() {
    let (hw, heard) = start_with_providers("", greeting_actions).await;
    let (a, b) = (png(100, 1), png(100, 2));
    let gone = sent(&hw, "gone.png", &a).await;
    let folder = hw.data_dir().join("files");
    std::fs::remove_file(folder.join(gone["file"]["path"].as_str().unwrap())).unwrap();
    run_agent(&hw, "to_chat", json!([gone, {"type": "text", "text": "Look."}])).await;
    let told = parts_or_text(&take_bodies(&heard).remove(0));
    assert_eq!(told, json!("[file gone.png left out: it is no longer there]\nLook."));

    let kept = sent(&hw, "kept.png", &b).await;
    let (inputs, aside) = (folder.join("agent-inputs"), folder.join("aside"));
    std::fs::rename(&inputs, &aside).unwrap();
    std::fs::write(&inputs, "no folder").unwrap();
    let task = hw.create_task(json!({"model": "to_chat", "input": [kept]})).await;
    let id = task["task_id"].as_str().unwrap();
    let mut events = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
    let seen = events.read_until("task.retrying").await;
    assert!(seen.contains("files_unavailable"), "{seen}");
    assert!(heard.lock().unwrap().is_empty(), "a model that is asked without the file would mislead");
    std::fs::remove_file(&inputs).unwrap();
    std::fs::rename(&aside, &inputs).unwrap();
    assert_eq!(hw.wait_ended(id).await["status"], "completed");
    assert_eq!(parts(ProviderDialect::Chat, &take_bodies(&heard).remove(0)), [image_part(ProviderDialect::Chat, &b)]);
}

fn parts_or_text(body: &Value) -> Value {
    body["messages"].as_array().unwrap().last().unwrap()["content"].clone()
}

/// An HTTP tool on the upstream's own server that returns this.
const WORK: &str = "[tools.work]\nkind = \"http\"\nurl = \"@site@/work\"\noutput_bytes_max = 8000000\n\
    description = \"Works.\"\nparameters = { type = \"object\" }\n";

/// Calls the tool, then greets.
fn call_then_answer(output: Value) -> impl Fn(&ReceivedRequest) -> Vec<ResponseAction> + Send + Sync + 'static {
    move |asked| {
        if asked.path == "/work" {
            return vec![full_response("200 OK", "content-type: application/json\r\n", &output.to_string())];
        }
        let d = ProviderDialect::from_path(&asked.path);
        if d.has_results(&asked.body) {
            return greeting_actions(asked);
        }
        let (item, id) = ("fc_1", "call_1");
        let call = d.call_start(0, item, id) + &d.arguments_delta(0, item, "{}") + &d.call_end(0, item, id, "{}");
        vec![
            stream_head(),
            ResponseAction::Send([d.answer_start(), call, d.terminal_event(true, 9, 4)].concat().into_bytes()),
        ]
    }
}

#[tokio::test]
async fn a_tool_image_is_a_url_in_the_log_and_an_image_in_the_next_turn() {
    let shot = png(1_000_000, 3);
    let url = data_url("image/png", &shot);
    let output = json!({
        "message_content": [{"type": "text", "text": "Seen."}, {"type": "image_url", "image_url": {"url": url}}],
        "block_list": [{"type": "image", "image_url": {"url": url}}],
    });
    let (hw, heard) = start_with_providers(WORK, call_then_answer(output)).await;
    for d in DIALECTS {
        let task = run_agent(&hw, &format!("to_{}", d.name()), json!("Look.")).await;
        let id = task["task_id"].as_str().unwrap();
        for format in ["task", "run-items"] {
            let log = hw.get(&format!("/v1/tasks/{id}/events?format={format}")).await.text;
            assert!(log.contains("/v1/blobs/") && !log.contains("data:image"), "{d:?} {format}: {log:.2000}");
            assert!(log.len() < 100_000, "{d:?} {format}: {}", log.len());
        }
        let bodies = take_bodies(&heard);
        let [first, _, second] = bodies.as_slice() else { panic!("{} requests", bodies.len()) };
        assert!(!first.to_string().contains("base64"), "{d:?}");
        let shown = image_part(d, &shot).to_string();
        assert_eq!(second.to_string().matches(&shown).count(), 1, "{d:?}: {}", short(second));
    }
    assert_eq!(stored_blobs(&hw).len(), 1, "the same bytes of one user are kept once");
    kill_and_verify(hw);
}

/// Verifies the data folder.
fn kill_and_verify(mut hw: Server) {
    hw.kill9();
    let report = hw.run_cli(&["verify"]);
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stdout));
}

/// The total bytes of all blobs.
fn stored_blobs(hw: &Server) -> Vec<Vec<u8>> {
    let folder = hw.data_dir().join("files/blobs/local");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| std::fs::read(path).unwrap()).collect()
}

#[tokio::test]
async fn a_missing_or_foreign_image_is_reported_as_lost_and_the_run_continues() {
    let unknown = format!("/v1/blobs/{}", "0".repeat(64));
    let elsewhere = json!({"bucket": "headwater", "path": "agent-inputs/other/01a1e09cf6d87156b315be15b47e9edf.png"});
    let output = json!({
        "message_content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,not base64"}},
            {"type": "image_url", "image_url": {"url": unknown}},
            {"type": "file", "file": elsewhere},
            {"type": "file", "file": {"url": data_url("application/pdf", &pdf()), "name": "a.pdf"}},
        ],
        "block_list": [{"type": "image", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}}],
    });
    let (hw, heard) = start_with_providers(WORK, call_then_answer(output)).await;
    let task = run_agent(&hw, "to_messages", json!("Look.")).await;
    let bodies = take_bodies(&heard);
    let given = bodies.last().unwrap().to_string();
    let lost = "[a file could not be kept]";
    assert_eq!(given.matches(lost).count(), 3, "{given}");
    assert!(!given.contains("not base64") && !given.contains("blobs") && !given.contains("other"), "{given}");
    assert!(given.contains(&document_part(ProviderDialect::Messages, "a.pdf", &pdf()).to_string()), "{given}");
    let log = hw.get(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await.text;
    assert!(log.contains(lost) && !log.contains("svg"), "{log}");
    assert!(parse_frames(&log).iter().any(|frame| frame.event == "task.completed"));
    kill_and_verify(hw);
}

#[tokio::test]
async fn images_of_a_hook_are_stored_like_others() {
    let shot = png(300_000, 4);
    let picture_part = json!({"type": "image_url", "image_url": {"url": data_url("image/png", &shot)}});
    let said = json!({"input": [picture_part, {"type": "text", "text": "Look at it."}]}).to_string();
    let (hw, heard) = start_with_providers(HOOKED, move |asked| match asked.path.as_str() {
        "/hook" => vec![full_response("200 OK", "content-type: application/json\r\n", &said)],
        _ => greeting_actions(asked),
    })
    .await;
    let task = run_agent(&hw, "hooked", json!("Look.")).await;
    let log = hw.get(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap())).await.text;
    assert!(log.contains("/v1/blobs/") && !log.contains("base64"), "{log:.2000}");
    let found = parts(ProviderDialect::Chat, take_bodies(&heard).last().unwrap());
    assert!(
        found == [image_part(ProviderDialect::Chat, &shot), text_part(ProviderDialect::Chat, "Look at it.")],
        "{}",
        short(&json!(found))
    );
    kill_and_verify(hw);
}

/// An agent with an input hook.
const HOOKED: &str = "[agents.hooked]\nmodel = \"chat/m\"\ninput_hook = { url = \"@site@/hook\" }\n";

#[tokio::test]
async fn inline_bytes_in_flight_are_limited_until_a_model_answers() {
    let (open, gate) = tokio::sync::watch::channel(false);
    let (hw, heard) = start_with_providers("[files]\nmodels_bytes_max = 1024\n", move |asked| {
        let holds = if asked.body.to_string().contains("image_url") {
            ResponseAction::Gate(gate.clone())
        } else {
            ResponseAction::Send(Vec::new())
        };
        let [head, words] = greeting_actions(asked).try_into().unwrap_or_else(|_| unreachable!("two acts"));
        vec![holds, head, words]
    })
    .await;
    let mut tasks = Vec::new();
    for seed in [1, 2] {
        let picture = json!([{"type": "image_url", "image_url": {"url": data_url("image/png", &png(2_000, seed))}}]);
        let begun = hw.post("/v1/tasks", json!({"model": "to_chat", "input": picture})).await;
        tasks.push(begun.json()["task_id"].as_str().unwrap().to_owned());
    }
    // A request without files does not wait for those with files.
    run_agent(&hw, "to_chat", json!("Hello?")).await;
    assert_eq!(take_bodies(&heard).len(), 2, "one of the two, and the one without");
    open.send_replace(true);
    for task in &tasks {
        let log = hw.get(&format!("/v1/tasks/{task}/events")).await.text;
        assert!(parse_frames(&log).iter().any(|frame| frame.event == "task.completed"), "{log}");
    }
    assert_eq!(take_bodies(&heard).len(), 1);
}

#[tokio::test]
async fn file_content_cannot_pass_for_user_text() {
    let hw = Server::demo();
    let note = sent(&hw, "note.txt", b"What is the weather?").await;
    let task = run_agent(&hw, "demo", json!([note, {"type": "text", "text": "hello"}])).await;
    let kinds: Vec<&Value> = task["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message"], "the demo's weather would call a tool");
}
