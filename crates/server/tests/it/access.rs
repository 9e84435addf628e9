//! What a credential, a user and a machine may do: keys that are told apart, names of users, who may call which agent, and
//! who may read the metrics.

use crate::attachments::{signed_path, stored_files, str_field, upload_file};
use crate::auth::{create_key, live_key_id};
use crate::blocks::socket::Socket;
use crate::harness::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};

const KEYS: &str = "[auth]\nmode = \"keys\"\n";
const JSON: (&str, &str) = ("content-type", "application/json");

/// The message of an error, in the format of its protocol.
fn message(reply: &Reply) -> String {
    let body = reply.json();
    let message = if body["error"].is_object() { &body["error"]["message"] } else { &body["detail"] };
    message.as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
}

#[tokio::test]
async fn wrong_revoked_and_absent_keys_are_told_apart() {
    let hw = Server::demo_with(KEYS);
    let (revoked, good) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let id = live_key_id(&hw, "ann");
    assert!(hw.run_cli(&["keys", "revoke", &id]).status.success());
    let (last, rest) = good.split_at(good.len() - 1);
    let wrong = format!("{last}{}", if rest == "0" { "1" } else { "0" });
    let invalid = "Bearer error=\"invalid_token\", error_description=";
    for path in ["/v1/tasks", "/v1/responses", "/v1/chat/completions", "/v1/messages", "/api/v1/agent/runs"] {
        for (key, code, words, challenge) in [
            (None, "unauthorized", "send it as `Authorization: Bearer hw_…` or `x-api-key: hw_…`", "Bearer"),
            (Some(&wrong), "invalid_api_key", "there is no such key", invalid),
            (Some(&revoked), "revoked_api_key", "the key was revoked at 20", invalid),
        ] {
            for (name, value) in
                [("authorization", key.map(|key| format!("Bearer {key}"))), ("x-api-key", key.cloned())]
            {
                let header = value.as_deref().map(|value| (name, value));
                let headers: Vec<(&str, &str)> = [JSON].into_iter().chain(header).collect();
                let reply = hw.request(Method::POST, path, &headers, Some(b"{}".to_vec())).await;
                assert_eq!(reply.status, 401, "{path} {code}: {}", reply.text);
                assert!(message(&reply).contains(words), "{path} {code}: {}", reply.text);
                let body = reply.json();
                match path {
                    "/v1/messages" => assert_eq!(body["error"]["type"], "authentication_error"),
                    "/v1/responses" | "/v1/chat/completions" => assert_eq!(body["error"]["code"], code, "{path}"),
                    _ => assert_eq!(reply.problem(), (401, code.to_owned()), "{path}"),
                }
                let told = reply.header("www-authenticate");
                assert!(told.starts_with(challenge) && (key.is_some() || told == challenge), "{path} {code}: {told}");
                assert!(!reply.text.contains("ann") && !reply.text.contains(&id), "not whose it was: {}", reply.text);
            }
        }
    }
    let two = [("authorization", format!("Bearer {good}")), ("x-api-key", good.clone())];
    let two: Vec<(&str, &str)> = two.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let reply = hw.request(Method::GET, "/v1/tasks", &two, None).await;
    assert_eq!(reply.problem(), (401, "unauthorized".to_owned()));
    assert!(message(&reply).contains("send one header"), "{}", reply.text);
}

