//! Calls that start while the process has no descriptor left. The limit is one of the process, so each test runs in a
//! process of its own.

use crate::site::{Site, answer};
use crate::test_toolbox::{address, request, sh, toolbox, within};
use futures_util::StreamExt;
use model::definition::ToolExecutor;
use model::ports::ToolRunner;
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;
use std::time::Duration;

/// Tells a test that it has its own process.
const OWN_PROCESS: &str = "HEADWATER_TEST_OWN_PROCESS";

/// Whether this process is the test's own. Else runs the test in one, and fails if it does.
fn is_own_process(test: &str) -> bool {
    if std::env::vars().any(|(name, _)| name == OWN_PROCESS) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args(["--exact", test, "--nocapture"]).env(OWN_PROCESS, "1").status();
    assert!(status.unwrap().success(), "{test} failed in its own process");
    false
}

/// Allows no descriptor beyond the open ones.
fn forbid_descriptors() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: limit.maximum }).unwrap();
    limit
}

/// The output of a call that starts without a descriptor, and gets one after a while.
async fn output_after_shortage(request: ToolRequest, shortage: Duration) -> ToolOutput {
    let toolbox = toolbox();
    let limit = forbid_descriptors();
    let events = toolbox.call_tool(request).collect::<Vec<ToolEvent>>();
    let relief = async {
        tokio::time::sleep(shortage).await;
        setrlimit(Resource::Nofile, limit).unwrap();
    };
    let (mut events, ()) = tokio::join!(events, relief);
    let Some(ToolEvent::End(output)) = events.pop() else { panic!("no end: {events:?}") };
    output
}

#[tokio::test]
async fn a_program_and_a_request_wait_for_a_descriptor() {
    if !is_own_process("shortage::a_program_and_a_request_wait_for_a_descriptor") {
        return;
    }
    let site = Site::answering(answer("200 OK", "text/plain", "fine")).await;
    let http = request(ToolExecutor::Http(address("post", site.url("/x"))), r#"{"a":1}"#);
    for (request, wanted) in [(sh("echo fine"), "fine"), (http, "fine")] {
        let output = output_after_shortage(request, Duration::from_millis(200)).await;
        assert!(output.error.is_none(), "{output:?}");
        assert!(format!("{:?}", output.message_content).contains(wanted), "{output:?}");
    }
    assert_eq!(site.only().body, r#"{"a":1}"#, "it was sent once");
}

#[tokio::test]
async fn the_wait_for_a_descriptor_ends_with_the_deadline() {
    if !is_own_process("shortage::the_wait_for_a_descriptor_ends_with_the_deadline") {
        return;
    }
    let output = output_after_shortage(within(100, sh("echo never")), Duration::from_millis(500)).await;
    let error = output.error.unwrap();
    assert_eq!(error.code, "tool_timeout", "{error:?}");
    assert!(!error.message.contains('/'), "no path of the server: {error:?}");
}
