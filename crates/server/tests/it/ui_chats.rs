//! Chats of the AI SDK: messages, answers, replays, and requests that are refused.

use crate::auth::create_key;
use crate::broker_fixture::{broker_server, placed_orders};
use crate::fake_provider::dialect::DIALECTS;
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::{Reply, Server};
use futures_util::future::join_all;
use serde_json::{Value, json};

fn says(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

fn body(messages: &[&Value]) -> Value {
    json!({"id": "chat-1", "trigger": "submit-message", "agent": "broker", "messages": messages})
}

async fn post(hw: &Server, body: &Value) -> Reply {
    hw.post("/api/chat", body.clone()).await
}

/// The chunks of a stream, which ends as the SDK expects it.
fn chunks(reply: &Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("x-vercel-ai-ui-message-stream")), (200, "v1"), "{}", reply.text);
    let lines: Vec<&str> = reply.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, chunks) = lines.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    chunks.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn send(hw: &Server, body: &Value) -> Vec<Value> {
    chunks(&post(hw, body).await)
}

fn text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["delta"].as_str()).collect()
}

fn find<'a>(chunks: &'a [Value], kind: &str) -> &'a Value {
    let found = chunks.iter().find(|chunk| chunk["type"] == kind);
    found.unwrap_or_else(|| panic!("{kind} in {chunks:?}"))
}

/// The error of a refused request.
fn refusal(reply: &Reply) -> (u16, String) {
    assert_eq!(reply.header("content-type"), "application/json", "{}", reply.text);
    let error = reply.json();
    assert!(error["error"].as_str().is_some_and(|sentence| sentence.contains(' ')), "{error}");
    (reply.status, error["code"].as_str().unwrap().to_owned())
}

async fn messages(hw: &Server) -> Vec<Value> {
    hw.get("/api/chat/chat-1/messages").await.json()["messages"].as_array().unwrap().clone()
}

/// A chat whose run waits for an approval: its message with the answer, as the SDK sends it.
async fn answered(hw: &Server, approved: bool) -> (Value, Value) {
    let asked = says("m-1", "buy");
    let chunks = send(hw, &body(&[&asked])).await;
    assert_eq!(chunks.last().unwrap()["finishReason"], "tool-calls", "{chunks:?}");
    let (input, request) = (find(&chunks, "tool-input-available"), find(&chunks, "tool-approval-request"));
    let approval = json!({"id": request["approvalId"], "approved": approved, "reason": "as I said"});
    let call = json!({"type": "dynamic-tool", "toolName": "order", "toolCallId": input["toolCallId"],
        "state": "approval-responded", "input": input["input"], "approval": approval});
    (asked, json!({"id": chunks[0]["messageId"], "role": "assistant", "parts": [{"type": "step-start"}, call]}))
}

#[tokio::test]
async fn an_approval_survives_a_kill_and_the_answer_continues_the_message() {
    let mut hw = broker_server("");
    let (asked, answer) = answered(&hw, true).await;
    hw.kill9();
    hw.restart();
    let replayed = chunks(&hw.get("/api/chat/chat-1/stream").await);
    assert_eq!(find(&replayed, "tool-approval-request")["approvalId"], answer["parts"][1]["approval"]["id"]);
    let ended = send(&hw, &body(&[&asked, &answer])).await;
    assert_eq!((&ended[0]["type"], &ended[0]["messageId"]), (&json!("start"), &answer["id"]));
    assert_eq!(find(&ended, "tool-output-available")["toolCallId"], answer["parts"][1]["toolCallId"]);
    assert!(text(&ended).contains("bought") && ended.last().unwrap()["finishReason"] == "stop", "{ended:?}");
    assert_eq!(placed_orders(&hw).len(), 1);
    let stored = messages(&hw).await;
    assert_eq!(stored.iter().map(|message| &message["id"]).collect::<Vec<_>>(), [&json!("m-1"), &answer["id"]]);
    // The SDK sends it again where a response was lost: the same segment, and nothing runs twice.
    assert_eq!(send(&hw, &body(&[&asked, &answer])).await, ended);
    assert_eq!(placed_orders(&hw).len(), 1);
}

