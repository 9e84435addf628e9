//! The input of a program, and how its output is parsed.

use crate::test_toolbox::{SECRET, call, failed, request, said, sh, shell, start, toolbox_with_path};
use futures_util::{StreamExt, future};
use model::definition::{CommandTool, ToolExecutor};
use model::ports::ToolRunner;
use model::tool::{StateChange, ToolEvent};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_program_gets_its_arguments_on_stdin() {
    let cat = CommandTool { command: vec!["cat".to_owned()], ..CommandTool::default() };
    assert_eq!(said(request(ToolExecutor::Command(cat), r#"{"a":"b c"}"#)).await, r#"{"a":"b c"}"#);
    assert_eq!(said(sh("wc -l")).await.trim(), "1");
}

#[tokio::test]
async fn the_command_is_not_run_by_a_shell() {
    let command = ["echo", "$HOME;`id`", "*", ""].map(str::to_owned).to_vec();
    let echo = CommandTool { command, ..CommandTool::default() };
    assert_eq!(said(request(ToolExecutor::Command(echo), "{}")).await, "$HOME;`id` * ");
}

#[tokio::test]
async fn the_environment_has_the_definitions_variables_and_the_calls_ids() {
    let mut tool = shell("env; echo \"LENGTH=${#KEY}\"");
    tool.command[0] = "/bin/sh".to_owned();
    tool.env_pass = vec!["GREETING".to_owned(), "NOT_SET".to_owned()];
    tool.env.insert("KEY".to_owned(), "Bearer {env:TOKEN}".to_owned());
    tool.env.insert("HEADWATER_USER".to_owned(), "root".to_owned());
    let said = said(request(ToolExecutor::Command(tool), "{}")).await;
    // What the shell adds by itself is not of interest.
    let mut lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("PWD=")).collect();
    lines.sort_unstable();
    let length = format!("LENGTH={}", "Bearer ".len() + SECRET.len());
    let wanted = [
        "GREETING=hello",
        "HEADWATER_CALL_ID=call_R2",
        "HEADWATER_IDEMPOTENCY_KEY=call_R2",
        "HEADWATER_RUN=task_R",
        "HEADWATER_THREAD=thr_1",
        "HEADWATER_USER=local",
        "KEY=Bearer [env:TOKEN]",
        &length,
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn a_program_runs_in_its_configured_directory() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().canonicalize().unwrap();
    let dir = dir.to_str().unwrap();
    let tool = CommandTool { dir: Some(dir.to_owned()), ..shell("pwd -P") };
    assert_eq!(said(request(ToolExecutor::Command(tool), "{}")).await, dir);
}

#[tokio::test]
async fn events_are_streamed_and_the_rest_is_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = r#"echo '{"type":"state","snapshot":{"a":1}}'; until [ -e "$1" ]; do sleep 0.01; done
        echo '{"type":"state","delta":[]}'; echo '{"summary":"short","message_content":"long"}'"#;
    let mut tool = shell(script);
    tool.command.extend(["sh".to_owned(), go.to_str().unwrap().to_owned()]);
    let mut events = start(request(ToolExecutor::Command(tool), "{}"));
    assert_eq!(events.next().await, Some(ToolEvent::State(StateChange::Snapshot(json!({"a": 1})))));
    std::fs::write(&go, "").unwrap();
    assert_eq!(events.next().await, Some(ToolEvent::State(StateChange::Delta(vec![]))));
    let Some(ToolEvent::End(output)) = events.next().await else { panic!() };
    assert_eq!(output.summary.as_deref(), Some("short"));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn an_empty_result_is_described_in_text() {
    assert_eq!(said(sh("true")).await, "(no output)");
    assert_eq!(said(sh("echo complaint >&2")).await, "(no output)");
    assert_eq!(said(sh("printf '\\377x'")).await, "\u{fffd}x");
}

#[tokio::test]
async fn a_failed_program_has_the_end_of_its_stderr() {
    let (_, output) = call(sh("echo result; echo why >&2; exit 3")).await;
    let error = output.error.unwrap();
    assert_eq!(error.code, "command_failed");
    assert_eq!(error.message, "the program exited with status 3: why");
    assert_eq!(error.details, Some(json!({"status": 3})));

    let (_, output) = call(sh("kill -9 $$")).await;
    let error = output.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("command_failed", "the program was terminated by signal 9")
    );
    assert_eq!(error.details, Some(json!({"signal": 9})));
}

#[tokio::test]
async fn a_long_stderr_is_truncated_to_its_end() {
    let (_, message) = failed(sh("seq 1 100000 >&2; exit 1")).await;
    let complaint = message.strip_prefix("the program exited with status 1: ").unwrap();
    assert!((1_500..=2_048).contains(&complaint.len()), "{}", complaint.len());
    assert!(complaint.ends_with("99998\n99999\n100000"), "{complaint}");
}

#[tokio::test]
async fn a_missing_program_is_named_without_its_path() {
    for name in ["no-such-program", "./no-such-program", "/nowhere/at/all"] {
        let tool = CommandTool { command: vec![name.to_owned()], ..CommandTool::default() };
        let (code, message) = failed(request(ToolExecutor::Command(tool), "{}")).await;
        assert_eq!(code, "command_failed");
        let shown = name.rsplit('/').next().unwrap();
        assert!(message.starts_with(&format!("cannot start `{shown}`: ")), "{message}");
        assert!(!message.contains('/'), "no path of the server: {message}");
    }
    let tool = CommandTool { dir: Some("/nowhere".to_owned()), ..shell("true") };
    assert_eq!(failed(request(ToolExecutor::Command(tool), "{}")).await.0, "command_failed");
    assert_eq!(failed(request(ToolExecutor::Command(CommandTool::default()), "{}")).await.0, "invalid_tool");
}

#[tokio::test]
async fn a_program_is_found_in_the_servers_path_which_it_does_not_inherit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let here = CommandTool { command: vec!["only-here".to_owned()], ..CommandTool::default() };
    let here = request(ToolExecutor::Command(here), "{}");
    std::fs::write(folder.path().join("only-here"), "#!/bin/sh\nenv | grep -c ^HEADWATER_").unwrap();

    // A file that is not executable is no program.
    let events: Vec<ToolEvent> = toolbox_with_path(format!("relative:{path}")).call_tool(here.clone()).collect().await;
    assert!(matches!(events.as_slice(), [ToolEvent::End(output)] if output.error.is_some()), "{events:?}");

    std::fs::set_permissions(folder.path().join("only-here"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let events: Vec<ToolEvent> = toolbox_with_path(format!("relative:{path}")).call_tool(here).collect().await;
    let [ToolEvent::End(output)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(output.message_content, [model::content::ContentPart::text("5")]);
}

#[tokio::test]
async fn unread_stdin_is_harmless() {
    let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(1_000_000));
    for script in ["echo ok", "exec 0<&-; sleep 0.05; echo ok", "head -c 10 >/dev/null; echo ok"] {
        assert_eq!(said(request(ToolExecutor::Command(shell(script)), &arguments)).await, "ok", "{script}");
    }
    let (_, output) = call(request(ToolExecutor::Command(shell("cat | wc -c")), &arguments)).await;
    assert_eq!(output.message_content, [model::content::ContentPart::text((arguments.len() + 1).to_string())]);
}

#[tokio::test]
async fn many_programs_that_end_together_are_all_reaped() {
    let all = (0..40).map(|n| async move { said(sh(&format!("echo {n}"))).await });
    let said = future::join_all(all).await;
    let wanted: Vec<String> = (0..40).map(|n: u32| n.to_string()).collect();
    assert_eq!(said, wanted);
}

#[tokio::test]
async fn a_tool_of_another_executor_is_refused() {
    for how in [
        ToolExecutor::Client,
        ToolExecutor::Agent { agent: "a".into(), others: Vec::new() },
        ToolExecutor::Handoff { agent: "a".into() },
    ] {
        assert_eq!(failed(request(how, "{}")).await.0, "invalid_tool");
    }
}
