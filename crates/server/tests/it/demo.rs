//! The demo, scenario by scenario: the records of a run in order, with their essential fields.
//!
//! `R` is the run's part of every id, and `↳` marks a record of a sub-agent.

use crate::harness::{OpenStream, Server, SseFrame, parse_frames};
use serde_json::{Value, json};

/// A run of the demo with a stream that follows it.
struct WatchedRun<'a> {
    hw: &'a Server,
    id: String,
    watcher: OpenStream,
}

impl<'a> WatchedRun<'a> {
    async fn start_with_body(hw: &'a Server, body: Value) -> Self {
        let task = hw.create_task(body).await;
        let id = task["task_id"].as_str().unwrap().to_owned();
        let watcher = hw.open_stream(&format!("/v1/tasks/{id}/events")).await;
        Self { hw, id, watcher }
    }

    async fn start(hw: &'a Server, input: &str) -> Self {
        Self::start_with_body(hw, json!({"model": "demo", "input": input})).await
    }

    /// The pending requests, once there are any.
    async fn wait_paused(&mut self) -> Value {
        let seen = parse_frames(self.watcher.read_until("\"task.paused\"").await);
        let paused = seen.iter().rfind(|frame| frame.event == "task.paused").unwrap();
        paused.data["pending"][0].clone()
    }

    async fn decide(&mut self, decision: Value) {
        let key = self.wait_paused().await["key"].as_str().unwrap().to_owned();
        let reply = self.hw.post(&format!("/v1/tasks/{}/approvals/{key}", self.id), decision).await;
        assert!((200..300).contains(&reply.status), "{}: {}", reply.status, reply.text);
    }

    /// All of its records, to the end.
    async fn wait_ended(mut self) -> RunLog {
        let frames = parse_frames(self.watcher.read_to_end().await.unwrap());
        RunLog { suffix: self.id.trim_start_matches("task_").to_owned(), id: self.id, frames }
    }
}

/// The records of a run that has ended.
struct RunLog {
    id: String,
    suffix: String,
    frames: Vec<SseFrame>,
}

impl RunLog {
    /// One word per record.
    fn trace(&self) -> Vec<String> {
        self.frames.iter().map(|frame| self.trace_word(&frame.data).replace(&self.suffix, "R")).collect()
    }

    fn trace_word(&self, data: &Value) -> String {
        let kind = data["type"].as_str().unwrap().trim_start_matches("task.");
        let child = if data["task_id"] == self.id.as_str() { "" } else { "↳" };
        let fields: Vec<String> = fields(kind, data).into_iter().filter(|field| !field.is_empty()).collect();
        let fields = if fields.is_empty() { String::new() } else { format!("{{{}}}", fields.join(",")) };
        let kind = match kind {
            "output_item.added" => format!("item+{}", text(&data["item"]["id"])),
            "output_item.done" => format!("item-{}", text(&data["item"]["id"])),
            kind => kind.replace("reasoning_summary_text", "summary").replace("reasoning_summary_item", "summary"),
        };
        format!("{child}{}{fields}", kind.replace("tool_call_", ""))
    }

    #[track_caller]
    fn assert_trace(&self, wanted: &str) {
        let wanted: Vec<&str> = wanted.split_whitespace().collect();
        assert_eq!(self.trace(), wanted, "{:#?}", self.frames.last());
    }

    /// The deltas of a message.
    fn text_deltas(&self, item: &str) -> Vec<&str> {
        let of = |frame: &&SseFrame| frame.event == "task.text.delta" && text(&frame.data["item_id"]).ends_with(item);
        self.frames.iter().filter(of).map(|frame| frame.data["delta"].as_str().unwrap()).collect()
    }

