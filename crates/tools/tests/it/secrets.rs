//! Secrets: inserted where they are referenced, and visible nowhere else.

use crate::site::{Site, answer};
use crate::test_toolbox::{SECRET, address, call, failed, request, said, shell, toolbox};
use model::definition::{HttpTool, ToolExecutor};
use model::tool::{ToolOutput, ToolRequest};
use serde_json::json;

fn with_header(site: &Site, value: &str) -> ToolRequest {
    let headers = [("Authorization".to_owned(), value.to_owned())].into();
    request(ToolExecutor::Http(HttpTool { headers, ..address("GET", site.url("/")) }), "{}")
}

fn with_env(script: &str, value: &str) -> ToolRequest {
    let mut tool = shell(script);
    tool.env.insert("KEY".to_owned(), value.to_owned());
    request(ToolExecutor::Command(tool), "{}")
}

fn assert_hidden(output: &ToolOutput) {
    let shown = format!("{output:?} {}", serde_json::to_string(output).unwrap());
    assert!(!shown.contains(SECRET) && !shown.contains("s3cr3t"), "{shown}");
}

#[tokio::test]
async fn a_header_may_be_or_contain_a_secret() {
    let site = Site::answering(answer("200 OK", "text/plain", "fine")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "from a file\n").unwrap();
    for value in ["env:TOKEN", "Bearer {env:TOKEN}", &format!("{{file:{}}}!", file.display())] {
        said(with_header(&site, value)).await;
    }
    let sent: Vec<String> = site.seen().iter().map(|seen| seen.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(sent, [SECRET.to_owned(), format!("Bearer {SECRET}"), "from a file!".to_owned()]);
}

#[tokio::test]
async fn a_file_is_read_at_every_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    for value in ["old", "new"] {
        std::fs::write(&file, value).unwrap();
        assert_eq!(said(with_env("echo $KEY", &format!("file:{}", file.display()))).await, value);
    }
}

#[tokio::test]
async fn a_missing_secret_is_named_and_no_request_is_sent() {
    let site = Site::answering(answer("200 OK", "text/plain", "fine")).await;
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let touch = format!("touch {}", ran.display());
    for (value, named) in [("{env:TOKEN} {env:NOPE}", "env:NOPE"), ("file:no/such/file", "file:no/such/file")] {
        for request in [with_header(&site, value), with_env(&touch, value)] {
            let (_, output) = call(request).await;
            assert_hidden(&output);
            let error = output.error.unwrap();
            assert_eq!(error.code, "missing_secret");
            assert!(error.message.contains(&format!("`{named}`")), "{}", error.message);
        }
    }
    assert!(site.seen().is_empty() && !ran.exists());
}

#[tokio::test]
async fn a_secret_echoed_in_an_error_response_is_not_quoted() {
    // The second one would be truncated in the middle of the secret.
    for padding in [0, 495] {
        let body = format!("{} token {SECRET} is wrong", "x".repeat(padding));
        let site = Site::answering(answer("401 Unauthorized", "text/plain", &body)).await;
        let (_, output) = call(with_header(&site, "Bearer {env:TOKEN}")).await;
        assert_hidden(&output);
        let message = output.error.unwrap().message;
        assert!(message.starts_with("status 401 Unauthorized: "), "{message}");
        assert!(padding > 0 || message.ends_with("token [env:TOKEN] is wrong"), "{message}");
    }
}

#[tokio::test]
async fn a_secret_echoed_on_stderr_is_not_quoted() {
    for padding in [0, 2_040] {
        let script = format!("printf \"$KEY %{padding}s\" end >&2; exit 1");
        let (_, output) = call(with_env(&script, "env:TOKEN")).await;
        assert_hidden(&output);
        let message = output.error.unwrap().message;
        assert!(message.ends_with("end"), "{message}");
        assert!(padding > 0 || message.contains("[env:TOKEN] end"), "{message}");
    }
}

#[tokio::test]
async fn a_secret_that_is_no_valid_header_value_is_not_shown() {
    let site = Site::answering(answer("200 OK", "text/plain", "fine")).await;
    let (code, message) = failed(with_header(&site, "env:BROKEN")).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("invalid_tool", "the header `Authorization` has an invalid name or value")
    );
}

#[tokio::test]
async fn the_debug_output_of_a_toolbox_has_no_secrets() {
    let shown = format!("{:?}", toolbox());
    assert_eq!(shown, "Toolbox { .. }");
}

#[tokio::test]
async fn a_secret_in_a_result_or_an_event_is_redacted() {
    let body = json!({"headers": {"authorization": format!("Bearer {SECRET}")}}).to_string();
    let site = Site::answering(answer("200 OK", "application/json", &body)).await;
    let (_, output) = call(with_header(&site, "Bearer {env:TOKEN}")).await;
    assert_hidden(&output);
    let shown = serde_json::to_string(&output).unwrap();
    assert!(shown.contains("Bearer [env:TOKEN]"), "{shown}");

    let script = r#"echo '{"type":"progress","message":"'$KEY'"}'; echo '{"type":"custom","name":"n","value":{"k":"'$KEY'"}}'
        echo '{"message_content":[{"type":"text","text":"'$KEY'"}],"summary":"'$KEY'","artifact":{"'$KEY'":1}}'"#;
    let (events, output) = call(with_env(script, "env:TOKEN")).await;
    assert_hidden(&output);
    assert_eq!(output.summary.as_deref(), Some("[env:TOKEN]"));
    assert_eq!(events.len(), 2, "they are still events");
    let shown = format!("{events:?}");
    assert!(!shown.contains(SECRET) && shown.contains("[env:TOKEN]"), "{shown}");
}
