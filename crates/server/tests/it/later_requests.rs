//! What the request that answers a run says about model, instructions, tools and sampling counts from the next model turn
//! on. A history that comes back with other ids is still that history.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use crate::responses::{create_response, output_text};
use serde_json::{Value, json};

const UP: ProviderDialect = ProviderDialect::Responses;

/// A model that calls `a`, then `b` if it is declared, and then answers.
async fn calling_server(more: &str) -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(|dialect, body| {
        let tools = dialect.tool_names(body);
        match dialect.results(body).len() {
            0 if tools.contains(&"a".to_owned()) => dialect.full_call("a", "{}"),
            1 if tools.contains(&"b".to_owned()) => dialect.full_call("b", "{}"),
            _ => dialect.full_answer("Done."),
        }
    })
    .await;
    let server = Server::with_config(&(upstream.agents("") + more), "");
    (upstream, server)
}

fn asked(upstream: &RecordingUpstream) -> (Value, String, Vec<String>, Value) {
    let body = upstream.last_request(UP);
    (body["model"].clone(), UP.instructions(&body), UP.tool_names(&body), body["temperature"].clone())
}

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}})
}

fn call_of(response: &Value) -> &Value {
    let items = response["output"].as_array().unwrap();
    items.iter().find(|item| item["type"] == "function_call").unwrap_or_else(|| panic!("no call: {response}"))
}

fn output(call: &Value) -> Value {
    json!({"type": "function_call_output", "call_id": call["call_id"], "output": "red"})
}

#[tokio::test]
async fn a_later_responses_request_counts_from_the_next_turn_on() {
    for is_chained in [true, false] {
        let (upstream, mut hw) = calling_server("").await;
        let first = create_response(
            &hw,
            json!({"model": "responses/one", "instructions": "ONE", "tools": [function("a")], "temperature": 0.1,
                "input": "go"}),
        )
        .await;
        let expected = (json!("one"), "ONE".to_owned(), vec!["a".to_owned()], json!(0.1));
        assert_eq!(asked(&upstream), expected);
        let a = call_of(&first).clone();
        let next = |before: &Value, items: Vec<Value>, answer: Value, mut request: Value| {
            if is_chained {
                request["previous_response_id"] = before["id"].clone();
                request["input"] = json!([answer]);
            } else {
                request["input"] = items.into_iter().chain([answer]).collect();
            }
            request
        };
        let go = json!({"role": "user", "content": "go"});
        let request =
            json!({"model": "responses/two", "instructions": "TWO", "tools": [function("b")], "temperature": 0.9});
        // The update survives a crash like the answer that it came with.
        let second = create_response(&hw, next(&first, vec![go.clone(), a.clone()], output(&a), request)).await;
        let expected = (json!("two"), "TWO".to_owned(), vec!["b".to_owned()], json!(0.9));
        assert_eq!(asked(&upstream), expected, "chained: {is_chained}");
        assert_eq!((&second["model"], &second["instructions"]), (&json!("responses/two"), &json!("TWO")));
        let b = call_of(&second).clone();
        assert_eq!(b["name"], "b", "the new tool can be called");
        hw.kill9();
        hw.restart();
        // `b` is no longer declared, and its call can still be answered.
        let request = json!({"model": "responses/three"});
        let items = vec![go, a.clone(), output(&a), b.clone()];
        let third = create_response(&hw, next(&second, items, output(&b), request)).await;
        assert_eq!(output_text(&third), "Done.", "chained: {is_chained}");
        assert_eq!(asked(&upstream), (json!("three"), String::new(), vec![], Value::Null), "chained: {is_chained}");
        let results = UP.results(&upstream.last_request(UP));
        assert_eq!(results, ["\"red\"", "\"red\""], "chained: {is_chained}");
    }
}