    /// What the records of this type have to say.
    fn events_of_type(&self, kind: &str) -> Vec<&Value> {
        self.frames.iter().filter(|frame| frame.event == kind).map(|frame| &frame.data).collect()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The essential fields of a record. Item ids are in its word already.
fn fields(kind: &str, data: &Value) -> Vec<String> {
    let get = |paths: &[&str]| paths.iter().map(|path| text(data.pointer(path).unwrap_or(&Value::Null))).collect();
    match kind {
        "created" => get(&["/task/agent"]),
        "step.started" => get(&["/step"]),
        "step.done" => get(&["/step", "/stop_reason"]),
        "output_item.added" => get(&["/item/name", "/item/kind", "/item/gate", "/item/agent"]),
        "output_item.done" => {
            let status = text(&data["item"]["status"]);
            let is_result = data["item"]["type"] == "tool_result";
            let shown = if is_result || status != "completed" { status } else { String::new() };
            vec![shown, text(&data["item"]["reason"]), text(&data["item"]["error"]["code"])]
        }
        "tool.started" | "tool.progress" => get(&["/call_id", "/progress", "/total"]),
        "text.done" | "image.done" => get(&["/item/id"]),
        "text.annotation.added" => {
            get(&["/annotation/reference_id", "/annotation/start_index", "/annotation/end_index"])
        }
        "image.delta" => get(&["/partial_image_index"]),
        "hosted_call.updated" => get(&["/state"]),
        "approval.requested" => get(&["/key", "/call_id", "/timeout_seconds"]),
        "approval.resolved" => get(&["/key", "/decisions/0/type", "/by"]),
        "paused" => get(&["/pending/0/kind", "/pending/0/key", "/pending/0/call_id", "/pending/1/kind"]),
        "resumed" => get(&["/by"]),
        "agent.updated" => get(&["/agent", "/from"]),
        "failed" => get(&["/error/code", "/error/retryable"]),
        _ => Vec::new(),
    }
}

/// The demo's reasoning in two parts.
const THOUGHTS: &str = "summary.added summary.delta summary.delta summary.done
    summary.added summary.delta summary.delta summary.done";
const ARGUMENTS: &str = "arguments.delta arguments.delta arguments.done";

#[tokio::test]
async fn hello_is_a_greeting_in_two_deltas() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "hello").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+msg_R1{demo} text.added text.delta text.delta text.done item-msg_R1
        step.done{1,stop} completed",
    );
}

/// Reasoning comes before the call that it led to.
#[tokio::test]
async fn weather_thinks_in_two_parts_calls_a_tool_and_cites_it() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "What is the weather?").await.wait_ended().await;
    log.assert_trace(&format!(
        "created{{demo}} started step.started{{1}}
        item+rs_R1{{demo}} {THOUGHTS} item-rs_R1
        item+fc_R2{{get_weather,tool,never,demo}} {ARGUMENTS} item-fc_R2
        step.done{{1,tool_calls}} tool.started{{call_R2}}
        item+fco_R2{{demo}} text.done{{1}} image.added image.done{{1}} item-fco_R2{{completed}}
        step.started{{2}}
        item+msg_R3{{demo}} text.added text.delta text.delta text.delta text.annotation.added{{1,56,60}} text.done{{1}}
        item-msg_R3 step.done{{2,stop}} completed"
    ));
    assert_eq!(log.frames.len(), 36);
    let pieces = ["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"];
    assert_eq!(log.text_deltas("3"), pieces);
    assert_eq!(log.events_of_type("task.tool.started")[0]["arguments"], r#"{"location":"Paris, France"}"#);
    assert_eq!(log.events_of_type("task.output_item.added")[1]["item"]["display_name"], "Weather");
}