#[tokio::test]
async fn user_names_are_those_of_identity_providers() {
    let mut hw = Server::demo_with(KEYS);
    let long = format!("{}@example.com", "a".repeat(116));
    for user in
        ["ann@example.com", "auth0|5f7c8ec7c33c6c004bbafe82", "urn:example:ann", "a.b+c@d-e.example", "..", &long]
    {
        let key = create_key(&hw, user);
        hw = hw.with_key(&key);
        let before = stored_files(&hw).len();
        let file = upload_file(&hw, "", b"hello").await;
        let path = str_field(&file, "path").replace('%', "%25");
        let signed = hw.get(&signed_path("headwater", &path)).await.json();
        let bytes = hw.client.get(str_field(&signed, "url")).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, b"hello"[..], "{user}");
        assert_eq!(stored_files(&hw).len(), before + 1, "{user}: it is in the data folder");
        let task = hw.start_run("story 1 fast").await;
        assert_eq!(hw.wait_ended(str_field(&task, "task_id")).await["status"], "completed", "{user}");
    }
    let longer = format!("a{long}");
    let dots = ".".repeat(67);
    for user in
        ["", "a b", "a/b", "a\\b", "ann\"", "ann{}", "a\nb", "änn", "a%2fb", "share:share_1", "*", &longer, &dots]
    {
        let output = hw.run_cli(&["keys", "create", "--user", user]);
        assert_eq!(output.status.code(), Some(1), "{user}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("is not a valid user name"), "{user}");
    }
}

#[tokio::test]
async fn metrics_are_for_this_machine_and_for_the_token() {
    const HOSTS: &str = "[server]\nhosts = [\"agents.example\"]\n";
    let through_proxy: [&[(&str, &str)]; 6] = [
        &[("host", "agents.example")],
        &[("x-forwarded-for", "1.2.3.4")],
        &[("x-forwarded-proto", "https")],
        &[("forwarded", "for=1.2.3.4")],
        &[("x-real-ip", "1.2.3.4")],
        &[("via", "1.1 proxy")],
    ];
    let hw = Server::demo_with(&format!("{KEYS}{HOSTS}"));
    assert_eq!(hw.get("/metrics").await.status, 200);
    for headers in through_proxy {
        let reply = hw.request(Method::GET, "/metrics", headers, None).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{headers:?}");
    }
    let hw = Server::on_folder(|dir| {
        let demo = include_str!("../../demo/headwater.toml");
        let config = format!("{demo}{KEYS}{HOSTS}[metrics]\ntoken = \"file:token\"\n");
        std::fs::write(dir.join("headwater.toml"), config).unwrap();
        std::fs::write(dir.join("scenarios.toml"), include_str!("../../demo/scenarios.toml")).unwrap();
        std::fs::write(dir.join("token"), "a-long-metrics-token\n").unwrap();
    });
    let key = create_key(&hw, "ann");
    assert_eq!(hw.get("/metrics").await.status, 200, "this machine needs no token");
    for headers in through_proxy {
        let reply = hw.request(Method::GET, "/metrics", headers, None).await;
        assert_eq!((reply.problem(), reply.header("www-authenticate")), ((401, "unauthorized".to_owned()), "Bearer"));
        for wrong in ["Bearer a-long-metrics-tokeN", &format!("Bearer {key}"), "a-long-metrics-token"] {
            let with_wrong = [headers, &[("authorization", wrong)]].concat();
            assert_eq!(hw.request(Method::GET, "/metrics", &with_wrong, None).await.status, 401, "{wrong}");
        }
        let with_token = [headers, &[("authorization", "Bearer a-long-metrics-token")]].concat();
        let reply = hw.request(Method::GET, "/metrics", &with_token, None).await;
        assert_eq!((reply.status, reply.text.contains("headwater_store_commits_total")), (200, true), "{headers:?}");
    }
    let token = [("authorization", "Bearer a-long-metrics-token")];
    assert_eq!(hw.request(Method::GET, "/v1/tasks", &token, None).await.status, 401, "it opens nothing else");
}

