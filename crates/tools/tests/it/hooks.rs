//! Hooks that rewrite the input.

use crate::site::{Site, answer};
use crate::test_toolbox::{ended, toolbox, until};
use model::content::ContentPart;
use model::definition::InputHook;
use model::error::ErrorInfo;
use model::history::HistoryEntry;
use model::ports::{HookRequest, HookResponse, HookRunner};
use serde_json::json;

fn hook_request() -> HookRequest {
    HookRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        run: "task_R".into(),
        agent: "demo".to_owned(),
        history: vec![HistoryEntry::User { content: vec![ContentPart::text("before")] }],
        input: vec![ContentPart::text("now")],
    }
}

fn url(url: String) -> InputHook {
    InputHook { url: Some(url), command: Vec::new(), timeout_ms: 5_000 }
}

fn command(command: &[&str]) -> InputHook {
    InputHook { url: None, command: command.iter().map(|&word| word.to_owned()).collect(), timeout_ms: 20_000 }
}

async fn ask(hook: &InputHook) -> Result<HookResponse, ErrorInfo> {
    toolbox().run_hook(hook, hook_request()).await
}

async fn refused(hook: &InputHook) -> String {
    let error = ask(hook).await.unwrap_err();
    assert_eq!(error.code, "hook_failed");
    error.message
}

#[tokio::test]
async fn an_http_hook_gets_the_request_and_answers() {
    let body = json!({"input": [{"type": "text", "text": "rewritten"}]}).to_string();
    let site = Site::answering(answer("200 OK", "application/json", &body)).await;
    let wanted = HookResponse { history: None, input: Some(vec![ContentPart::text("rewritten")]) };
    assert_eq!(ask(&url(site.url("/hook"))).await, Ok(wanted));
    let seen = site.only();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/hook"));
    assert_eq!(serde_json::from_str::<HookRequest>(&seen.body).unwrap(), hook_request());
    let headers = ["content-type", "headwater-user", "headwater-thread", "headwater-run"].map(|name| seen.header(name));
    assert_eq!(headers, [Some("application/json"), Some("local"), Some("thr_1"), Some("task_R")]);
}

#[tokio::test]
async fn a_command_hook_gets_the_request_and_answers() {
    let script = concat!(
        "import json, os, sys\n",
        "asked = json.load(sys.stdin)\n",
        "asked['input'][0]['text'] += ' ' + asked['agent'] + ' ' + os.environ['HEADWATER_RUN']\n",
        "json.dump({'input': asked['input'], 'history': []}, sys.stdout)\n",
    );
    let wanted = HookResponse { history: Some(vec![]), input: Some(vec![ContentPart::text("now demo task_R")]) };
    assert_eq!(ask(&command(&["python3", "-c", script])).await, Ok(wanted));
    assert_eq!(ask(&command(&["echo", "{}"])).await, Ok(HookResponse::default()));
}

#[tokio::test]
async fn an_invalid_hook_answer_is_refused() {
    for body in ["", "words", "[]", r#"{"inputs":[]}"#, r#"{"input":"words"}"#] {
        let site = Site::answering(answer("200 OK", "application/json", body)).await;
        for message in [refused(&url(site.url("/"))).await, refused(&command(&["echo", body])).await] {
            assert!(message.starts_with("the input hook failed: its response is invalid: "), "{message}");
        }
    }
}

#[tokio::test]
async fn hook_failures_are_reported() {
    let site = Site::answering(answer("503 Service Unavailable", "text/plain", "closed")).await;
    assert_eq!(refused(&url(site.url("/"))).await, "the input hook failed: status 503 Service Unavailable: closed");
    let message = refused(&command(&["sh", "-c", "echo why >&2; exit 2"])).await;
    assert_eq!(message, "the input hook failed: the program exited with status 2: why");
    assert!(refused(&command(&["no-such-program"])).await.contains("cannot start `no-such-program`"));
    assert!(refused(&command(&[])).await.contains("the command is empty"));
    assert!(refused(&url("nowhere".to_owned())).await.contains("`nowhere` is not a URL"));
    assert!(refused(&command(&["yes"])).await.contains("exceeds 8388608 bytes"));
}

#[tokio::test]
async fn a_hanging_hook_times_out_and_its_program_is_killed() {
    let silent = Site::serving(|socket| async move {
        let _open = socket;
        std::future::pending::<()>().await;
    })
    .await;
    let hook = InputHook { timeout_ms: 200, ..url(silent.url("/")) };
    assert_eq!(refused(&hook).await, "the input hook failed: no response within 200 ms");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 60", file.display());
    let hook = InputHook { timeout_ms: 1_000, ..command(&["sh", "-c", &script]) };
    assert_eq!(refused(&hook).await, "the input hook failed: no response within 1000 ms");
    until("it ran", || std::fs::read_to_string(&file).is_ok_and(|pid| pid.ends_with('\n'))).await;
    let pid = std::fs::read_to_string(&file).unwrap();
    ended(pid.trim().parse().unwrap()).await;
}
