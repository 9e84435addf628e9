//! `kill -9` at random points of runs with two agents, HTTP tools, programs and an approval. Every run ends once,
//! complete items stay unchanged, and nothing runs twice unannounced.

use crate::harness::{Server, SseFrame};
use crate::kill::stop_and_verify;
use crate::tool_server::ToolServer;
use crate::viewers::follow_until_cut;
use futures_util::future::join_all;
use model_testing::{Rng, test_seeds};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KILLS: usize = 25;
/// The text about a lost call that must not run again. Tools that may run again do not have this word in their names.
const ON_CRASH: [&str; 3] = ["unknown", "fail", "ask"];
/// How often the approver polls.
const LOOK: Duration = Duration::from_millis(10);
const LOOKED: &str = "I looked: it went through.";

const AGENTS: &str = r#"
[agents.shop]
model = "mine/shop"
tools = ["stock", "reserve_unknown", "reserve_fail", "reserve_ask", "clerk"]

[agents.clerk]
model = "mine/clerk"
description = "Pays."
tools = ["note", "pay_unknown", "pay_fail", "pay_ask"]

[providers.mine]
kind = "scripted"
file = "scenarios.toml"
"#;

const SCENARIOS: &str = r#"
[[scenario]]
model = "clerk"
match = '\bpay (?<on_crash>\w+)'
[[scenario.turn]]
steps = [
  { text = ["I ", "note ", "it ", "and ", "pay."], every_ms = 10 },
  { call = "note" },
  { call = "pay_{on_crash}", arguments = '{"amount":500}' },
]
[[scenario.turn]]
steps = [{ text = ["The ", "clerk ", "reads: ", "{result}"], every_ms = 10 }]

[[scenario]]
model = "shop"
match = '\bbuy (?<on_crash>\w+)'
[[scenario.turn]]
steps = [
  { reasoning = ["Is it ", "there?"], every_ms = 10 },
  { text = ["I ", "look ", "and ", "reserve."], every_ms = 10 },
  { call = "stock" },
  { call = "reserve_{on_crash}" },
]
[[scenario.turn]]
steps = [{ text = ["Now ", "the ", "clerk."], every_ms = 10 }, { call = "clerk", arguments = '{"prompt":"pay {on_crash}"}' }]
[[scenario.turn]]
steps = [{ text = ["The ", "shop ", "reads: ", "{result}"], every_ms = 10 }]
"#;