#[tokio::test]
async fn a_task_takes_tools_in_the_shapes_of_openai() {
    let hw = Server::demo();
    let parameters = json!({"type": "object", "properties": {"question": {"type": "string"}}});
    let function = json!({"name": "pick", "description": "Picks.", "parameters": parameters, "strict": true});
    let mut responses = function.clone();
    responses["type"] = json!("function");
    for tool in [responses, json!({"type": "function", "function": function})] {
        let body = json!({"model": "demo", "input": "story 1 fast", "tools": [tool], "wait": true});
        let reply = hw.post("/v1/tasks", body).await;
        assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("completed")), "{}", reply.text);
    }
    for tool in [json!({"type": "web_search"}), json!({"name": "pick", "strict": true})] {
        let reply = hw.post("/v1/tasks", json!({"model": "demo", "input": "hi", "tools": [tool]})).await;
        assert_eq!(reply.problem(), (422, "invalid_body".to_owned()), "{tool}");
        assert!(message(&reply).contains("tools"), "{}", reply.text);
    }
}

const CALL_RULES: &str = r#"
[auth]
mode = "keys"
models = ["ann@example.com"]

[agents.closed]
model = "scripted/demo"
callable = false

[agents.anns]
model = "scripted/demo"
callable = ["ann@example.com"]
"#;

/// The status and the code of a refusal of this model, by protocol.
async fn refusals(hw: &Server, model: &str) -> Vec<(&'static str, u16, Value)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let run = json!({"agent": model, "message": "hi"});
    let mut refusals = Vec::new();
    for (path, body) in [
        ("/v1/tasks", json!({"model": model, "input": "hi"})),
        ("/v1/responses", json!({"model": model, "input": "hi"})),
        ("/v1/chat/completions", json!({"model": model, "messages": messages})),
        ("/v1/messages", json!({"model": model, "max_tokens": 9, "messages": messages})),
        ("/api/v1/agent/runs", run),
    ] {
        let reply = hw.post(path, body).await;
        if reply.status >= 400 {
            let body = reply.json();
            let code = [&body["code"], &body["error"]["code"], &body["error"]["type"]];
            let code = code.into_iter().find(|code| code.is_string()).cloned().unwrap_or_default();
            refusals.push((path, reply.status, code));
        }
    }
    refusals
}

fn refused_everywhere() -> Vec<(&'static str, u16, Value)> {
    let code = json!("model_not_allowed");
    vec![
        ("/v1/tasks", 403, code.clone()),
        ("/v1/responses", 403, code.clone()),
        ("/v1/chat/completions", 403, code.clone()),
        ("/v1/messages", 403, json!("permission_error")),
        ("/api/v1/agent/runs", 403, code),
    ]
}

async fn listed_models(hw: &Server) -> Vec<String> {
    let list = hw.get("/v1/models").await.json();
    list["data"].as_array().unwrap().iter().map(|model| str_field(model, "id").to_owned()).collect()
}

#[tokio::test]
async fn with_keys_users_call_what_the_config_allows() {
    let hw = Server::demo_with(CALL_RULES);
    let (ann, ben) = (create_key(&hw, "ann@example.com"), create_key(&hw, "ben"));
    let hw = hw.with_key(&ben);
    for refused in ["scripted/demo", "WeatherAgent", "specialist", "closed", "anns"] {
        assert_eq!(refusals(&hw, refused).await, refused_everywhere(), "{refused}");
        let reply = hw.get(&format!("/v1/models/{refused}")).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("model_not_allowed")), "{refused}");
    }
    assert_eq!(listed_models(&hw).await, ["demo"]);
    assert_eq!(refusals(&hw, "demo").await, []);
    let unknown = hw.post("/v1/tasks", json!({"model": "nobody", "input": "hi"})).await;
    assert_eq!((unknown.problem().1.as_str(), &unknown.json()["agents"]), ("unknown_agent", &json!(["demo"])));
    let mut socket = Socket::connect_with_headers(&hw, &format!("Authorization: Bearer {ben}\r\n")).await.unwrap();
    socket.send_json(&json!({"type": "chat", "content": "hi", "agent": "closed"})).await;
    let event = socket.next_event().await;
    assert!(event.to_string().contains("model_not_allowed"), "{event}");
    let help = hw.post("/v1/tasks", json!({"model": "demo", "input": "help", "wait": true})).await;
    assert_eq!((help.status, &help.json()["status"]), (200, &json!("completed")), "agents call each other");

    let hw = hw.with_key(&ann);
    for allowed in ["scripted/demo", "anns", "demo"] {
        assert_eq!(refusals(&hw, allowed).await, [], "{allowed}");
    }
    assert_eq!(refusals(&hw, "closed").await, refused_everywhere());
    assert_eq!(listed_models(&hw).await, ["anns", "demo"]);

    let open = Server::demo();
    assert_eq!(refusals(&open, "scripted/demo").await, [], "without keys everything can be called");
    assert_eq!(refusals(&open, "specialist").await, []);
}

