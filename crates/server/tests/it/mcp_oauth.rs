//! MCP servers that act for users, from the request to the authorization server.

#[expect(dead_code, reason = "the tests of `mcp` use the rest")]
#[path = "../../../mcp/tests/it/auth_server.rs"]
mod auth_server;

use crate::auth::create_key;
use crate::broker_fixture::decide;
use crate::harness::{Reply, Server, headwater_command};
use auth_server::{AuthServer, AuthServerOptions};
use postgres_testing::TestDatabase;
use reqwest::Method;
use serde_json::{Value, json};

const SCENARIOS: &str = r#"
[[scenario]]
match = "whoami"
[[scenario.turn]]
steps = [{ call = "s__whoami", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]

[[scenario]]
match = "authorize"
[[scenario.turn]]
steps = [{ call = "s__authorize", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]
"#;

fn config(server: &AuthServer, keys: &str, more: &str) -> String {
    format!(
        "[agents.helper]\nmodel = \"mine/any\"\ntools = [\"mcp:s\"]\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n{more}\n\
         [mcp.s]\nurl = \"{}\"\napproval = \"never\"\n{keys}\n",
        server.mcp_url()
    )
}

fn start(server: &AuthServer, keys: &str) -> Server {
    Server::with_config(&config(server, keys, ""), SCENARIOS)
}

async fn run(hw: &Server, input: &str) -> Value {
    let reply = hw.post("/v1/tasks", json!({"model": "helper", "input": input, "wait": true})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn result_of(task: &Value) -> &Value {
    let results = task["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_result");
    results.unwrap_or_else(|| panic!("no result: {task}"))
}

async fn begin(hw: &Server) -> String {
    let reply = hw.post("/v1/mcp/s/authorize", json!({})).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()["authorization_url"].as_str().unwrap().to_owned()
}

/// The page that the browser comes back to.
async fn come_back(hw: &Server, location: &str) -> Reply {
    let path = location.strip_prefix(&hw.url("")).unwrap_or_else(|| panic!("{location} is not of this server"));
    hw.get(path).await
}

async fn is_authorized(hw: &Server) -> bool {
    let listed = hw.get("/v1/mcp").await.json();
    assert_eq!((&listed["data"][0]["name"], &listed["data"][0]["auth"]), (&json!("s"), &json!("oauth")), "{listed}");
    listed["data"][0]["authorized"].as_bool().unwrap()
}

/// Neither what this server wrote nor what it logged has anything that is secret.
async fn assert_no_secrets(hw: &Server, tasks: &[&Value]) {
    assert!(!hw.log().contains("-secret-"), "{}", hw.log());
    for task in tasks {
        let events = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
        for frame in hw.frames(&events, None).await {
            assert!(!frame.data.to_string().contains("-secret-"), "{}", frame.data);
        }
    }
    for file in std::fs::read_dir(hw.data_dir()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            assert!(!bytes.windows(8).any(|part| part == b"-secret-"), "{:?}", file.path());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_authorizes_a_server_and_their_runs_use_it_until_the_authorization_ends() {
    // Every request refreshes the token first: it expires at once.
    let options = AuthServerOptions { expires_in: Some(1), ..AuthServerOptions::default() };
    let server = AuthServer::with_options(options).await;
    let mut hw = start(&server, "auth = { kind = \"oauth\" }");
    assert!(!is_authorized(&hw).await);
    let waiting = run(&hw, "authorize").await;
    assert_eq!(
        (&waiting["status"], &waiting["pending"][0]["kind"]),
        (&json!("paused"), &json!("question")),
        "{waiting}"
    );
    let asked = hw.get("/v1/approvals?status=pending").await.json();
    assert_eq!(asked["data"][0]["question"]["url"], "/v1/mcp/s/authorize", "{asked}");
    let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let sent = browser.get(hw.url("/v1/mcp/s/authorize")).send().await.unwrap();
    let location = sent.headers().get("location").and_then(|location| location.to_str().ok());
    assert!(sent.status() == 303 && location.is_some_and(|url| url.starts_with(&server.url)), "{sent:?}");

    // The server crashes while the user consents.
    let location = server.consent(&begin(&hw).await).await;
    let address = hw.url("");
    hw.kill9();
    hw.restart_at(address.strip_prefix("http://").unwrap());
    let page = come_back(&hw, &location).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{}", page.text);
    assert!(page.text.contains("You can close this window"), "{}", page.text);
    assert_eq!(come_back(&hw, &location).await.status, 400, "an answer counts once");
    assert!(is_authorized(&hw).await);
    // Whatever waited for it goes on.
    let told = hw.wait_ended(waiting["task_id"].as_str().unwrap()).await;
    let text = result_of(&told)["block_list"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned();
    assert_eq!(text, "`s` is authorized. Its tools are there with the next message.");

    let task = run(&hw, "whoami").await;
    assert_eq!(result_of(&task)["block_list"][0]["text"], "somebody", "{task}");
    assert!(server.state().count("refresh_token") > 0);

    // The authorization ends: one refresh, then the question again, and nothing more. A yes without an authorization helps nobody.
    server.state().refuses_refresh = true;
    let before = server.state().count("refresh_token");
    let expired = run(&hw, "whoami").await;
    assert_eq!(
        (&expired["status"], &expired["pending"][0]["kind"]),
        (&json!("paused"), &json!("question")),
        "{expired}"
    );
    assert_eq!(server.state().count("refresh_token") - before, 1);
    assert!(!is_authorized(&hw).await);
    let yes = decide(&hw, &expired, json!({"decision": "approve"})).await;
    assert_eq!(yes.status, 200, "{}", yes.text);
    let failed = hw.wait_ended(expired["task_id"].as_str().unwrap()).await;
    let error = &result_of(&failed)["error"];
    assert_eq!(error["code"], "mcp_unauthorized", "{failed}");
    assert!(error["message"].as_str().unwrap().contains("POST /v1/mcp/s/authorize"), "{error}");
    assert_eq!(server.state().count("refresh_token") - before, 1, "nobody tries again");
    assert_no_secrets(&hw, &[&waiting, &task, &expired]).await;

    assert_eq!(hw.request(Method::DELETE, "/v1/mcp/s/authorization", &[], None).await.status, 204);
    assert_eq!(hw.request(Method::DELETE, "/v1/mcp/s/authorization", &[], None).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_another_user_brings_counts_for_nobody() {
    let server = AuthServer::start().await;
    let page = "auth = { kind = \"oauth\", redirect_url = \"https://app.example/done\" }";
    let hw = Server::with_config(&config(&server, page, "[auth]\nmode = \"keys\""), SCENARIOS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let send = async |key: &str, path: &str, body: Value| {
        let request = hw.client.post(hw.url(path)).bearer_auth(key).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let answer = async || {
        let (status, started) = send(&ann, "/v1/mcp/s/authorize", json!({})).await;
        assert_eq!(status, 201, "{started}");
        let location = server.consent(started["authorization_url"].as_str().unwrap()).await;
        assert!(location.starts_with("https://app.example/done?"), "{location}");
        let pairs = url::Url::parse(&location).unwrap().query_pairs().into_owned().collect::<Vec<_>>();
        Value::Object(pairs.into_iter().map(|(name, value)| (name, value.into())).collect())
    };
    let stolen = answer().await;
    let (status, refused) = send(&ben, "/v1/mcp/callback", stolen.clone()).await;
    assert_eq!((status, &refused["code"]), (400, &json!("invalid_authorization")), "{refused}");
    assert_eq!(send(&ann, "/v1/mcp/callback", stolen).await.0, 400, "it is of no use any more");
    // Nor may a browser bring it here, if the config names another page.
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in answer().await.as_object().unwrap() {
        query.append_pair(name, value.as_str().unwrap());
    }
    assert_eq!(hw.get(&format!("/v1/mcp/callback?{}", query.finish())).await.status, 400);

    let (status, finished) = send(&ann, "/v1/mcp/callback", answer().await).await;
    assert_eq!((status, &finished["name"]), (200, &json!("s")), "{finished}");
    let authorized = async |key: &str| {
        let response = hw.client.get(hw.url("/v1/mcp")).bearer_auth(key).send().await.unwrap();
        response.json::<Value>().await.unwrap()["data"][0]["authorized"].clone()
    };
    assert_eq!((authorized(&ann).await, authorized(&ben).await), (json!(true), json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_authorized_says_why() {
    let link_local = Some("http://169.254.169.254/latest/meta-data/".to_owned());
    let options = AuthServerOptions { resource_metadata: link_local, ..AuthServerOptions::default() };
    let server = AuthServer::with_options(options).await;
    let hw = start(&server, "auth = \"oauth\"\nrequired = true");
    let refused = hw.post("/v1/mcp/s/authorize", json!({})).await;
    assert_eq!(refused.problem(), (502, "authorization_unavailable".to_owned()), "{}", refused.text);
    assert!(
        refused.text.contains("the address of the metadata of the MCP server may not be requested"),
        "{}",
        refused.text
    );
    assert_eq!(hw.post("/v1/mcp/t/authorize", json!({})).await.problem(), (404, "not_found".to_owned()));
    let callback = hw.get("/v1/mcp/callback?state=x&code=%3Cscript%3E&error=%3Cscript%3E").await;
    assert_eq!(callback.status, 400);
    assert!(!callback.text.contains("script"), "{}", callback.text);
    assert_eq!(hw.get("/v1/mcp/client.json").await.status, 404, "nobody could read it");

    let task = hw.post("/v1/tasks", json!({"model": "helper", "input": "whoami", "wait": true})).await;
    assert_eq!(task.json()["error"]["code"], "mcp_unauthorized", "{}", task.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_server_describes_itself_to_authorization_servers() {
    let options = AuthServerOptions { accepts_client_documents: true, ..AuthServerOptions::default() };
    let server = AuthServer::with_options(options).await;
    let public = "[files]\npublic_url = \"https://agents.example\"";
    let hw = Server::with_config(&config(&server, "auth = \"oauth\"", public), SCENARIOS);
    let document = hw.get("/v1/mcp/client.json").await.json();
    assert_eq!(document["client_id"], "https://agents.example/v1/mcp/client.json");
    assert_eq!(document["redirect_uris"], json!(["https://agents.example/v1/mcp/callback"]));
    let url = begin(&hw).await;
    let asked = url::Url::parse(&url).unwrap().query_pairs().into_owned().collect::<Vec<_>>();
    assert!(asked.contains(&("client_id".to_owned(), document["client_id"].as_str().unwrap().to_owned())), "{url}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authorization_that_starts_on_one_node_is_finished_on_another() {
    let server = AuthServer::start().await;
    let (database, files) = (TestDatabase::create(), tempfile::tempdir().unwrap());
    let config = format!(
        "[files]\nurl = \"{}\"\npublic_url = \"http://agents.example\"\n\
         [agents.helper]\nmodel = \"scripted/any\"\ntools = [\"mcp:s\"]\n\
         [mcp.s]\nurl = \"{}\"\nauth = \"oauth\"\n",
        files.path().display(),
        server.mcp_url()
    );
    let key = "0123456789abcdef".repeat(4);
    let [a, b] = [(); 2]
        .map(|()| Server::node_with_env(&database.url(), &config, &[("HEADWATER_CREDENTIALS_KEY", key.as_str())]));
    let location = server.consent(&begin(&a).await).await;
    let path = location.strip_prefix("http://agents.example").unwrap_or_else(|| panic!("{location}"));
    assert_eq!(b.get(path).await.status, 200);
    assert!(is_authorized(&a).await && is_authorized(&b).await);
    assert_eq!(a.get(path).await.status, 400, "it counts once, wherever");
    let stored = database.execute("SELECT encode(body, 'escape') FROM headwater.user_secrets");
    assert!(!stored.is_empty() && !stored.contains("-secret-"), "{stored}");

    // In the database a key would protect nothing, so there is none without the variable.
    let (folder, config) = (tempfile::tempdir().unwrap(), a.path("headwater.toml"));
    let refused = headwater_command(folder.path())
        .args(["serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--database-url", &database.url(), "--config"])
        .arg(config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("HEADWATER_CREDENTIALS_KEY"), "{said}");
}
