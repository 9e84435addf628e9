//! Resending reasoning over many turns: a service that looks up its own items and refuses inconsistent ones.
//!
//! First a naive client, to show that the service refuses it with the messages of the real one. Then Headwater.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ResponseAction, stream_head};
use crate::fake_provider::strict_responses::StrictResponses;
use crate::harness::{Server, SseFrame, http_client};
use crate::tool_server::ToolServer;
use model_testing::{Rng, test_seeds};
use serde_json::{Value, json};

/// Sends a request as a naive client would; returns the answer, or its status and error.
async fn ask(strict: &StrictResponses, key: &str, body: &Value) -> Result<Vec<Value>, (u16, Value)> {
    let request = http_client().post(strict.server.url("/v1/responses")).bearer_auth(key);
    let reply = request.body(body.to_string()).send().await.unwrap();
    let (status, text) = (reply.status().as_u16(), reply.text().await.unwrap());
    if status != 200 {
        return Err((status, serde_json::from_str::<Value>(&text).unwrap()["error"].clone()));
    }
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    Ok(last["response"]["output"].as_array().unwrap().clone())
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

/// A request that resends this and asks again.
fn again(first: &str, output: &[Value], more: &[Value]) -> Value {
    let input: Vec<Value> = [user(first)].iter().chain(output).chain(more).cloned().collect();
    json!({"model": "gpt-5-one", "stream": true, "input": input})
}

/// The same request to a service that must not store anything.
fn unkept(mut body: Value) -> Value {
    body["store"] = false.into();
    body["include"] = json!(["reasoning.encrypted_content"]);
    body
}

fn id(item: &Value) -> &str {
    item["id"].as_str().unwrap()
}

fn without(item: &Value, field: &str) -> Value {
    let mut item = item.clone();
    item.as_object_mut().unwrap().remove(field);
    item
}

/// The service's error for this request.
async fn refusal(strict: &StrictResponses, body: &Value) -> (u16, String) {
    let (status, error) = ask(strict, "a", body).await.unwrap_err();
    (status, error["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_naive_client_that_resends_everything_gets_reasoning_not_found() {
    let strict = StrictResponses::start().await;
    let output = ask(&strict, "a", &again("What tools do you have now?", &[], &[])).await.unwrap();
    assert_eq!(output.len(), 2);
    assert_eq!((&output[0]["type"], &output[0]["encrypted_content"]), (&json!("reasoning"), &Value::Null));
    let more = [user("What's the time in Shanghai right now? call the tool please")];
    let body = again("What tools do you have now?", &output, &more);
    let said = format!("Item with id '{}' not found.", id(&output[0]));
    assert_eq!(refusal(&strict, &body).await, (404, said));
}

#[tokio::test]
async fn a_naive_client_that_omits_reasoning_gets_reasoning_required() {
    let strict = StrictResponses::start().await;
    let output = ask(&strict, "a", &again("What tools do you have now?", &[], &[])).await.unwrap();
    let more = [user("What's the time in Shanghai right now? call the tool please")];
    let body = again("What tools do you have now?", &output[1..], &more);
    let (message, reasoning) = (id(&output[1]), id(&output[0]));
    let said = format!(
        "Item '{message}' of type 'message' was provided without its required 'reasoning' item: '{reasoning}'."
    );
    assert_eq!(refusal(&strict, &body).await, (400, said));
    // Without its id, or with another, the message is plain text.
    let mut renamed = output[1].clone();
    renamed["id"] = "msg_another".into();
    for plain in [without(&output[1], "id"), renamed] {
        assert!(ask(&strict, "a", &again("What tools do you have now?", &[plain], &more)).await.is_ok());
    }
}

#[tokio::test]
async fn every_rule_of_the_strict_service_has_its_own_error() {
    let strict = StrictResponses::start().await;
    let first = unkept(again("fetch it", &[], &[]));
    let output = ask(&strict, "a", &first).await.unwrap();
    let [reasoning, call] = &output[..] else { panic!("{output:?}") };
    let (rs, fc, call_id) = (id(reasoning), id(call), call["call_id"].as_str().unwrap());
    let result = json!({"type": "function_call_output", "call_id": call_id, "output": "done"});
    let with = |items: &[&Value]| {
        let items: Vec<Value> = items.iter().map(|item| (*item).clone()).collect();
        unkept(again("fetch it", &items, &[]))
    };
    let no_blob = without(reasoning, "encrypted_content");
    let (mut bent, mut invented) = (reasoning.clone(), reasoning.clone());
    bent["encrypted_content"] = "gAAAAbegun".into();
    invented["id"] = "reasoning_content".into();
    let unreadable = "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be \
                      decrypted or parsed.";
    let table = [
        (
            with(&[call, &result]),
            400,
            format!("Item '{fc}' of type 'function_call' was provided without its required 'reasoning' item: '{rs}'."),
        ),
        (
            with(&[reasoning, &without(call, "id"), &result]),
            400,
            format!("Item '{rs}' of type 'reasoning' was provided without its required following item."),
        ),
        (
            with(&[reasoning]),
            400,
            format!("Item '{rs}' of type 'reasoning' was provided without its required following item."),
        ),
        (
            with(&[&no_blob, call, &result]),
            404,
            format!(
                "Item with id '{rs}' not found. Items are not persisted when `store` is set to false. Try again with \
             `store` set to true, or remove this item from your input."
            ),
        ),
        (
            with(&[&json!({"type": "item_reference", "id": rs}), call, &result]),
            404,
            format!(
                "Item with id '{rs}' not found. Items are not persisted when `store` is set to false. Try again with \
             `store` set to true, or remove this item from your input."
            ),
        ),
        (with(&[&result]), 400, format!("No tool call found for function call output with call_id {call_id}.")),
        (with(&[reasoning, call]), 400, format!("No tool output found for function call {call_id}.")),
        (with(&[&bent, call, &result]), 400, unreadable.to_owned()),
        (
            with(&[&invented, call, &result]),
            400,
            "Invalid 'input[1].id': 'reasoning_content'. Expected an ID that begins with 'rs'.".to_owned(),
        ),
    ];
    for (body, status, said) in table {
        assert_eq!(refusal(&strict, &body).await, (status, said), "{body}");
    }
    let good = with(&[reasoning, call, &result]);
    let mut elsewhere = good.clone();
    elsewhere["model"] = "gpt-5-two".into();
    assert_eq!(refusal(&strict, &elsewhere).await, (400, unreadable.to_owned()));
    let (_, of_another_key) = ask(&strict, "b", &good).await.unwrap_err();
    assert_eq!(of_another_key["code"], "invalid_encrypted_content");
    elsewhere["model"] = "gpt-4-plain".into();
    assert_eq!(refusal(&strict, &elsewhere).await.1, "Encrypted content is not supported with this model.");
    assert!(ask(&strict, "a", &good).await.is_ok(), "whole and in order, it is taken back");
}

const CONFIG: &str = r#"
[agents.one]
model = "up/gpt-5-one"
tools = ["work"]

[agents.two]
model = "up/gpt-5-two"
tools = ["work"]

[agents.stranger]
model = "other/gpt-5-one"
tools = ["work"]

[agents.plain]
model = "up/gpt-4-plain"
tools = ["work"]

[agents.elsewhere]
model = "chat/some"

[tools.work]
kind = "http"
method = "POST"
url = "SITE"

[providers.up]
kind = "openai-responses"
base_url = "STRICT"
api_key = "file:KEYS/one"

[providers.other]
kind = "openai-responses"
base_url = "STRICT"
api_key = "file:KEYS/two"

[providers.chat]
kind = "openai-chat"
base_url = "CHAT"
"#;

/// A server whose models are at the strict service or at another kind of service, with one conversation.
struct StrictConversation {
    server: Server,
    strict: StrictResponses,
    site: ToolServer,
    thread: Option<String>,
    inputs: Vec<String>,
    _keys: tempfile::TempDir,
}

impl StrictConversation {
    async fn start() -> Self {
        let (strict, site) = (StrictResponses::start().await, ToolServer::start().await);
        let said = ProviderDialect::Chat.full_answer("said elsewhere");
        let chat = Loopback::start(move |_| vec![stream_head(), ResponseAction::Send(said.clone().into_bytes())]).await;
        let keys = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::write(keys.path().join(name), format!("key-of-{name}\n")).unwrap();
        }
        let config = CONFIG
            .replace("SITE", &site.url("/work"))
            .replace("STRICT", &strict.server.url("/v1"))
            .replace("CHAT", &chat.url("/v1"))
            .replace("KEYS", keys.path().to_str().unwrap());
        let server = Server::with_config(&config, "");
        Self { server, strict, site, thread: None, inputs: Vec::new(), _keys: keys }
    }

    /// Starts a run of an agent and returns the task's id.
    async fn start_run(&mut self, agent: &str, input: &str) -> String {
        let mut body = json!({"model": agent, "input": input});
        if let Some(thread) = &self.thread {
            body["thread_id"] = thread.as_str().into();
        }
        self.inputs.push(input.to_owned());
        let task = self.server.create_task(body).await;
        self.thread = Some(task["thread_id"].as_str().unwrap().to_owned());
        task["task_id"].as_str().unwrap().to_owned()
    }

    /// Starts a run and waits for this end.
    async fn run_turn(&mut self, agent: &str, input: &str, status: &str) {
        let task = self.start_run(agent, input).await;
        self.expect_status(&task, status).await;
    }

    async fn cancel(&self, task: &str) {
        self.server.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    }

    fn crash(&mut self) {
        self.server.kill9();
        self.server.restart();
    }

    async fn expect_status(&self, task: &str, status: &str) {
        let ended = self.server.wait_ended(task).await;
        assert_eq!(ended["status"], status, "{ended:#}\n{:?}", self.strict.state().refusals);
    }

    /// Starts a run whose answer stops half-way, and waits for that half.
    async fn start_partial_answer(&mut self, agent: &str, input: &str) -> String {
        let task = self.start_run(agent, input).await;
        self.server.open_stream(&format!("/v1/tasks/{task}/events")).await.read_until("half of it").await;
        task
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headwater_is_never_refused_whatever_happens_to_the_conversation() {
    let mut talk = StrictConversation::start().await;
    talk.run_turn("one", "think of a number", "completed").await;
    talk.run_turn("one", "fetch it", "completed").await;
    talk.run_turn("one", "compare them", "completed").await;

    let task = talk.start_partial_answer("one", "stop: this will be cancelled").await;
    talk.cancel(&task).await;
    talk.expect_status(&task, "cancelled").await;
    talk.run_turn("one", "go on, with a chain of calls", "completed").await;

    let task = talk.start_partial_answer("one", "stop: here the process dies").await;
    talk.crash();
    talk.expect_status(&task, "completed").await;
    talk.run_turn("one", "fetch it once more", "completed").await;

    for agent in ["two", "stranger", "plain"] {
        talk.run_turn(agent, &format!("fetch it, {agent}"), "completed").await;
    }
    talk.run_turn("elsewhere", "a word from another kind of service", "completed").await;
    talk.run_turn("one", "say until the limit", "incomplete").await;
    talk.run_turn("one", "a last chain", "completed").await;

    let book = talk.strict.state();
    assert_eq!(book.refusals, Vec::<String>::new());
    assert_eq!(book.unknown_ids, Vec::<String>::new(), "these are not the service's ids");
    assert_eq!(book.altered_items, Vec::<Value>::new(), "what has an id goes back as it came");
    // Calls of this thread: 1 + 2, a chain of 2, four times one, and a chain again. Each ran once.
    let calls: Vec<usize> = talk.site.counts().by_idempotency_key.values().copied().collect();
    assert_eq!(calls, [1; 11]);
    // The last request has the text of all models, and the reasoning of its own model only.
    let last = book.accepted_requests.last().unwrap();
    let text = last.to_string();
    for said in book.sent_messages.iter().take(book.sent_messages.len() - 1).chain(&talk.inputs) {
        assert!(text.contains(said.as_str()), "{said} is missing in {last:#}");
    }
    assert!(text.contains("said elsewhere") && text.contains("half of it"), "{last:#}");
    let input = last["input"].as_array().unwrap();
    let thoughts = input.iter().filter(|item| item["type"] == "reasoning").count();
    assert!(thoughts >= 10, "only {thoughts} thoughts went back: {last:#}");
    assert!(book.returned_reasoning > 40, "only {} thoughts went back in all", book.returned_reasoning);
}

/// One turn of a random conversation with an event at a random moment.
async fn random_turn(talk: &mut StrictConversation, rng: &mut Rng, number: u32) {
    let agent = rng.choose("one", &["one", "two", "stranger", "plain", "elsewhere"]);
    let word = rng.choose("say", &["fetch", "compare", "chain", "limit", "stop"]);
    let task = talk.start_run(agent, &format!("{word} {number}")).await;
    // An interrupted turn has no end of a step to wait for.
    let moments = ["task.created", "task.step.started", "task.output_item.added", "task.step.done"];
    let moment = moments[rng.below(if word == "stop" { 3 } else { 4 })];
    talk.server.open_stream(&format!("/v1/tasks/{task}/events")).await.read_until(moment).await;
    let (crashes, cancels) = (rng.chance(25), rng.chance(25));
    if crashes {
        talk.crash();
    }
    if cancels || word == "stop" {
        talk.cancel(&task).await;
    }
    talk.server.wait_ended(&task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_random_conversation_is_refused() {
    let full = std::env::vars().any(|(name, _)| name == "HEADWATER_TEST_FULL");
    let mut thoughts = 0;
    for seed in test_seeds().take(if full { 60 } else { 4 }) {
        let (mut talk, mut rng) = (StrictConversation::start().await, Rng::new(seed));
        for number in 0..12 {
            random_turn(&mut talk, &mut rng, number).await;
        }
        let book = talk.strict.state();
        assert_eq!(book.refusals, Vec::<String>::new(), "SEED={seed}");
        assert_eq!((&book.unknown_ids, &book.altered_items), (&Vec::new(), &Vec::new()), "SEED={seed}");
        assert!(
            talk.site.counts().by_idempotency_key.values().all(|times| *times == 1),
            "SEED={seed}: a call ran twice"
        );
        thoughts += book.returned_reasoning;
    }
    assert!(thoughts > 20, "only {thoughts} thoughts went back: this test no longer tests anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_cannot_decrypt_its_reasoning_is_retried_once_without_it() {
    let mut talk = StrictConversation::start().await;
    talk.run_turn("one", "fetch it", "completed").await;
    talk.strict.rotate_keys();
    let task = talk.start_run("one", "go on").await;
    talk.expect_status(&task, "completed").await;
    assert_eq!(talk.strict.state().refusals.len(), 1);
    let frames = talk.server.frames(&format!("/v1/tasks/{task}/events"), None).await;
    let resent = |frame: &&SseFrame| frame.data["event"]["type"] == "headwater.history_resent";
    assert_eq!(frames.iter().filter(resent).count(), 1, "the log says that it was asked twice");
    let book = talk.strict.state();
    let input = book.accepted_requests.last().unwrap()["input"].as_array().unwrap();
    assert!(input.iter().all(|item| item["id"].is_null() && item["type"] != "reasoning"), "{input:#?}");
    assert!(input.iter().any(|item| item["type"] == "function_call_output"), "what was done is still told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undecryptable_reasoning_costs_each_thread_one_refusal_and_new_reasoning_is_resent() {
    let mut talk = StrictConversation::start().await;
    let mut threads = [None, None, None];
    for thread in threads.iter_mut().take(2) {
        talk.thread = None;
        talk.run_turn("one", "fetch it", "completed").await;
        thread.clone_from(&talk.thread);
    }
    talk.strict.rotate_keys();
    // Turn by turn, so that refusals of different threads could be confused. The third starts with the new keys.
    for number in 0..6 {
        for thread in &mut threads {
            talk.thread.clone_from(thread);
            talk.run_turn("one", &format!("compare them {number}"), "completed").await;
            thread.clone_from(&talk.thread);
        }
    }
    assert_eq!(talk.strict.state().refusals.len(), 2, "{:?}", talk.strict.state().refusals);
    // Each turn has reasoning before its calls and after them; those of the last are not all resent yet.
    for (request, whole) in talk.strict.state().accepted_requests.iter().rev().take(6).zip([11, 10, 11, 10, 11, 10]) {
        assert_eq!(thoughts(request), whole, "{request:#}");
    }
    // After a restart it is forgotten and learnt again.
    talk.crash();
    for number in 6..9 {
        talk.thread.clone_from(&threads[0]);
        talk.run_turn("one", &format!("compare them {number}"), "completed").await;
    }
    let book = talk.strict.state();
    assert_eq!(book.refusals.len(), 3, "{:?}", book.refusals);
    assert_eq!(thoughts(book.accepted_requests.last().unwrap()), 5);
    assert_eq!((&book.unknown_ids, &book.altered_items), (&Vec::new(), &Vec::new()));
}

fn thoughts(request: &Value) -> usize {
    let input = request["input"].as_array().unwrap();
    input.iter().filter(|item| item["type"] == "reasoning").count()
}
