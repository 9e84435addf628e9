//! What the operator is told: in the log when something fails, and in the answer to a request that cannot work.

use crate::fake_provider::loopback::{Loopback, full_response};
use crate::harness::Server;
use serde_json::{Value, json};

/// Calls the tool `t`, then says what is left to say.
const SCENARIOS: &str = r#"
[[scenario]]
[[scenario.turn]]
steps = [{ call = "t", arguments = '{}' }]
[[scenario.turn]]
steps = [{ text = "done" }]
"#;

fn config(tool: &str) -> String {
    format!(
        "[agents.a]\nmodel = \"mine/a\"\ntools = [\"t\"]\n[tools.t]\n{tool}\n[providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n"
    )
}

/// The lines of the log with this message, once the run has ended.
async fn failure_lines(hw: &Server, model: &str, message: &str) -> (String, Vec<String>) {
    let task = hw.create_task(json!({"model": model, "input": "a private matter"})).await;
    let id = task["task_id"].as_str().unwrap().to_owned();
    hw.wait_ended(&id).await;
    let log = hw.log();
    assert!(!log.contains("private matter"), "{log}");
    (id, log.lines().filter(|line| line.contains(message)).map(str::to_owned).collect())
}

#[tokio::test]
async fn a_failed_tool_is_one_line_in_the_log() {
    let script = r#"kind = "command"
command = ["sh", "-c", "echo a private matter >&2; exit 3"]"#;
    let cases = [
        ("kind = \"command\"\ncommand = \"no-such-program\"", "command_failed", "cannot start `no-such-program`: "),
        (script, "command_failed", "the program exited with status 3\""),
        ("kind = \"http\"\nurl = \"http://127.0.0.1:9/\"", "unreachable", "cannot reach 127.0.0.1:9: "),
    ];
    for (tool, code, cause) in cases {
        let hw = Server::with_config(&config(tool), SCENARIOS);
        let (id, lines) = failure_lines(&hw, "a", "a tool call failed").await;
        let [line] = &lines[..] else { panic!("{lines:?}: {}", hw.log()) };
        assert!(line.contains(" WARN ") && line.contains(&id) && line.contains("call="), "{line}");
        assert!(line.contains(&format!("code=\"{code}\"")) && line.contains(cause), "{line}");
    }
}

#[tokio::test]
async fn a_failed_model_call_is_one_line_in_the_log() {
    let secret = "sk-a-key-that-nobody-else-has";
    for (status, body, code, cause) in [
        (
            "401 Unauthorized",
            format!("Incorrect API key provided: {secret}"),
            "provider_auth",
            "does not accept the API key (status 401)",
        ),
        (
            "404 Not Found",
            "The model `x` does not exist".to_owned(),
            "provider_refused",
            "The model `x` does not exist",
        ),
    ] {
        let answer = json!({"error": {"message": body, "type": "invalid_request_error"}}).to_string();
        let upstream =
            Loopback::start(move |_| vec![full_response(status, "content-type: application/json\r\n", &answer)]).await;
        let provider = format!("[providers.up]\nkind = \"openai-chat\"\nbase_url = \"{}\"\n", upstream.url("/v1"));
        let key = "headers = { Authorization = \"Bearer {file:key}\" }\n";
        let hw = Server::on_folder(|dir| {
            std::fs::write(dir.join("key"), secret).unwrap();
            std::fs::write(dir.join("headwater.toml"), format!("{provider}{key}")).unwrap();
        });
        let (id, lines) = failure_lines(&hw, "up/x", "a task failed").await;
        let [line] = &lines[..] else { panic!("{lines:?}: {}", hw.log()) };
        assert!(line.contains(" WARN ") && line.contains(&id), "{line}");
        assert!(line.contains(&format!("code=\"{code}\"")) && line.contains(cause), "{line}");
        assert!(!hw.log().contains(secret), "{}", hw.log());
    }
}

#[tokio::test]
async fn a_request_that_cannot_work_says_what_to_do() {
    let hw = Server::demo();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let detail = |value: &Value| {
        let text = value["detail"].as_str().or_else(|| value["error"]["message"].as_str());
        text.unwrap_or_else(|| panic!("{value}")).to_owned()
    };
    let set_key = "there is no provider `openai` for the model `openai/gpt-5-mini`: set OPENAI_API_KEY and restart the \
                   server, or define [providers.openai]";
    let chat = |model: &str, messages: &Value| json!({"model": model, "messages": messages, "max_tokens": 9});
    let reply = hw.post("/v1/tasks", json!({"model": "openai/gpt-5-mini", "input": "hi"})).await;
    assert_eq!((reply.problem(), detail(&reply.json())), ((422, "unknown_agent".to_owned()), set_key.to_owned()));
    let reply = hw.post("/v1/responses", json!({"model": "openai/gpt-5-mini", "input": "hi"})).await;
    assert_eq!(detail(&reply.json()), set_key);
    let reply = hw.post("/v1/chat/completions", chat("openai/gpt-5-mini", &messages)).await;
    assert_eq!(detail(&reply.json()), set_key);
    let reply = hw.post("/v1/messages", chat("anthropic/x", &messages)).await;
    assert!(detail(&reply.json()).contains("set ANTHROPIC_API_KEY"), "{}", reply.text);
    let reply = hw.post("/v1/tasks", json!({"model": "mine/x", "input": "hi"})).await;
    assert!(detail(&reply.json()).contains("define [providers.mine] in the config file"), "{}", reply.text);
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let reply = hw.post(path, chat("demo", &json!([]))).await;
        let wanted = "`messages`: expected at least one message with the role `user`";
        assert_eq!(detail(&reply.json()), wanted, "{}", reply.text);
    }
    let reply = hw.post("/chat/completions", chat("demo", &messages)).await;
    assert_eq!(reply.status, 404);
    assert!(detail(&reply.json()).contains("base URLs of OpenAI clients end with /v1"), "{}", reply.text);
}

/// `STOCK_TOKEN=t` turned every t of a message into the name of the secret.
#[test]
fn a_secret_that_is_too_short_to_be_redacted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tool = "kind = \"http\"\nurl = \"http://127.0.0.1:9/\"\nheaders = { X-Token = \"env:STOCK_TOKEN\" }";
    std::fs::write(dir.path().join("headwater.toml"), config(tool)).unwrap();
    std::fs::write(dir.path().join("scenarios.toml"), SCENARIOS).unwrap();
    let mut command = crate::harness::headwater_command(dir.path());
    let output = command.args(["serve", "--listen", "127.0.0.1:0"]).env("STOCK_TOKEN", "t").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`env:STOCK_TOKEN` cannot be resolved: it has fewer than 8 characters"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