#[tokio::test]
async fn help_calls_a_sub_agent_whose_source_the_parent_cites() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "I need help").await.wait_ended().await;
    let child_thoughts = THOUGHTS.replace("summary", "↳summary");
    let child_arguments = ARGUMENTS.replace("arguments", "↳arguments");
    log.assert_trace(&format!(
        "created{{demo}} started step.started{{1}}
        item+rs_R1{{demo}} {THOUGHTS} item-rs_R1
        item+fc_R2{{ask_for_help,agent,never,demo}} {ARGUMENTS} item-fc_R2
        step.done{{1,tool_calls}} tool.started{{call_R2}} item+fco_R2{{demo}}
        ↳created{{WeatherAgent}} ↳started ↳step.started{{1}}
        ↳item+rs_R3{{WeatherAgent}} {child_thoughts} ↳item-rs_R3
        ↳item+fc_R4{{get_weather,tool,never,WeatherAgent}} {child_arguments} ↳item-fc_R4
        ↳step.done{{1,tool_calls}} ↳tool.started{{call_R4}}
        ↳item+fco_R4{{WeatherAgent}} ↳text.done{{1}} ↳image.added ↳image.done{{1}} ↳item-fco_R4{{completed}}
        ↳step.started{{2}}
        ↳item+msg_R5{{WeatherAgent}} ↳text.added ↳text.delta ↳text.delta ↳text.delta ↳text.annotation.added{{1,56,60}}
        ↳text.done{{1}} ↳item-msg_R5 ↳step.done{{2,stop}} ↳completed
        item-fco_R2{{completed}} step.started{{2}}
        item+msg_R6{{demo}} text.added text.delta text.annotation.added{{1,30,34}} text.done{{1}} item-msg_R6
        step.done{{2,stop}} completed"
    ));
    assert_eq!(log.text_deltas("5").concat(), "The weather in Paris is sunny with a temperature of 15C.[^1]");
    assert_eq!(log.text_deltas("6"), ["WeatherAgent says: sunny, 15C.[^1]"]);
    let created = log.events_of_type("task.created")[1];
    assert_eq!(
        (&created["task"]["parent_task_id"], created["task_id"].as_str()),
        (&json!(log.id), Some(format!("call_{}2", log.suffix).as_str()))
    );
    assert_eq!(created["task"]["input"][0]["content"][0]["text"], "Get the current weather in Paris, France.");
    let done = log.events_of_type("task.output_item.done");
    assert!(done.iter().any(|done| done["item"]["type"] == "tool_result" && done["item"].get("block_list").is_none()));
}

#[tokio::test]
async fn parallel_runs_three_tools_in_parallel() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "parallel").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+fc_R1{tool_a,tool,never,demo} arguments.delta arguments.done item-fc_R1
        item+fc_R2{tool_b,tool,never,demo} arguments.delta arguments.done item-fc_R2
        item+fc_R3{tool_c,tool,never,demo} arguments.delta arguments.done item-fc_R3
        step.done{1,tool_calls} tool.started{call_R1} tool.started{call_R2} tool.started{call_R3}
        item+fco_R1{demo} text.done{1} item-fco_R1{completed}
        item+fco_R2{demo} text.done{2} item-fco_R2{completed}
        item+fco_R3{demo} text.done{3} item-fco_R3{completed}
        step.started{2} item+msg_R4{demo} text.added text.delta text.delta text.done item-msg_R4
        step.done{2,stop} completed",
    );
    let at = |event: &str, nth: usize| log.events_of_type(event)[nth]["at"].as_u64().unwrap();
    let last = log.events_of_type("task.tool.started").len() - 1;
    let together = at("task.step.started", 1) - at("task.tool.started", last);
    assert!((600..1000).contains(&together), "side by side they take as long as the slowest: {together} ms");
}

const TRADE: &str = "created{demo} started step.started{1}
    item+msg_R1{demo} text.added text.delta text.done item-msg_R1
    item+fc_R2{execute_trade,tool,always,demo} arguments.delta arguments.delta arguments.done item-fc_R2
    step.done{1,tool_calls} approval.requested{apr_R2,call_R2,300} paused{approval,apr_R2,call_R2}";

#[tokio::test]
async fn a_trade_that_is_approved_is_placed() {
    let hw = Server::demo();
    let mut run = WatchedRun::start(&hw, "trade").await;
    run.decide(json!({"decision": "approve"})).await;
    let log = run.wait_ended().await;
    log.assert_trace(&format!(
        "{TRADE} resumed{{user}} approval.resolved{{apr_R2,approve,user}} tool.started{{call_R2}}
        item+fco_R2{{demo}} text.done{{1}} item-fco_R2{{completed}}
        step.started{{2}} item+msg_R3{{demo}} text.added text.delta text.annotation.added{{1,17,21}} text.done{{1}} item-msg_R3
        step.done{{2,stop}} completed"
    ));
    assert_eq!(log.frames.len(), 31);
    assert_eq!(
        (log.text_deltas("1"), log.text_deltas("3")),
        (vec!["I will place the order."], vec!["Done: bought VNM.[^1]"])
    );
    let asked = log.events_of_type("task.approval.requested")[0];
    assert_eq!(
        asked["action_requests"],
        json!([{"name": "execute_trade", "args": {"symbol": "VNM", "quantity": 100}}])
    );
    assert_eq!(asked["review_configs"], json!([{"require_approval": true}]));
    assert!(log.events_of_type("task.text.done").iter().any(|done| done["item"]["text"] == "Order placed: VNM x100"));
}

