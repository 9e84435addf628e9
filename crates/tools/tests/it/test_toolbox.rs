//! The test vocabulary: a toolbox, calls, and the state of processes.

use futures_util::StreamExt;
use model::content::ContentPart;
use model::definition::{CommandTool, DeclaredParameters, HttpTool, ToolExecutor};
use model::ports::{BoxStream, Clock, ToolRunner};
use model::seq::Millis;
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tools::Toolbox;

/// The fixed time of the clock.
pub(crate) const NOW: Millis = 1_710_000_000_800;
pub(crate) const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// A secret that tests search for where it must not appear.
pub(crate) const SECRET: &str = "s3cr3t-v4lue";

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Millis {
        NOW
    }
}

pub(crate) fn toolbox() -> Toolbox {
    toolbox_with_path("/nowhere:/usr/local/bin:/usr/bin:/bin".to_owned())
}

pub(crate) fn toolbox_with_path(path: String) -> Toolbox {
    let env = move |name: &str| match name {
        "PATH" => Some(path.clone()),
        "TOKEN" => Some(SECRET.to_owned()),
        "BROKEN" => Some(format!("{SECRET}\n")),
        "GREETING" => Some("hello".to_owned()),
        _ => None,
    };
    Toolbox::new(Arc::new(env), Arc::new(Fixed)).unwrap()
}

/// A call with a deadline in a minute.
pub(crate) fn request(how: ToolExecutor, arguments: &str) -> ToolRequest {
    ToolRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        run: "task_R".into(),
        task: "call_R1".into(),
        call_id: "call_R2".into(),
        attempt: 1,
        name: "it".to_owned(),
        arguments: arguments.to_owned(),
        deadline: NOW + 60_000,
        executor: Arc::new(how),
        parameters: DeclaredParameters::from_schema(&serde_json::json!({"additionalProperties": true})),
        output_bytes_max: OUTPUT_BYTES_MAX,
        answers: None,
    }
}

/// The same with this much time left.
pub(crate) fn within(ms: Millis, request: ToolRequest) -> ToolRequest {
    ToolRequest { deadline: NOW + ms, ..request }
}

pub(crate) fn sh(script: &str) -> ToolRequest {
    request(ToolExecutor::Command(shell(script)), "{}")
}

pub(crate) fn shell(script: &str) -> CommandTool {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    CommandTool { command, env_pass: vec!["PATH".to_owned()], ..CommandTool::default() }
}

pub(crate) fn address(method: &str, url: String) -> HttpTool {
    HttpTool { method: method.to_owned(), url, ..HttpTool::default() }
}

pub(crate) fn start(request: ToolRequest) -> BoxStream<'static, ToolEvent> {
    toolbox().call_tool(request)
}

/// All events of a call.
pub(crate) async fn call(request: ToolRequest) -> (Vec<ToolEvent>, ToolOutput) {
    let all = start(request).collect::<Vec<ToolEvent>>();
    let mut events = tokio::time::timeout(PATIENCE, all).await.expect("it ends");
    let Some(ToolEvent::End(output)) = events.pop() else { panic!("no end: {events:?}") };
    assert!(!events.iter().any(|event| matches!(event, ToolEvent::End(_))), "{events:?}");
    (events, output)
}

/// The text of a successful text-only result.
pub(crate) async fn said(request: ToolRequest) -> String {
    let (_, output) = call(request).await;
    let [ContentPart::Text { text, .. }] = output.message_content.as_slice() else { panic!("{output:?}") };
    let words = ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() };
    assert_eq!(output, words);
    text.clone()
}

/// Code and message of a failed result. The model gets the message.
pub(crate) async fn failed(request: ToolRequest) -> (String, String) {
    let (_, output) = call(request).await;
    let error = output.error.clone().unwrap_or_else(|| panic!("it went well: {output:?}"));
    assert_eq!(output.message_content, [ContentPart::text(&error.message)]);
    (error.code, error.message)
}

/// A shell line that prints the pids.
pub(crate) fn telling(pids: &str) -> String {
    format!("echo \"{{\\\"type\\\":\\\"custom\\\",\\\"name\\\":\\\"pids\\\",\\\"value\\\":[{pids}]}}\"")
}

/// The pids in the next event.
pub(crate) async fn pids(events: &mut BoxStream<'static, ToolEvent>) -> Vec<u64> {
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event");
    let Some(ToolEvent::Custom { name, value: Value::Array(pids) }) = event else { panic!("{event:?}") };
    assert_eq!(name, "pids");
    pids.iter().map(|pid| pid.as_u64().unwrap()).collect()
}

/// The state of a process, as `ps` shows it; `None` when there is none.
pub(crate) fn state(pid: u64) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a child of ours was reaped.
pub(crate) async fn reaped(pid: u64) {
    until(&format!("{pid} is reaped"), || state(pid).is_none()).await;
}

/// Waits until a process ended, whether or not its parent has reaped it.
pub(crate) async fn ended(pid: u64) {
    until(&format!("{pid} has ended"), || matches!(state(pid), None | Some('Z' | 'X'))).await;
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The peak memory of this process, in KiB.
pub(crate) fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