/// Two tools that may run again, and two of each kind that may not. A program records its execution in the file `ran`.
fn config(site: &ToolServer) -> String {
    let url = site.url("/work");
    let address = |name: &str, rule: &str| {
        format!("[tools.{name}]\nkind = \"http\"\nmethod = \"POST\"\nurl = \"{url}\"\n{rule}\n")
    };
    let program = |name: &str, rule: &str| {
        let script = "cat > /dev/null; echo $HEADWATER_CALL_ID >> ran; sleep 0.06; echo done";
        format!(
            "[tools.{name}]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\nenv_pass = [\"PATH\"]\n{rule}\n"
        )
    };
    let mut config = AGENTS.to_owned() + &address("stock", "idempotent = true") + &program("note", "idempotent = true");
    for on_crash in ON_CRASH {
        let rule = format!("on_crash = \"{on_crash}\"");
        let gated = format!(
            "{rule}\napproval = \"amount > 100\"\nparameters = {{ type = \"object\", properties.amount.type = \"integer\" }}"
        );
        config += &address(&format!("reserve_{on_crash}"), &rule);
        config += &program(&format!("pay_{on_crash}"), &gated);
    }
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_nine_at_random_points_of_tools_agents_and_approvals_repeats_nothing() {
    let seed = test_seeds().next().unwrap_or_default();
    eprintln!("SEED={seed}");
    let mut rng = Rng::new(seed);
    let site = ToolServer::start().await;
    let mut hw = Server::with_config(&config(&site), SCENARIOS);
    let mut person = Approver { rng: Rng::new(seed ^ 1), agreed: HashSet::new() };
    let mut told = Vec::new();

    // Without a kill, to know how long the runs take.
    let begun = Instant::now();
    let runs = start_viewed_runs(&hw).await;
    let logs = wait_for_logs(&hw, &runs, &mut person).await;
    let whole = begun.elapsed();
    for (run, log) in runs.iter().zip(&logs) {
        told.extend(check_run(&hw, run, log, "undisturbed").await);
    }
    assert!(told.iter().all(|call| !call.lost), "nobody was killed");

    for kill in 0..KILLS {
        let runs = start_viewed_runs(&hw).await;
        let moment = whole * rng.between(0, 1000) / 1000;
        let _killed = tokio::time::timeout(moment, person.answer_approvals(&hw)).await;
        hw.kill9();
        hw.restart();
        let logs = wait_for_logs(&hw, &runs, &mut person).await;
        for (run, log) in runs.iter().zip(&logs) {
            told.extend(check_run(&hw, run, log, &format!("SEED={seed} kill {kill} at {moment:?} of {whole:?}")).await);
        }
    }
    stop_and_verify(&mut hw);
    nothing_ran_twice(&told, &count_executions(&hw, &site), seed);
    let lost = |kind: &str| told.iter().filter(|call| call.lost && call.on_crash() == kind).count();
    let lost = ["again", "unknown", "fail", "ask"].map(|kind| (kind, lost(kind)));
    eprintln!("{KILLS} kills over {whole:?}, {} calls, of which were lost: {lost:?}", told.len());
    assert!(lost.iter().all(|(_, count)| *count > 0), "this test no longer tests anything: {lost:?}");
}

/// A run with its viewer.
struct ViewedRun {
    task: String,
    seen: Arc<Mutex<Vec<String>>>,
}

/// Starts one run for each rule.
async fn start_viewed_runs(hw: &Server) -> Vec<ViewedRun> {
    let mut runs = Vec::new();
    for on_crash in ON_CRASH {
        let task = hw.create_task(json!({"model": "shop", "input": format!("buy {on_crash}")})).await;
        let (task, seen) = (task["task_id"].as_str().unwrap().to_owned(), Arc::default());
        tokio::spawn(follow_until_cut(hw.url(""), task.clone(), Arc::clone(&seen)));
        runs.push(ViewedRun { task, seen });
    }
    runs
}

/// Waits for the runs to end, and returns their logs.
async fn wait_for_logs(hw: &Server, runs: &[ViewedRun], person: &mut Approver) -> Vec<Vec<SseFrame>> {
    let paths: Vec<String> = runs.iter().map(|run| format!("/v1/tasks/{}/events", run.task)).collect();
    let logs = join_all(paths.iter().map(|path| hw.frames(path, None)));
    tokio::select! {
        logs = logs => logs,
        never = person.answer_approvals(hw) => match never {},
    }
}

/// Answers approvals: approves, but reruns of lost calls only sometimes.
struct Approver {
    rng: Rng,
    agreed: HashSet<String>,
}

impl Approver {
    async fn answer_approvals(&mut self, hw: &Server) -> Infallible {
        loop {
            let open = hw.get("/v1/approvals?status=pending").await.json();
            for asked in open["data"].as_array().unwrap() {
                self.decide(hw, asked).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn decide(&mut self, hw: &Server, asked: &Value) {
        let text = |name: &str| asked[name].as_str().unwrap();
        let lost = text("name").starts_with("reserve") || self.agreed.contains(text("key"));
        let decision = if lost && self.rng.chance(50) {
            json!({"decision": "reject", "message": LOOKED})
        } else {
            json!({"decision": "approve"})
        };
        let reply = hw.post(&format!("/v1/tasks/{}/approvals/{}", text("run_id"), text("key")), decision).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        self.agreed.insert(text("key").to_owned());
    }
}

/// Checks an ended run. Returns what its log says about its calls.
async fn check_run(hw: &Server, run: &ViewedRun, log: &[SseFrame], context: &str) -> Vec<CallHistory> {
    let context = format!("{context}, {}", run.task);
    let seqs = log.iter().map(|frame| frame.data["seq"].as_u64().unwrap());
    assert!(seqs.eq(1..=log.len() as u64), "{context}: there is a gap");
    let ended = |task: &Value| log.iter().filter(|frame| is_end(frame) && frame.data["task_id"] == *task).count();
    for created in log.iter().filter(|frame| frame.event == "task.created") {
        assert_eq!(ended(&created.data["task_id"]), 1, "{context}: ends of {}", created.data["task_id"]);
    }
    let last = log.last().expect("a log");
    assert_eq!((last.event.as_str(), &last.data["task_id"]), ("task.completed", &json!(run.task)), "{context}");

    let cut: HashSet<&Value> = log.iter().filter_map(|frame| frame.data["cut"].as_array()).flatten().collect();
    let whole = |item: &Value| !cut.contains(&item["id"]);
    what_was_seen_is_there(hw, run, (log, &context), whole).await;
    let calls = done(log).filter(|frame| frame.data["item"]["kind"] == "tool" && whole(&frame.data["item"]));
    calls.map(|frame| CallHistory::from_log(log, frame, &context)).collect()
}

fn is_end(frame: &SseFrame) -> bool {
    ["task.completed", "task.failed", "task.cancelled", "task.incomplete"].contains(&frame.event.as_str())
}

/// Items that are done.
fn done(log: &[SseFrame]) -> impl Iterator<Item = &SseFrame> {
    log.iter().filter(|frame| frame.event == "task.output_item.done")
}

/// What the viewer saw before the kill is in the log, and every item that it saw complete is in the object, byte for
/// byte.
async fn what_was_seen_is_there(
    hw: &Server,
    run: &ViewedRun,
    (log, context): (&[SseFrame], &str),
    whole: impl Fn(&Value) -> bool,
) {
    let seen = run.seen.lock().unwrap().clone();
    let kept = log.iter().map(|frame| &frame.raw).take(seen.len());
    assert!(seen.iter().eq(kept), "{context}: what was seen is not in the log");
    let object = hw.get(&format!("/v1/tasks/{}", run.task)).await.text;
    for frame in done(&log[..seen.len()]).filter(|frame| whole(&frame.data["item"])) {
        let (_, item) = frame.raw.split_once("\"item\":").unwrap();
        let (item, _) = item.rsplit_once(",\"seq\":").unwrap();
        // A sub-agent's result is represented by its own items.
        let of_agent = frame.data["item"]["type"] == "tool_result" && frame.data["item"]["block_list"].is_null();
        assert!(of_agent || object.contains(item), "{context}: {item} was seen whole and is not in {object}");
    }
}

/// What a log says about one call.
struct CallHistory {
    call: String,
    name: String,
    /// How often it was started.
    starts: usize,
    /// The process was killed while it ran.
    lost: bool,
    /// The decision about the lost call.
    decision: Option<String>,
    result: Value,
    context: String,
}

impl CallHistory {
    fn from_log(log: &[SseFrame], called: &SseFrame, context: &str) -> Self {
        let item = &called.data["item"];
        let call = item["call_id"].as_str().unwrap();
        let places = |event: &str, name: &str, value: &Value| -> Vec<usize> {
            let told = |(_, frame): &(usize, &SseFrame)| frame.event == event && frame.data[name] == *value;
            log.iter().enumerate().filter(told).map(|(place, _)| place).collect()
        };
        let starts = places("task.tool.started", "call_id", &item["call_id"]);
        let is_result = |frame: &SseFrame| {
            let item = &frame.data["item"];
            frame.event == "task.output_item.done" && item["type"] == "tool_result" && item["call_id"] == call
        };
        let end = log.iter().position(is_result).unwrap_or_else(|| panic!("{context}: {call} has no result"));
        let recovered = places("task.recovered", "task_id", &called.data["task_id"]);
        let died = recovered.into_iter().find(|place| starts.iter().any(|start| start < place) && *place < end);
        // An approval before the call ran is not about its lost result.
        let key = json!(call.replace("call_", "apr_"));
        let resolved = places("task.approval.resolved", "key", &key).into_iter().rfind(|place| Some(*place) > died);
        let decision =
            died.and(resolved).map(|place| log[place].data["decisions"][0]["type"].as_str().unwrap().to_owned());
        Self {
            call: call.to_owned(),
            name: item["name"].as_str().unwrap().to_owned(),
            starts: starts.len(),
            lost: died.is_some(),
            decision,
            result: log[end].data["item"].clone(),
            context: context.to_owned(),
        }
    }

    /// What to do with the call when it was lost.
    fn on_crash(&self) -> &str {
        self.name.split_once('_').map_or("again", |(_, on_crash)| on_crash)
    }

    /// How often it must have started, and its required outcome.
    fn expected_outcome(&self) -> (usize, &'static str) {
        match (self.lost, self.on_crash(), self.decision.as_deref()) {
            (false, ..) => (1, "completed"),
            (true, "again", None) | (true, "ask", Some("approve")) => (2, "completed"),
            (true, "unknown", None) | (true, "ask", Some("reject")) => (1, "unknown"),
            (true, "fail", None) => (1, "failed"),
            (true, on_crash, decision) => panic!("{}: {on_crash}, and {decision:?} was said", self.context),
        }
    }
}

/// How often each call ran, according to the tool server and the file.
fn count_executions(hw: &Server, site: &ToolServer) -> BTreeMap<String, usize> {
    let mut ran = site.counts().by_idempotency_key.clone();
    for call in std::fs::read_to_string(hw.path("ran")).unwrap().lines() {
        *ran.entry(call.to_owned()).or_default() += 1;
    }
    ran
}

fn nothing_ran_twice(told: &[CallHistory], ran: &BTreeMap<String, usize>, seed: u64) {
    for call in told {
        let context = format!("{}: {} {}", call.context, call.name, call.result);
        let (starts, status) = call.expected_outcome();
        assert_eq!((call.starts, &call.result["status"]), (starts, &json!(status)), "{context}");
        let code = if status == "completed" { Value::Null } else { json!("outcome_unknown") };
        assert_eq!(call.result["error"]["code"], code, "{context}");
        if call.decision.as_deref() == Some("reject") {
            assert_eq!(call.result["block_list"][0]["text"], LOOKED, "{context}");
        }
        // An answered call has run; a lost one may have been lost before it started.
        let least = usize::from(status == "completed");
        let times = ran.get(&call.call).copied().unwrap_or_default();
        assert!((least..=starts).contains(&times), "{context} was started {starts} times and ran {times} times");
    }
    let known: HashSet<&str> = told.iter().map(|call| call.call.as_str()).collect();
    let strange: Vec<&String> = ran.keys().filter(|call| !known.contains(call.as_str())).collect();
    assert!(strange.is_empty(), "SEED={seed}: {strange:?} ran, and no log tells of it");
}