#[tokio::test]
async fn a_later_chat_request_counts_from_the_next_turn_on() {
    let (upstream, hw) = calling_server("").await;
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]);
    let user = json!({"role": "user", "content": "go"});
    let post = async |body: Value| {
        let reply = hw.post("/v1/chat/completions", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["choices"][0]["message"].clone()
    };
    let first = post(json!({"model": "responses/one", "tools": tool("a"), "temperature": 0.1,
        "messages": [{"role": "system", "content": "ONE"}, user]}))
    .await;
    assert_eq!(asked(&upstream), (json!("one"), "ONE".to_owned(), vec!["a".to_owned()], json!(0.1)));
    let result =
        |message: &Value| json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "red"});
    let system = json!({"role": "system", "content": "TWO"});
    let second = post(json!({"model": "responses/two", "tools": tool("b"), "temperature": 0.9,
        "messages": [system, user, first, result(&first)]}))
    .await;
    assert_eq!(asked(&upstream), (json!("two"), "TWO".to_owned(), vec!["b".to_owned()], json!(0.9)));
    assert_eq!(second["tool_calls"][0]["function"]["name"], "b");
    let third = post(json!({"model": "responses/two",
        "messages": [system, user, first, result(&first), second, result(&second)]}))
    .await;
    assert_eq!(third["content"], "Done.");
    // The runners of SDKs may declare their tools in the first request alone.
    assert_eq!(asked(&upstream), (json!("two"), "TWO".to_owned(), vec!["b".to_owned()], Value::Null));
}

#[tokio::test]
async fn a_later_messages_request_counts_from_the_next_turn_on() {
    let (upstream, hw) = calling_server("").await;
    let tool = |name: &str| json!([{"name": name, "input_schema": {"type": "object"}}]);
    let user = json!({"role": "user", "content": "go"});
    let post = async |mut body: Value| {
        body["max_tokens"] = json!(100);
        let reply = hw.post("/v1/messages", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()["content"].clone()
    };
    let first = post(json!({"model": "responses/one", "system": "ONE", "tools": tool("a"), "temperature": 0.1,
        "messages": [user]}))
    .await;
    assert_eq!(asked(&upstream), (json!("one"), "ONE".to_owned(), vec!["a".to_owned()], json!(0.1)));
    let result = |content: &Value| {
        let call = content.as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "red"}]})
    };
    let said = |content: &Value| json!({"role": "assistant", "content": content});
    let second = post(json!({"model": "responses/two", "system": "TWO", "tools": tool("b"), "temperature": 0.9,
        "messages": [user, said(&first), result(&first)]}))
    .await;
    assert_eq!(asked(&upstream), (json!("two"), "TWO".to_owned(), vec!["b".to_owned()], json!(0.9)));
    assert!(second.as_array().unwrap().iter().any(|block| block["name"] == "b"), "{second}");
    let third = post(json!({"model": "responses/two",
        "messages": [user, said(&first), result(&first), said(&second), result(&second)]}))
    .await;
    assert!(third.as_array().unwrap().iter().any(|block| block["text"] == "Done."), "{third}");
    assert_eq!(asked(&upstream), (json!("two"), String::new(), vec!["b".to_owned()], Value::Null));
}

const HANDOFF: &str = r#"
[agents.front]
model = "responses/front"
handoffs = ["back"]
[agents.back]
model = "responses/back"
instructions = "I am the back office."
"#;

#[tokio::test]
async fn a_repeated_model_does_not_undo_a_hand_off() {
    let upstream =
        RecordingUpstream::start(|dialect, body| match (body["model"].as_str(), dialect.results(body).len()) {
            (Some("front"), _) => dialect.full_call("transfer_to_back", "{}"),
            (_, 1) => dialect.full_call("a", "{}"),
            _ => dialect.full_answer("Done."),
        })
        .await;
    let hw = Server::with_config(&(upstream.agents("") + HANDOFF), "");
    let first = create_response(&hw, json!({"model": "front", "tools": [function("a")], "input": "go"})).await;
    let answer = json!({"model": "front", "tools": [function("a")], "previous_response_id": first["id"],
        "input": [output(call_of(&first))]});
    let second = create_response(&hw, answer).await;
    assert_eq!(output_text(&second), "Done.");
    let (model, instructions, ..) = asked(&upstream);
    assert_eq!((model, instructions.as_str()), (json!("back"), "I am the back office."));
}