#[tokio::test]
async fn a_trade_that_is_rejected_is_not_placed() {
    let hw = Server::demo();
    let mut run = WatchedRun::start(&hw, "trade").await;
    run.decide(json!({"decision": "reject", "message": "too risky"})).await;
    let log = run.wait_ended().await;
    log.assert_trace(&format!(
        "{TRADE} resumed{{user}} approval.resolved{{apr_R2,reject,user}}
        item+fco_R2{{demo}} text.done item-fco_R2{{rejected,rejected}}
        step.started{{2}} item+msg_R3{{demo}} text.added text.delta text.done item-msg_R3 step.done{{2,stop}} completed"
    ));
    assert_eq!(log.text_deltas("3"), ["The order was not placed: too risky"]);
}

#[tokio::test]
async fn reference_numbers_continue_with_the_next_trade_of_a_thread() {
    let hw = Server::demo();
    let first = hw.start_run("weather").await;
    hw.wait_ended(first["task_id"].as_str().unwrap()).await;
    let body = json!({"model": "demo", "input": "trade", "thread_id": first["thread_id"]});
    let mut run = WatchedRun::start_with_body(&hw, body).await;
    run.decide(json!({"decision": "approve"})).await;
    assert_eq!(run.wait_ended().await.text_deltas("3"), ["Done: bought VNM.[^2]"]);
}

/// A hand-off is announced once, as a hand-off, and never also as a tool call.
#[tokio::test]
async fn handoff_continues_with_the_specialist() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "handoff").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+fc_R1{transfer_to_specialist,handoff,never,demo} arguments.delta arguments.done item-fc_R1
        step.done{1,tool_calls} tool.started{call_R1} item+fco_R1{demo} text.done item-fco_R1{completed}
        agent.updated{specialist,demo}
        step.started{2} item+msg_R2{specialist} text.added text.delta text.delta text.done item-msg_R2
        step.done{2,stop} completed",
    );
    assert_eq!(log.events_of_type("task.text.done")[0]["item"]["text"], r#"{"assistant":"specialist"}"#);
    assert_eq!(log.events_of_type("task.step.done")[1]["model"], "scripted/specialist");
}

#[tokio::test]
async fn image_is_a_hosted_call_with_three_partial_images() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "image").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+hc_R1{image_generation,demo} hosted_call.updated{in_progress} hosted_call.updated{generating}
        image.added image.delta{0} image.delta{1} image.delta{2} image.done item-hc_R1
        item+msg_R2{demo} text.added text.delta text.delta text.done item-msg_R2
        step.done{1,stop} completed",
    );
}

#[tokio::test]
async fn a_story_has_the_exact_number_of_deltas_at_its_pace() {
    let hw = Server::demo();
    for (input, deltas) in [("story 7", 7), ("a story 300 fast", 300), ("story 0", 0)] {
        let log = WatchedRun::start(&hw, input).await.wait_ended().await;
        let said = log.events_of_type("task.text.delta");
        assert_eq!(said.len(), deltas, "{input}");
        // Deltas sent 20 ms apart arrive 20 ms apart, within the clock's resolution.
        let gap = said
            .last()
            .zip(said.first())
            .map_or(0, |(last, first)| last["at"].as_u64().unwrap() - first["at"].as_u64().unwrap());
        assert!(input != "story 7" || gap >= 6 * 20 - 5, "{gap} ms");
        assert_eq!(log.frames.last().unwrap().event, "task.completed");
    }
}