#[tokio::test]
async fn an_approval_is_decided_once_by_fifty_pages() {
    let hw = broker_server("");
    let (asked, yes) = answered(&hw, true).await;
    let mut no = yes.clone();
    no["parts"][1]["approval"]["approved"] = json!(false);
    let requests = [body(&[&asked, &yes]), body(&[&asked, &no])];
    let replies = join_all((0..50).map(|page| post(&hw, &requests[page % 2]))).await;
    let pages = replies.iter().enumerate();
    let accepted: Vec<bool> = pages.filter(|(_, reply)| reply.status == 200).map(|(page, _)| page % 2 == 0).collect();
    assert!(!accepted.is_empty() && accepted.iter().all(|approved| *approved == accepted[0]), "{accepted:?}");
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!(refusal(reply), (409, "already_decided".to_owned()));
    }
    assert_eq!(placed_orders(&hw).len(), usize::from(accepted[0]));
}

#[tokio::test]
async fn a_message_that_is_sent_twenty_times_at_once_runs_once() {
    let hw = broker_server("");
    let asked = says("m-1", "count 3");
    let request = body(&[&asked]);
    let replies = join_all((0..20).map(|_| send(&hw, &request))).await;
    assert!(replies.iter().all(|chunks| *chunks == replies[0]), "{replies:?}");
    assert_eq!(hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_message_that_waits_in_the_queue_runs_once() {
    let hw = broker_server("");
    let [first, second, third] =
        [("m-1", "count 100000"), ("m-2", "count 100000"), ("m-3", "count 2")].map(|(id, words)| says(id, words));
    let open =
        async |messages: &[&Value]| hw.client.post(hw.url("/api/chat")).json(&body(messages)).send().await.unwrap();
    let tasks = async || hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().clone();
    let is_running = async |count: usize| {
        let running = tasks().await.iter().filter(|task| task["status"] == "running").count();
        (tasks().await.len(), running) == (count, 1)
    };
    let _one = open(&[&first]).await;
    hw.wait_until("the first message runs", async || is_running(1).await).await;
    // The page has no answer to the second message when it sends the third.
    let (_two, three) = (open(&[&first, &second]).await, open(&[&first, &second, &third]).await);
    hw.post("/api/chat/chat-1/stop", json!({})).await;
    hw.wait_until("the second message runs", async || is_running(3).await && tasks().await[2]["status"] == "cancelled")
        .await;
    let again = open(&[&first, &second, &third]).await;
    hw.post("/api/chat/chat-1/stop", json!({})).await;
    assert_eq!(three.text().await.unwrap(), again.text().await.unwrap());
    assert_eq!(tasks().await.len(), 3, "a message that is sent again does not run again");
    let said = messages(&hw).await.iter().filter(|message| message["role"] == "user").cloned().collect::<Vec<_>>();
    assert_eq!(said.iter().map(|message| &message["id"]).collect::<Vec<_>>(), ["m-1", "m-2", "m-3"], "{said:?}");
    assert_eq!(said[2]["parts"].as_array().unwrap().len(), 1, "the second message is no part of the third");
}

#[tokio::test]
async fn a_replay_is_the_message_at_any_moment_and_a_cursor_gives_the_rest() {
    let mut hw = broker_server("");
    assert_eq!(hw.get("/api/chat/chat-1/stream").await.status, 204, "before its first message");
    assert_eq!(hw.get("/api/chat/chat-1/messages").await.json(), json!({"messages": [], "hasMore": false}));
    let task = json!({"model": "broker", "input": "count 40"});
    let thread = hw.create_task(task).await["thread_id"].as_str().unwrap().to_owned();
    let path = format!("/api/chat/{thread}/stream");
    let (live, killed) = (hw.get(&path).await, hw.get(&path).await);
    let whole: String = (0..40).map(|n| format!("{n} ")).collect();
    for reply in [&live, &killed] {
        let replayed = chunks(reply);
        assert_eq!(text(&replayed).trim_end(), text(&chunks(&live)).trim_end());
        assert_eq!(replayed.iter().filter(|chunk| chunk["type"] == "start").count(), 1);
    }
    assert_eq!(text(&chunks(&live)).split_whitespace().count(), whole.split_whitespace().count());
    hw.kill9();
    hw.restart();
    assert_eq!(text(&chunks(&hw.get(&path).await)), text(&chunks(&live)), "an ended run is replayed for a minute");
    // The ids of the native stream are cursors here, too.
    let run = &hw.get(&format!("/v1/tasks?thread_id={thread}")).await.json()["data"][0]["task_id"];
    let frames = hw.frames(&format!("/v1/tasks/{}/events", run.as_str().unwrap()), None).await;
    let from_start = hw.request(reqwest::Method::GET, &format!("{path}?after=0"), &[], None).await;
    let middle = &frames[frames.len() / 2].id;
    let rest = hw.get(&format!("{path}?after={middle}")).await;
    let from_start = if from_start.status == 200 { from_start.text } else { live.text.clone() };
    assert!(from_start.ends_with(rest.text.split_once("\n\n").unwrap().1), "the bytes of the stream");
    assert_eq!(hw.get(&format!("{path}?after={}", frames.last().unwrap().id)).await.status, 204);
}

/// Frames without ids are built in memory. A long message continues with those of the log.
#[tokio::test]
async fn the_replay_of_a_long_message_takes_little_memory() {
    const MIB: usize = 1024 * 1024;
    const COUNT: usize = 200;
    let config =
        "[agents.broker]\nmodel = \"mine/broker\"\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"";
    let words = "x".repeat(16 * 1024);
    let turn = format!("[[scenario]]\n[[scenario.turn]]\nsteps = [{{ text = \"{words} \", repeat = {COUNT} }}]");
    let hw = Server::with_config(config, &turn);
    let live = send(&hw, &body(&[&says("m-1", "go")])).await;
    assert_eq!(text(&live).len(), COUNT * (words.len() + 1));
    for reply in join_all((0..4).map(|_| hw.get("/api/chat/chat-1/stream"))).await {
        let without_ids = reply.text.split("\nid: ").next().unwrap().len();
        assert!((MIB..3 * MIB).contains(&without_ids), "{without_ids} of {}", reply.text.len());
        let replayed = chunks(&reply);
        assert!(text(&replayed) == text(&live) && replayed.last() == live.last());
    }
}

/// The SDK runs a tool of the page as soon as it has the input.
#[tokio::test]
async fn a_long_replay_asks_for_no_tool_that_has_its_result() {
    let config =
        "[agents.broker]\nmodel = \"mine/broker\"\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"";
    let long = format!("{{ text = \"{} \", repeat = 100 }}", "x".repeat(16 * 1024));
    let turns = format!(
        "[[scenario]]\n[[scenario.turn]]\nsteps = [{long}, {{ call = \"locate\", arguments = \"{{}}\" }}]\n\
         [[scenario.turn]]\nsteps = [{{ text = \"Found.\" }}]"
    );
    let hw = Server::with_config(config, &turns);
    let said = says("m-1", "go");
    let mut request = body(&[&said]);
    request["tools"] = json!([{"name": "locate"}]);
    let asked = send(&hw, &request).await;
    let call = &find(&asked, "tool-input-available")["toolCallId"];
    assert_eq!(find(&chunks(&hw.get("/api/chat/chat-1/stream").await), "tool-input-available")["toolCallId"], *call);
    let part =
        json!({"type": "tool-locate", "toolCallId": call, "state": "output-available", "input": {}, "output": "here"});
    let answer = json!({"id": asked[0]["messageId"], "role": "assistant", "parts": [part]});
    assert!(text(&send(&hw, &body(&[&said, &answer])).await).contains("Found."));
    let replayed = chunks(&hw.get("/api/chat/chat-1/stream").await);
    assert_eq!(find(&replayed, "tool-output-available")["toolCallId"], *call);
    assert!(replayed.iter().all(|chunk| chunk["type"] != "tool-input-available"), "the page has run it");
}

#[tokio::test]
async fn an_answer_is_generated_again_in_its_place() {
    let upstream = RecordingUpstream::start(|dialect, _| dialect.full_answer("ok")).await;
    let hw = Server::with_config(&upstream.agents(""), "");
    let dialect = DIALECTS[0];
    let request = |trigger: &str, messages: &[&Value], message_id: Value| json!({"id": "chat-1", "trigger": trigger, "agent": dialect.name(), "messages": messages, "messageId": message_id});
    let (first, second) = (says("m-1", "first words"), says("m-2", "second words"));
    let answer = |chunks: &[Value]| json!({"id": chunks[0]["messageId"], "role": "assistant", "parts": []});
    let one = answer(&send(&hw, &request("submit-message", &[&first], Value::Null)).await);
    let two = answer(&send(&hw, &request("submit-message", &[&first, &one, &second], Value::Null)).await);
    assert!(upstream.last_request(dialect).to_string().contains("first words"), "the model knows the conversation");
    // The second answer: the model reads the first run, and not the answer that is replaced.
    let again = answer(&send(&hw, &request("regenerate-message", &[&first, &one, &second], two["id"].clone())).await);
    let read = upstream.last_request(dialect).to_string();
    assert_eq!((read.matches("second words").count(), read.matches("first words").count()), (1, 1), "{read}");
    assert_ne!(again["id"], two["id"]);
    let ids = |messages: Vec<Value>| messages.into_iter().map(|message| message["id"].clone()).collect::<Vec<_>>();
    let expected = [json!("m-1"), one["id"].clone(), json!("m-2"), again["id"].clone()];
    assert_eq!(ids(messages(&hw).await), expected);
    // The first one: nothing is left before it.
    let fresh = answer(&send(&hw, &request("regenerate-message", &[&first], Value::Null)).await);
    let read = upstream.last_request(dialect).to_string();
    assert!(read.contains("first words") && !read.contains("second words"), "{read}");
    assert_eq!(ids(messages(&hw).await), [json!("m-1"), fresh["id"].clone()]);
    // An edited message has another answer, and the same again is the same request.
    let edited = says("m-1", "other words");
    let other = answer(&send(&hw, &request("submit-message", &[&edited], json!("m-1"))).await);
    let read = upstream.last_request(dialect).to_string();
    assert!(read.contains("other words") && !read.contains("first words"), "{read}");
    let repeated = answer(&send(&hw, &request("submit-message", &[&edited], json!("m-1"))).await);
    assert_eq!(repeated["id"], other["id"]);
    assert_eq!(ids(messages(&hw).await), [json!("m-1"), other["id"].clone()]);
}

#[tokio::test]
async fn the_first_run_reads_what_was_said_elsewhere() {
    let upstream = RecordingUpstream::start(|dialect, _| dialect.full_answer("ok")).await;
    let hw = Server::with_config(&upstream.agents(""), "");
    let dialect = DIALECTS[0];
    let said = json!({"id": "a-1", "role": "assistant", "parts": [{"type": "text", "text": "said elsewhere"}]});
    let (asked, next) = (says("m-1", "asked elsewhere"), says("m-2", "now"));
    let mut request = body(&[&asked, &said, &next]);
    request["agent"] = json!(dialect.name());
    send(&hw, &request).await;
    let read = upstream.last_request(dialect).to_string();
    assert!(read.contains("asked elsewhere") && read.contains("said elsewhere") && read.contains("now"), "{read}");
}

#[tokio::test]
async fn a_busy_chat_queues_refuses_or_is_steered_and_a_stop_ends_the_stream() {
    let hw = broker_server("");
    let long = says("m-1", "count 500");
    let next = says("m-2", "hello");
    let streamed = async { send(&hw, &body(&[&long])).await };
    let others = async {
        hw.wait_until("it runs", async || hw.get("/v1/tasks").await.json()["data"][0]["status"] == "running").await;
        let mut busy = body(&[&long, &next]);
        busy["on_busy"] = json!("reject");
        assert_eq!(refusal(&post(&hw, &busy).await), (409, "thread_busy".to_owned()));
        busy["on_busy"] = Value::Null;
        let queued = post(&hw, &busy);
        let stopped = async {
            hw.wait_until("it is queued", async || {
                hw.get("/v1/tasks").await.json()["data"].as_array().unwrap().len() == 2
            })
            .await;
            hw.post("/api/chat/chat-1/stop", json!({})).await.json()
        };
        let (queued, stopped) = tokio::join!(queued, stopped);
        assert_eq!(stopped, json!({"stopped": true}));
        assert_eq!(text(&chunks(&queued)), "Hello.");
    };
    let (cut, ()) = tokio::join!(streamed, others);
    assert_eq!(cut.last().unwrap()["type"], "abort", "{:?}", cut.last());
    assert_eq!(hw.post("/api/chat/chat-1/stop", json!({})).await.json(), json!({"stopped": false}));
}

#[tokio::test]
async fn bad_requests_are_refused_and_nothing_is_written() {
    let hw = broker_server("");
    let (asked, answer) = answered(&hw, true).await;
    let before = hw.count_threads_and_records().await;
    let altered = |change: fn(&mut Value)| {
        let mut answer = answer.clone();
        change(&mut answer);
        body(&[&asked, &answer])
    };
    let next = says("m-2", "hello");
    let tools: Vec<Value> = (0..1000).map(|n| json!({"name": format!("t{n}")})).collect();
    let mut rows = vec![
        (altered(|answer| answer["parts"][1]["input"]["quantity"] = json!(1)), (409, "altered_history")),
        (altered(|answer| answer["parts"][1]["toolName"] = json!("clerk")), (409, "altered_history")),
        (altered(|answer| answer["parts"][1]["approval"]["id"] = json!("apr_1")), (400, "approval_not_found")),
        (altered(|answer| answer["parts"][1]["approval"]["approved"] = json!("yes")), (400, "invalid_body")),
        (altered(|answer| answer["id"] = json!("task_00000000000000000000000000000000")), (404, "not_found")),
        (altered(|answer| answer["id"] = json!("elsewhere")), (404, "not_found")),
        (body(&[]), (400, "invalid_body")),
        (json!({"id": "chat-1"}), (400, "invalid_body")),
        (json!({"id": "a/b", "messages": [next]}), (400, "invalid_body")),
        (json!({"id": "thr_00000000000000000000000000000000", "messages": [next]}), (404, "not_found")),
        (json!({"id": "chat-1", "message": {"id": "m", "role": "function", "parts": []}}), (400, "invalid_body")),
        (
            json!({"id": "chat-1", "message": {"id": "m", "role": "user", "parts": [{"type": "video"}]}}),
            (400, "invalid_body"),
        ),
        (json!({"id": "chat-1", "message": next, "trigger": "other"}), (400, "invalid_body")),
        (json!({"id": "chat-1", "message": next, "messageId": "unknown"}), (404, "not_found")),
        (
            json!({"id": "chat-1", "message": next, "trigger": "regenerate-message", "messageId": "unknown"}),
            (404, "not_found"),
        ),
        (json!({"id": "chat-1", "message": next, "agent": "nobody"}), (400, "unknown_agent")),
        (json!({"id": "chat-1", "message": next, "on_busy": "explode"}), (400, "invalid_body")),
        (json!({"id": "chat-1", "message": next, "tools": tools}), (400, "invalid_body")),
    ];
    rows.push((
        json!({"id": "chat-1", "message": next, "tools": [{"name": "transfer_to_clerk"}, {"name": "clerk"}]}),
        (400, "invalid_body"),
    ));
    for (request, (status, code)) in rows {
        let reply = post(&hw, &request).await;
        let shown = request.to_string().chars().take(300).collect::<String>();
        assert_eq!(refusal(&reply), (status, code.to_owned()), "{shown}");
    }
    assert_eq!(refusal(&hw.post("/api/chat?ui=8", body(&[&next])).await), (400, "invalid_query".to_owned()));
    assert_eq!(refusal(&hw.post_text("/api/chat", "{").await), (400, "invalid_json".to_owned()));
    assert_eq!(refusal(&hw.get("/api/chat/chat-1/messages?before=unknown").await), (400, "invalid_query".to_owned()));
    assert_eq!(refusal(&hw.post("/api/chat/unknown/stop", json!({})).await), (404, "not_found".to_owned()));
    assert_eq!(hw.count_threads_and_records().await, before);
    assert!(text(&send(&hw, &body(&[&asked, &answer])).await).contains("bought"), "the approval is still open");
    let second = altered(|answer| answer["parts"][1]["approval"]["approved"] = json!(false));
    assert_eq!(refusal(&post(&hw, &second).await), (409, "already_decided".to_owned()));
}

#[tokio::test]
async fn the_chats_of_two_users_are_apart() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let post_as = async |key: &str, body: Value| {
        let request = hw.client.post(hw.url("/api/chat")).bearer_auth(key).json(&body).send().await.unwrap();
        (request.status().as_u16(), request.text().await.unwrap())
    };
    let asked = says("m-1", "hello");
    let (status, hers) = post_as(&ann, json!({"id": "chat-1", "agent": "demo", "message": asked})).await;
    assert_eq!(status, 200, "{hers}");
    let get_as = async |key: &str, path: &str| {
        let reply = hw.client.get(hw.url(path)).bearer_auth(key).send().await.unwrap();
        (reply.status().as_u16(), reply.text().await.unwrap())
    };
    assert!(get_as(&ann, "/api/chat/chat-1/messages").await.1.contains("m-1"));
    assert_eq!(get_as(&ben, "/api/chat/chat-1/messages").await.1, r#"{"messages":[],"hasMore":false}"#);
    assert_eq!(get_as(&ben, "/api/chat/chat-1/stream").await.0, 204);
    let run = hers.split("\"messageId\":\"").nth(1).unwrap().split('"').next().unwrap();
    let answer = json!({"id": run, "role": "assistant", "parts": []});
    let stolen = json!({"id": "chat-1", "agent": "demo", "messages": [asked, answer]});
    assert_eq!(post_as(&ben, stolen).await.0, 404, "her message does not exist for him");
}
