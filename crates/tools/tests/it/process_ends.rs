//! Programs that hang, fork, flood or ignore signals: their output is bounded and no process remains.

use crate::test_toolbox::{
    OUTPUT_BYTES_MAX, ended, failed, peak_kib, pids, reaped, request, said, sh, shell, start, state,
};
use crate::test_toolbox::{telling, until, within};
use futures_util::StreamExt;
use model::definition::ToolExecutor;
use model::tool::ToolEvent;
use std::time::Instant;

/// A leader with a child and a grandchild, all of which hold stdout; prints their pids.
fn family(then: &str) -> String {
    let child = "sleep 60 & echo $! > \"$T/grandchild\"; wait";
    let wait = "until [ -s \"$T/grandchild\" ]; do sleep 0.01; done";
    let tell = telling("$$,$!,$(cat \"$T/grandchild\")");
    format!("sh -c '{child}' & {wait}; {tell}; {then}")
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A script with this folder as `$T`.
    fn script(&self, script: &str) -> model::tool::ToolRequest {
        let mut tool = shell(script);
        tool.env.insert("T".to_owned(), self.0.path().to_str().unwrap().to_owned());
        request(ToolExecutor::Command(tool), "{}")
    }

    fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }
}

#[tokio::test]
async fn nothing_runs_before_the_stream_is_polled() {
    let home = Home::new();
    let events = start(home.script("touch \"$T/ran\""));
    drop(events);
    let mut second = start(home.script("ls \"$T\""));
    let Some(ToolEvent::End(output)) = second.next().await else { panic!() };
    assert_eq!(output.message_content, [model::content::ContentPart::text("(no output)")]);
    assert!(!home.has("ran"));
}

#[tokio::test]
async fn dropping_the_stream_kills_the_process_group() {
    let home = Home::new();
    let mut events = start(home.script(&family("wait")));
    let pids = pids(&mut events).await;
    assert_eq!(pids.len(), 3);
    for pid in &pids {
        assert!(state(*pid).is_some_and(|state| state != 'Z'), "{pid} did not run");
    }
    drop(events);
    reaped(pids[0]).await;
    ended(pids[1]).await;
    ended(pids[2]).await;
}

#[tokio::test]
async fn a_program_gets_sigterm_before_sigkill() {
    let home = Home::new();
    let script = format!("trap 'echo bye > \"$T/bye\"; exit' TERM; {}; while :; do sleep 0.02; done", telling("$$"));
    let mut events = start(home.script(&script));
    let pids = pids(&mut events).await;
    drop(events);
    until("it said goodbye", || home.has("bye")).await;
    reaped(pids[0]).await;
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let mut events = start(sh(&format!("trap '' TERM; {}; while :; do sleep 0.02; done", telling("$$"))));
    let pids = pids(&mut events).await;
    let begun = Instant::now();
    drop(events);
    reaped(pids[0]).await;
    assert!(begun.elapsed().as_millis() >= 900, "it had no time: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_deadline_kills_the_process_group() {
    let home = Home::new();
    let mut events = start(within(800, home.script(&family("trap '' TERM; while :; do sleep 0.02; done"))));
    let pids = pids(&mut events).await;
    let Some(ToolEvent::End(output)) = events.next().await else { panic!() };
    let error = output.error.unwrap();
    assert_eq!((error.code.as_str(), events.next().await), ("tool_timeout", None));
    assert_eq!(error.message, "The tool did not finish within 800 ms and was stopped.");
    reaped(pids[0]).await;
    ended(pids[1]).await;
    ended(pids[2]).await;
}

#[tokio::test]
async fn a_program_after_its_deadline_is_not_started() {
    let home = Home::new();
    assert_eq!(failed(within(0, home.script("touch \"$T/ran\""))).await.0, "tool_timeout");
    assert!(!home.has("ran"));
}

#[tokio::test]
async fn background_processes_end_with_their_program() {
    for output in ["", ">/dev/null 2>&1"] {
        let script = format!("sleep 60 {output} & {}; echo done", telling("$$,$!"));
        let mut events = start(sh(&script));
        let pids = pids(&mut events).await;
        let Some(ToolEvent::End(output)) = events.next().await else { panic!() };
        assert_eq!(output.message_content, [model::content::ContentPart::text("done")]);
        assert_eq!(state(pids[0]), None, "the leader was reaped before its result was told");
        ended(pids[1]).await;
    }
}

#[tokio::test]
async fn a_deadline_kills_processes_whose_leader_has_exited() {
    let mut events = start(within(500, sh(&format!("sleep 60 & {}", telling("$$,$!")))));
    let pids = pids(&mut events).await;
    let Some(ToolEvent::End(output)) = events.next().await else { panic!() };
    assert_eq!(output.error.unwrap().code, "tool_timeout");
    reaped(pids[0]).await;
    ended(pids[1]).await;
}

#[tokio::test]
async fn a_process_that_left_the_group_cannot_delay_the_result() {
    // It ends by itself: nothing else can reach it.
    let begun = Instant::now();
    assert_eq!(said(sh("setsid sleep 6 & echo done")).await, "done");
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn unlimited_output_is_stopped_within_bounded_memory() {
    let floods = [
        "exec yes",
        "exec head -c 1000000000 /dev/zero",
        "head -c 100000000 /dev/zero | tr '\\000' x",
        "trap '' TERM PIPE; exec python3 -c 'import os\nwhile True: os.write(1, b\"x\" * 100000)'",
        r#"exec yes '{"type":"progress","message":"on and on"}'"#,
    ];
    let before = peak_kib();
    for flood in floods {
        let mut events = start(sh(&format!("{}; {flood}", telling("$$"))));
        let pids = pids(&mut events).await;
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        let Some(ToolEvent::End(output)) = last else { panic!("{last:?}") };
        let error = output.error.unwrap();
        assert_eq!(error.code, "output_too_large", "{flood}");
        assert!(error.message.contains(&OUTPUT_BYTES_MAX.to_string()), "{}", error.message);
        reaped(pids[0]).await;
    }
    assert!(peak_kib() - before < 32 * 1024, "{} KiB more", peak_kib() - before);
}

#[tokio::test]
async fn unlimited_stderr_is_drained_within_bounded_memory() {
    let before = peak_kib();
    assert_eq!(said(sh("head -c 100000000 /dev/zero >&2; echo ok")).await, "ok");
    assert!(peak_kib() - before < 32 * 1024, "{} KiB more", peak_kib() - before);
}

#[test]
fn dropping_the_runtime_kills_its_programs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pid = runtime.block_on(async {
        let mut events = start(sh(&format!("trap '' TERM; {}; while :; do sleep 0.02; done", telling("$$"))));
        let pids = pids(&mut events).await;
        tokio::spawn(async move { events.next().await });
        pids[0]
    });
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(ended(pid));
}
