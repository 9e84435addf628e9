//! Upstreams that stall, lie, break and flood, in every protocol: each run ends once with a reason, and no other run is
//! affected.

use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, full_response, stream_head};
use crate::harness::{Server, SseFrame, TEST_TIMEOUT, headwater_command, http_client, parse_frames};
use crate::tool_server::ToolServer;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the hostile ones may be silent. Long enough for a loaded machine.
const SILENCE_MS: u64 = 1500;
/// Words of a healthy answer.
const WORDS: u32 = 300;
/// The number of healthy runs in parallel.
const HEALTHY: usize = 50;
const TERMINAL: [&str; 4] = ["task.completed", "task.incomplete", "task.failed", "task.cancelled"];

/// How a run on a hostile upstream ends.
enum End {
    /// With this text.
    Completed(&'static str),
    /// With this code; retryable.
    Failed(&'static str),
}
use End::{Completed, Failed};

/// The behaviour of an upstream, how the run ends, and how many tools run.
const CASES: [(&str, End, usize); 22] = [
    ("silent", Failed("upstream_timeout"), 0),
    ("silent_after_the_head", Failed("upstream_timeout"), 0),
    ("stalls_in_the_middle", Failed("upstream_timeout"), 0),
    ("garbage", Failed("provider_protocol_error"), 0),
    ("bad_utf8_over_chunks", Completed("Grüße \u{fffd}!"), 0),
    ("lone_surrogate", Completed("half \u{fffd} pair"), 0),
    ("truncated_json", Failed("provider_protocol_error"), 0),
    ("endless_line", Failed("provider_protocol_error"), 0),
    ("no_terminal_event", Failed("upstream_incomplete"), 0),
    ("nothing_at_all", Failed("upstream_incomplete"), 0),
    ("empty_output", Completed(""), 0),
    ("arguments_broken_off", Failed("upstream_incomplete"), 0),
    ("arguments_called_whole", Completed("I see."), 0),
    ("duplicate_indices", Completed("I see."), 2),
    // The second gets an error about its duplicate id.
    ("duplicate_call_ids", Completed("I see."), 1),
    ("html_502", Failed("provider_error"), 0),
    ("html_200", Failed("provider_protocol_error"), 0),
    ("too_many", Failed("rate_limited"), 0),
    ("too_many_come_back", Failed("rate_limited"), 0),
    ("negative_usage", Completed("Hello."), 0),
    ("reset_at_once", Failed("upstream_incomplete"), 0),
    ("reset_in_the_middle", Failed("upstream_incomplete"), 0),
];

/// The actions of the upstream with this name.
fn hostile(case: &str, d: ProviderDialect, body: &Value) -> Vec<ResponseAction> {
    let said = |text: String| vec![stream_head(), ResponseAction::Send(text.into_bytes())];
    let begun = d.answer_start() + &d.message_start(0) + &d.text_delta(0, "Hello.");
    if d.has_results(body) {
        let (calls, results) = d.calls_and_results(body);
        let mut names = calls.clone();
        names.sort();
        names.dedup();
        assert_eq!(
            (names.len(), &results),
            (calls.len(), &calls),
            "{case}: each call has a name and a result of its own"
        );
        return said(d.full_answer("I see."));
    }
    match case {
        "silent" => vec![ResponseAction::WaitForClose],
        "silent_after_the_head" => vec![stream_head(), ResponseAction::WaitForClose],
        "stalls_in_the_middle" => {
            vec![stream_head(), ResponseAction::Send(begun.into_bytes()), ResponseAction::WaitForClose]
        }
        "garbage" => vec![stream_head(), ResponseAction::Send(b"data: \x00\xff\xfe{{{\x07]\n\n\x80\x81\n\n".to_vec())],
        "bad_utf8_over_chunks" => bad_utf8(d),
        "lone_surrogate" => said(d.full_answer("half \\ud83d pair")),
        "truncated_json" => said(begun + "data: {\"type\":\"response.outp\n\n"),
        "endless_line" => {
            let line = std::iter::once(b"data: {\"a\":\"".to_vec()).chain(std::iter::repeat_with(|| vec![b'x'; 4096]));
            vec![stream_head(), ResponseAction::SendAll(Box::new(line))]
        }
        "no_terminal_event" => said(begun),
        "nothing_at_all" => vec![stream_head()],
        "empty_output" => said(d.answer_start() + &d.terminal_event(false, 9, 0)),
        "arguments_broken_off" => {
            said(d.answer_start() + &d.call_start(0, "fc_1", "call_1") + &d.arguments_delta(0, "fc_1", "{\"id\": \"1"))
        }
        "arguments_called_whole" => {
            let (part, cut) =
                (d.arguments_delta(0, "fc_1", "{\"id\": \"1"), d.call_end(0, "fc_1", "call_1", "{\"id\": \"1"));
            said(d.answer_start() + &d.call_start(0, "fc_1", "call_1") + &part + &cut + &d.terminal_event(true, 9, 4))
        }
        "duplicate_indices" => said(two_calls(d, [0, 0], ["call_1", "call_2"])),
        "duplicate_call_ids" => said(two_calls(d, [0, 1], ["call_1", "call_1"])),
        "html_502" => vec![full_response("502 Bad Gateway", "content-type: text/html\r\n", PAGE)],
        "html_200" => vec![full_response("200 OK", "content-type: text/html\r\n", PAGE)],
        "too_many" => vec![full_response("429 Too Many Requests", "content-type: application/json\r\n", SLOW)],
        "too_many_come_back" => {
            vec![full_response("429 Too Many Requests", "retry-after: 1\r\ncontent-type: application/json\r\n", SLOW)]
        }
        "negative_usage" => said(begun + &d.message_end(0, "Hello.") + &d.terminal_event(false, -9, -4)),
        "reset_at_once" => vec![ResponseAction::Reset],
        "reset_in_the_middle" => {
            vec![
                stream_head(),
                ResponseAction::Send(begun.into_bytes()),
                ResponseAction::Pause(Duration::from_millis(50)),
                ResponseAction::Reset,
            ]
        }
        other => panic!("nobody is called {other}"),
    }
}

const PAGE: &str = "<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>";
const SLOW: &str = r#"{"error":{"message":"Slow down.","type":"requests","code":"rate_limit_exceeded"}}"#;

/// A character split between two chunks, and one whose rest never comes.
fn bad_utf8(d: ProviderDialect) -> Vec<ResponseAction> {
    let mut bytes = d.full_answer("Gr@1e @2!").into_bytes();
    for (mark, with) in [(&b"@1"[..], "üß".as_bytes()), (&b"@2"[..], &b"\xf0\x9f"[..])] {
        while let Some(place) = bytes.windows(2).position(|two| two == mark) {
            bytes.splice(place..place + 2, with.iter().copied());
        }
    }
    let mut acts = vec![stream_head()];
    // Each chunk ends in the middle of a character.
    let inside = |pair: &[u8]| pair == b"\xc3\xbc" || pair == b"\xf0\x9f";
    while let Some(place) = bytes.windows(2).position(inside) {
        let rest = bytes.split_off(place + 1);
        acts.extend([
            ResponseAction::Send(std::mem::replace(&mut bytes, rest)),
            ResponseAction::Pause(Duration::from_millis(20)),
        ]);
    }
    acts.push(ResponseAction::Send(bytes));
    acts
}

/// Two calls, one after the other.
fn two_calls(d: ProviderDialect, indices: [u32; 2], ids: [&str; 2]) -> String {
    let mut text = d.answer_start();
    for (number, (index, id)) in (1..).zip(indices.into_iter().zip(ids)) {
        let (item, arguments) = (format!("fc_{number}"), format!("{{\"id\":{number}}}"));
        text += &d.call_start(index, &item, id);
        text += &d.arguments_delta(index, &item, &arguments);
        text += &d.call_end(index, &item, id, &arguments);
    }
    text + &d.terminal_event(true, 9, 4)
}

/// An answer of this many words, one by one; it ends when the gate opens.
fn healthy(d: ProviderDialect, pause: Duration, gate: watch::Receiver<bool>) -> Vec<ResponseAction> {
    let mut acts = vec![stream_head(), ResponseAction::Send((d.answer_start() + &d.message_start(0)).into_bytes())];
    for number in 0..WORDS {
        acts.push(ResponseAction::Send(d.text_delta(0, &format!("w{number} ")).into_bytes()));
        acts.push(ResponseAction::Pause(pause));
    }
    acts.push(ResponseAction::Gate(gate));
    acts.push(ResponseAction::Send(
        (d.message_end(0, &story()) + &d.terminal_event(false, 9, i64::from(WORDS))).into_bytes(),
    ));
    acts
}

fn story() -> String {
    (0..WORDS).map(|number| format!("w{number} ")).collect()
}

/// An agent for each upstream of each protocol, and a healthy one.
fn config(upstream: &Loopback, site: &ToolServer) -> String {
    let mut config = format!("[tools.work]\nkind = \"http\"\nmethod = \"POST\"\nurl = \"{}\"\n", site.url("/work"));
    for d in DIALECTS {
        let (name, kind, url) = (d.name(), d.config_kind(), upstream.url("/v1"));
        write!(
            config,
            "[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\nfirst_byte_timeout_ms = {SILENCE_MS}\n\
             idle_timeout_ms = {SILENCE_MS}\nline_bytes_max = 65536\n\
             [providers.well_{name}]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n\
             response_bytes_max = 1073741824\n\
             [agents.{name}_healthy]\nmodel = \"well_{name}/healthy\"\n"
        )
        .unwrap();
        for (case, ..) in &CASES {
            write!(config, "[agents.{name}_{case}]\nmodel = \"{name}/{case}\"\ntools = [\"work\"]\n").unwrap();
        }
    }
    config
}

async fn begin(server: &Server, agent: &str) -> String {
    let task = server.create_task(json!({"model": agent, "input": "go"})).await;
    task["task_id"].as_str().unwrap().to_owned()
}

/// The text of all deltas.
fn text_of_frames(frames: &[SseFrame]) -> String {
    frames
        .iter()
        .filter(|frame| frame.event == "task.text.delta")
        .map(|frame| frame.data["delta"].as_str().unwrap())
        .collect()
}

/// Checks the end of every run.
fn check(what: &str, end: &End, tools: usize, frames: &[SseFrame], task: &Value) {
    let ends: Vec<&SseFrame> = frames.iter().filter(|frame| TERMINAL.contains(&frame.event.as_str())).collect();
    assert_eq!(ends.len(), 1, "{what}: {ends:?}");
    let last = frames.last().unwrap();
    assert_eq!(last, ends[0], "{what}: something comes after the end");
    match end {
        Completed(text) => {
            assert_eq!(last.event, "task.completed", "{what}: {task:#}");
            assert_eq!(text_of_frames(frames), *text, "{what}: {task:#}");
        }
        Failed(code) => {
            let error = &last.data["error"];
            assert_eq!((last.event.as_str(), &error["code"]), ("task.failed", &json!(code)), "{what}: {task:#}");
            assert_eq!(error["retryable"], true, "{what}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.len() > 20 && message.ends_with(|c: char| c == '.' || c.is_alphabetic()),
                "{what}: {message}"
            );
            assert!(error["details"]["provider"].is_string(), "{what}: {error}");
            eprintln!("{what}: {message}");
        }
    }
    let count = |event: &str| frames.iter().filter(|frame| frame.event == event).count();
    assert_eq!(count("task.tool.started"), tools, "{what}: {task:#}");
    // Shown output is not requested again.
    let tries = matches!(end, Failed(_)) && count("task.output_item.added") == 0;
    assert_eq!(count("task.retrying"), if tries { 2 } else { 0 }, "{what}: {task:#}");
    for tokens in task["usage"].as_object().unwrap().values() {
        assert!(tokens.as_i64().is_none_or(|tokens| tokens >= 0), "{what}: {}", task["usage"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_upstreams_end_their_run_once_with_a_reason_and_affect_no_other() {
    let (gate, closed) = watch::channel(false);
    let upstream = Loopback::start(move |asked: ReceivedRequest| {
        let d = ProviderDialect::from_path(&asked.path);
        match asked.body["model"].as_str().unwrap() {
            "healthy" => healthy(d, Duration::from_millis(10), closed.clone()),
            case => hostile(case, d, &asked.body),
        }
    });
    let (upstream, site) = (upstream.await, ToolServer::start().await);
    let server = Server::with_config(&config(&upstream, &site), "");
    let mut well = Vec::new();
    for number in 0..HEALTHY {
        well.push(begin(&server, &format!("{}_healthy", DIALECTS[number % 3].name())).await);
    }
    let mut ill = Vec::new();
    for d in DIALECTS {
        for (case, end, tools) in &CASES {
            let agent = format!("{}_{case}", d.name());
            let task = begin(&server, &agent).await;
            ill.push((agent, end, *tools, task));
        }
    }
    for (agent, end, tools, task) in &ill {
        let frames = server.frames(&format!("/v1/tasks/{task}/events"), None).await;
        let task = server.get(&format!("/v1/tasks/{task}")).await.json();
        check(agent, end, *tools, &frames, &task);
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    let ran: usize = site.counts().by_idempotency_key.values().sum();
    assert_eq!(ran, ill.iter().map(|(_, _, tools, _)| tools).sum::<usize>(), "no tool ran that was not called whole");
    gate.send(true).unwrap();
    for task in &well {
        let frames = server.frames(&format!("/v1/tasks/{task}/events"), None).await;
        assert_eq!(frames.last().unwrap().event, "task.completed");
        assert!(frames.iter().all(|frame| frame.event != "task.retrying"), "it did not go through at once");
        assert_eq!(text_of_frames(&frames), story());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_an_upstream_is_respected() {
    let asked: Arc<Mutex<Vec<(ProviderDialect, Instant)>>> = Arc::default();
    let seen = asked.clone();
    let upstream = Loopback::start(move |asked: ReceivedRequest| {
        let d = ProviderDialect::from_path(&asked.path);
        let mut seen = seen.lock().unwrap();
        let is_first = seen.iter().all(|(other, _)| *other != d);
        seen.push((d, Instant::now()));
        match is_first {
            true => hostile("too_many_come_back", d, &asked.body),
            false => vec![stream_head(), ResponseAction::Send(d.full_answer("Hello.").into_bytes())],
        }
    });
    let (upstream, site) = (upstream.await, ToolServer::start().await);
    let server = Server::with_config(&config(&upstream, &site), "");
    for d in DIALECTS {
        let task = begin(&server, &format!("{}_healthy", d.name())).await;
        let frames = server.frames(&format!("/v1/tasks/{task}/events"), None).await;
        let retries: Vec<&SseFrame> = frames.iter().filter(|frame| frame.event == "task.retrying").collect();
        assert_eq!(retries.len(), 1, "{frames:?}");
        assert_eq!(retries[0].data["error"]["code"], "rate_limited");
        assert_eq!(
            (frames.last().unwrap().event.as_str(), text_of_frames(&frames)),
            ("task.completed", "Hello.".to_owned())
        );
        let asked = asked.lock().unwrap();
        let times: Vec<Instant> = asked.iter().filter(|(other, _)| *other == d).map(|(_, at)| *at).collect();
        assert_eq!(times.len(), 2);
        assert!(times[1] - times[0] >= Duration::from_millis(990), "asked again after {:?}", times[1] - times[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_tiny_deltas_arrives_complete() {
    let full = std::env::vars().any(|(name, _)| name == "HEADWATER_TEST_FULL");
    let (pieces, patience) =
        if full { (1_000_000, Duration::from_secs(1800)) } else { (20_000_usize, TEST_TIMEOUT * 3) };
    let upstream = Loopback::start(move |asked: ReceivedRequest| {
        let d = ProviderDialect::from_path(&asked.path);
        let head = std::iter::once(d.answer_start() + &d.message_start(0));
        let words = (0..pieces).map(move |number| d.text_delta(0, &format!("{number} ")));
        let all = head
            .chain(words)
            .chain(std::iter::once_with(move || d.message_end(0, "") + &d.terminal_event(false, 9, 4)));
        vec![stream_head(), ResponseAction::SendAll(Box::new(all.map(String::into_bytes)))]
    });
    let (upstream, site) = (upstream.await, ToolServer::start().await);
    let server = Server::with_config(&config(&upstream, &site), "");
    let mut tasks = Vec::new();
    for d in DIALECTS {
        tasks.push(begin(&server, &format!("{}_healthy", d.name())).await);
    }
    for task in &tasks {
        let url = server.url(&format!("/v1/tasks/{task}"));
        let (said, last) = tokio::time::timeout(patience, followed(&format!("{url}/events"))).await.expect("it ends");
        assert_eq!(last, "task.completed");
        let numbers = said.split_terminator(' ').map(|number| number.parse::<usize>().unwrap());
        assert!(numbers.eq(0..pieces), "not every piece, or not in order");
        let object: Value = serde_json::from_str(&get(&url).await.text().await.unwrap()).unwrap();
        assert!(object["output"][0]["block_list"][0]["text"] == said, "the object says something else");
    }
}

/// Sends a request without a time-out.
async fn get(url: &str) -> reqwest::Response {
    reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap()
}

/// Reads a stream of any length to its end: its text, and the last event.
async fn followed(url: &str) -> (String, String) {
    let mut response = get(url).await;
    let (mut held, mut said, mut last) = (Vec::new(), String::new(), String::new());
    while let Some(chunk) = response.chunk().await.unwrap() {
        held.extend_from_slice(&chunk);
        let Some(end) = held.windows(2).rposition(|two| two == b"\n\n") else { continue };
        let rest = held.split_off(end + 2);
        let frames = parse_frames(std::str::from_utf8(&held).unwrap());
        said.push_str(&text_of_frames(&frames));
        last = frames.last().map_or(last, |frame| frame.event.clone());
        held = rest;
    }
    (said, last)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_url_in_the_environment_is_all_that_is_needed() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let open = watch::Sender::new(true);
    let upstream = Loopback::start(move |asked: ReceivedRequest| {
        let key = ["authorization", "x-api-key"].into_iter().find_map(|name| asked.headers.get(name).cloned());
        seen.lock().unwrap().push((asked.path.clone(), asked.body["model"].clone(), key));
        healthy(ProviderDialect::from_path(&asked.path), Duration::from_millis(1), open.subscribe())
    });
    let upstream = upstream.await;
    let dir = tempfile::tempdir().unwrap();
    let mut child = headwater_command(dir.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"])
        .env_remove("OPENAI_API_KEY")
        .env_remove("ANTHROPIC_API_KEY")
        .env("OPENAI_BASE_URL", upstream.url("/v1"))
        .env("ANTHROPIC_BASE_URL", upstream.url(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("headwater listening on ").unwrap();
    for model in ["openai/x", "openai-chat/x", "anthropic/x"] {
        let body = json!({"model": model, "input": "go", "stream": true}).to_string();
        let request =
            http_client().post(format!("{url}/v1/tasks")).header("content-type", "application/json").body(body);
        let text = request.send().await.unwrap().text().await.unwrap();
        let frames = parse_frames(&text);
        assert_eq!(frames.last().map(|frame| frame.event.as_str()), Some("task.completed"), "{model}: {text}");
        let pieces = frames.iter().filter(|frame| frame.event == "task.text.delta").count();
        assert_eq!((text_of_frames(&frames), pieces), (story(), WORDS as usize), "{model}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let paths = ["/v1/responses", "/v1/chat/completions", "/v1/messages"];
    assert_eq!(*keys.lock().unwrap(), paths.map(|path| (path.to_owned(), json!("x"), None)));
}