#[tokio::test]
async fn client_calls_the_declared_tool_and_waits_for_it() {
    let hw = Server::demo();
    let tools = json!([{"name": "pick", "description": "Picks a colour.", "parameters": {"type": "object"}}, {"name": "other"}]);
    let mut run = WatchedRun::start_with_body(&hw, json!({"model": "demo", "input": "client", "tools": tools})).await;
    let call = run.wait_paused().await["call_id"].clone();
    let path = format!("/v1/tasks/{}/tool_results", run.id);
    let reply = hw.post(&path, json!([{"call_id": call, "content": "red"}])).await;
    assert!((200..300).contains(&reply.status), "{}: {}", reply.status, reply.text);
    let log = run.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+fc_R1{pick,client,never,demo} arguments.delta arguments.done item-fc_R1
        step.done{1,tool_calls} paused{client_tool,call_R1}
        resumed{user} item+fco_R1{demo} text.done item-fco_R1{completed}
        step.started{2} item+msg_R2{demo} text.added text.delta text.done item-msg_R2
        step.done{2,stop} completed",
    );
    assert_eq!(log.text_deltas("2"), ["Your tool pick says: red"]);
}

#[tokio::test]
async fn client_reports_missing_declarations() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "client").await.wait_ended().await;
    assert_eq!(log.text_deltas("1"), ["You declared no tool that I could call."]);
}

#[tokio::test]
async fn fail_fails_in_mid_text() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "fail").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+msg_R1{demo} text.added text.delta text.delta text.done item-msg_R1{incomplete,failed}
        step.done{1,error} failed{provider_error,true}",
    );
}

#[tokio::test]
async fn slow_reports_progress() {
    let hw = Server::demo();
    let log = WatchedRun::start(&hw, "slow 1").await.wait_ended().await;
    log.assert_trace(
        "created{demo} started step.started{1}
        item+fc_R1{slow,tool,never,demo} arguments.delta arguments.done item-fc_R1
        step.done{1,tool_calls} tool.started{call_R1}
        tool.progress{call_R1,1.0,5.0} tool.progress{call_R1,2.0,5.0} tool.progress{call_R1,3.0,5.0}
        tool.progress{call_R1,4.0,5.0} tool.progress{call_R1,5.0,5.0}
        item+fco_R1{demo} text.done{1} item-fco_R1{completed}
        step.started{2} item+msg_R2{demo} text.added text.delta text.done item-msg_R2
        step.done{2,stop} completed",
    );
    assert_eq!(log.text_deltas("2"), ["The slow tool is done after 1 s."]);
}

#[tokio::test]
async fn another_scenario_file_works_and_an_approval_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("play.toml");
    let scenarios = r#"
        [[scenario]]
        model = "broker"
        [[scenario.turn]]
        steps = [{ call = "order", arguments = '{"n":1}' }]
        [[scenario.turn]]
        when = { status = "rejected" }
        steps = [{ text = "Nobody came: {result}." }]
        [[scenario.turn]]
        steps = [{ text = "Bought." }]"#;
    std::fs::write(&file, scenarios).unwrap();
    let hw = Server::demo_with(&format!(
        r#"
        [agents.broker]
        model = "mine/broker"
        tools = ["order"]
        [tools.order]
        kind = "command"
        command = ["echo", "never"]
        approval = "always"
        approval_timeout_seconds = 1
        parameters = {{ type = "object", properties = {{ n = {{ type = "integer" }} }} }}
        [providers.mine]
        kind = "scripted"
        file = {file:?}"#
    ));
    let log = WatchedRun::start_with_body(&hw, json!({"model": "broker", "input": "go"})).await.wait_ended().await;
    log.assert_trace(
        "created{broker} started step.started{1}
        item+fc_R1{order,tool,always,broker} arguments.delta arguments.done item-fc_R1
        step.done{1,tool_calls} approval.requested{apr_R1,call_R1,1} paused{approval,apr_R1,call_R1}
        resumed{timeout} approval.resolved{apr_R1,reject,timeout}
        item+fco_R1{broker} text.done item-fco_R1{rejected,approval_timeout}
        step.started{2} item+msg_R2{broker} text.added text.delta text.done item-msg_R2
        step.done{2,stop} completed",
    );
    assert_eq!(log.text_deltas("2"), ["Nobody came: No decision within 1 s."]);
}