#[tokio::test]
async fn an_answer_with_an_unknown_model_is_refused_and_changes_nothing() {
    let (upstream, hw) = calling_server("").await;
    let first = create_response(&hw, json!({"model": "responses/one", "tools": [function("a")], "input": "go"})).await;
    let mut answer =
        json!({"model": "nobody", "previous_response_id": first["id"], "input": [output(call_of(&first))]});
    let refused = hw.post("/v1/responses", answer.clone()).await;
    assert!((400..500).contains(&refused.status) && refused.text.contains("nobody"), "{}", refused.text);
    assert_eq!(upstream.requests(UP).len(), 1);
    answer["model"] = json!("responses/one");
    assert_eq!(output_text(&create_response(&hw, answer).await), "Done.");
}

#[tokio::test]
async fn a_client_that_names_another_agent_continues_with_it() {
    let more = "\n[agents.sales]\nmodel = \"responses/sales\"\ninstructions = \"I sell.\"\n\
        [agents.support]\nmodel = \"responses/support\"\ninstructions = \"I help.\"\n";
    let (upstream, hw) = calling_server(more).await;
    let first = create_response(&hw, json!({"model": "sales", "tools": [function("a")], "input": "go"})).await;
    let second = create_response(
        &hw,
        json!({"model": "support", "previous_response_id": first["id"], "input": [output(call_of(&first))]}),
    )
    .await;
    let (model, instructions, ..) = asked(&upstream);
    assert_eq!((model, instructions.as_str()), (json!("support"), "I help."));
    let task = format!("/v1/tasks/task_{}", first["id"].as_str().unwrap().trim_start_matches("resp_"));
    let frames = hw.frames(&format!("{task}/events"), None).await;
    let updated = &frames.iter().find(|frame| frame.event == "task.agent.updated").expect("it is recorded").data;
    assert_eq!((&updated["from"], &updated["agent"]), (&json!("sales"), &json!("support")));
    assert_eq!(output_text(&second), "Done.");
}

/// The roles and texts of the messages of the last model request, and the types of its other items.
fn last_input(upstream: &RecordingUpstream) -> Vec<String> {
    let line = |item: &Value| {
        let words = |value: &Value| match value {
            Value::String(text) => text.clone(),
            parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
        };
        match item["role"].as_str() {
            Some(role) => format!("{role}: {}", words(&item["content"])),
            None => item["type"].as_str().unwrap().to_owned(),
        }
    };
    let body = upstream.last_request(UP);
    let items = body["input"].as_array().unwrap().iter().map(line);
    items.filter(|line| line != "reasoning").collect()
}

#[tokio::test]
async fn a_history_whose_ids_were_removed_or_replaced_is_given_once() {
    let changes: [fn(&mut Value); 2] =
        [|item| drop(item.as_object_mut().unwrap().remove("id")), |item| item["id"] = json!("msg_of_somebody_else")];
    for change in changes {
        let (upstream, hw) = calling_server("").await;
        let user = |text: &str| json!({"role": "user", "content": text});
        let request = |items: &[Value]| json!({"model": "responses/one", "tools": [function("a")], "input": items});
        let altered = |response: &Value| {
            let items = response["output"].as_array().unwrap().iter();
            let mut kept: Vec<Value> = items.filter(|item| item["type"] != "reasoning").cloned().collect();
            kept.iter_mut().for_each(change);
            kept
        };
        let mut history = vec![user("go")];
        let first = create_response(&hw, request(&history)).await;
        history.extend(altered(&first));
        history.push(output(call_of(&first)));
        let second = create_response(&hw, request(&history)).await;
        assert_eq!(output_text(&second), "Done.");
        let mut expected = vec!["user: go", "function_call", "function_call_output"];
        for (question, line) in [("next", "user: next"), ("and then?", "user: and then?")] {
            history.extend(altered(&second));
            history.push(user(question));
            let answer = create_response(&hw, request(&history)).await;
            assert_eq!(output_text(&answer), "Done.");
            expected.extend(["assistant: Done.", line]);
            assert_eq!(last_input(&upstream), expected);
        }
        let threads = hw.get("/v1/threads").await.json();
        assert_eq!(threads["data"].as_array().unwrap().len(), 1, "it is one conversation: {threads}");
    }
}