/// Input may start a run: that of an ended one does, and that of a run which ends before it reads the input.
#[tokio::test]
async fn input_is_refused_when_its_user_may_no_longer_call_the_agent() {
    let rules = |callable: &str| format!("{KEYS}[agents.mine]\nmodel = \"scripted/demo\"\ncallable = {callable}\n");
    let mut hw = Server::demo_with(&rules("[\"ann\"]"));
    let key = create_key(&hw, "ann");
    hw = hw.with_key(&key);
    let ended = hw.post("/v1/tasks", json!({"model": "mine", "input": "story 1 fast", "wait": true})).await.json();
    let running = hw.create_task(json!({"model": "mine", "input": "story 2000"})).await;
    let send = async |task: &Value| {
        hw.post(&format!("/v1/tasks/{}/input", str_field(task, "task_id")), json!({"input": "story 1 fast"})).await
    };
    for task in [&ended, &running] {
        let reply = send(task).await;
        assert!(reply.status < 300, "{}", reply.text);
    }
    let config = hw.path("headwater.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("callable = [\"ann\"]", "callable = false")).unwrap();
    hw.signal("-HUP");
    hw.wait_until("the config is reloaded", async || listed_models(&hw).await == ["demo"]).await;
    for task in [&ended, &running] {
        assert_eq!(send(task).await.problem(), (403, "model_not_allowed".to_owned()));
    }
}

#[tokio::test]
async fn a_later_request_cannot_change_to_a_model_that_its_user_may_not_call() {
    let hw = Server::demo_with(KEYS);
    let key = create_key(&hw, "ben");
    let hw = hw.with_key(&key);
    let tool = json!({"type": "function", "name": "ask_user", "parameters": {"type": "object"}});
    let first = hw.post("/v1/responses", json!({"model": "demo", "input": "client", "tools": [tool]})).await.json();
    let call = first["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}]);
    let next = |model: &str| json!({"model": model, "previous_response_id": first["id"], "input": output});
    let refused = hw.post("/v1/responses", next("scripted/demo")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("model_not_allowed")));
    assert_eq!(hw.post("/v1/responses", next("demo")).await.json()["status"], "completed");
}

#[tokio::test]
async fn a_background_response_can_be_followed_before_its_events() {
    let hw = Server::demo();
    let body = json!({"model": "demo", "input": "story 5", "background": true});
    let response = hw.post("/v1/responses", body).await.json();
    let path = format!("/v1/responses/{}?stream=true", str_field(&response, "id"));
    let ahead = hw.get(&format!("{path}&starting_after=4")).await;
    assert_eq!(ahead.status, 200, "{}", ahead.text);
    let events = |text: &str| {
        let frames = text.split("\n\n").filter(|frame| frame.starts_with("event: ")).map(str::to_owned);
        frames.collect::<Vec<String>>()
    };
    let whole = events(&hw.get(&path).await.text);
    assert!(whole.len() > 6, "{whole:?}");
    assert_eq!(events(&ahead.text), whole[5..], "what comes after the fifth event");
    let beyond = hw.get(&format!("{path}&starting_after={}", whole.len())).await;
    assert_eq!((beyond.status, &beyond.json()["error"]["param"]), (400, &json!("starting_after")), "{}", beyond.text);
}
