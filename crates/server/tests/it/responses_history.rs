//! What a response continues from: chains, forks and queues, histories from clients, and what of all that reaches the
//! model, as the model sees it.

use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ResponseAction, stream_head};
use crate::harness::Server;
use crate::responses::{create_response, get_response, output_text, parse_error, parse_events};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A server whose agent `far` has a model that records its requests, and `near` one that counts slowly.
struct RecordingServer {
    hw: Server,
    requests: Arc<Mutex<Vec<Value>>>,
    _far: Loopback,
}

async fn recording_server() -> RecordingServer {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&asked);
    let far = Loopback::start(move |asked| {
        book.lock().unwrap().push(asked.body);
        vec![stream_head(), ResponseAction::Send(ProviderDialect::Responses.full_answer("Yes.").into_bytes())]
    })
    .await;
    let config = format!(
        "[agents.far]\nmodel = \"up/any\"\ninstructions = \"Own words.\"\n[agents.near]\nmodel = \"mine/near\"\n\
         [providers.up]\nkind = \"openai-responses\"\nbase_url = \"{}\"\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n",
        far.url("/v1")
    );
    let scenarios = "[[scenario]]\nmatch = 'count (?<n>[0-9]+)'\n[[scenario.turn]]\n\
         steps = [{ text = \"{i} \", repeat = \"{n}\", every_ms = 20 }]\n\
         [[scenario]]\nmatch = 'long'\n[[scenario.turn]]\n\
         steps = [{ text = \"0123456789 and so on and on and on, \", repeat = 3000 }]\n\
         [[scenario]]\nmatch = 'empty'\n[[scenario.turn]]\nsteps = [{ text = \"\" }]\n\
         [[scenario]]\n[[scenario.turn]]\nsteps = [{ text = \"Hello.\" }]\n";
    RecordingServer { hw: Server::with_config(&config, scenarios), requests: asked, _far: far }
}

impl RecordingServer {
    /// The model's last request, one line per message: role and text.
    fn last_input(&self) -> Vec<String> {
        let last = self.requests.lock().unwrap().last().unwrap().clone();
        last["input"].as_array().unwrap().iter().map(input_line).collect()
    }

    async fn respond_with_upstream(&self, mut more: Value) -> Value {
        more["model"] = "far".into();
        create_response(&self.hw, more).await
    }

    /// A response that takes a while.
    async fn respond_in_background(&self, mut more: Value) -> Value {
        more["model"] = "near".into();
        more["background"] = true.into();
        create_response(&self.hw, more).await
    }

    async fn wait_ended(&self, response: &Value) -> Value {
        let path = format!("/v1/responses/{}?stream=true", response["id"].as_str().unwrap());
        parse_events(&self.hw.get(&path).await.text).last().unwrap()["response"].clone()
    }
}

fn input_line(item: &Value) -> String {
    let words = |value: &Value| match value {
        Value::String(text) => text.clone(),
        parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    };
    match item["type"].as_str().unwrap() {
        "message" => format!("{}: {}", item["role"].as_str().unwrap(), words(&item["content"])),
        "function_call_output" => format!("output: {}", words(&item["output"])),
        other => other.to_owned(),
    }
}

#[tokio::test]
async fn model_settings_reach_the_model_once() {
    let house = recording_server().await;
    let wishes = json!({
        "input": "one", "instructions": "Also these.", "temperature": 0.25, "top_p": 0.5, "max_output_tokens": 77,
        "parallel_tool_calls": false, "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}},
        "tools": [{"type": "function", "name": "pick", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "pick"}, "include": ["reasoning.encrypted_content"],
    });
    let first = house.respond_with_upstream(wishes.clone()).await;
    let body = house.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!(body["instructions"], "Own words.\n\nAlso these.");
    for key in ["temperature", "top_p", "max_output_tokens", "parallel_tool_calls", "tool_choice"] {
        assert_eq!((&body[key], &first[key]), (&wishes[key], &wishes[key]), "{key}");
    }
    assert_eq!((&body["reasoning"]["effort"], &body["text"]["format"]["type"]), (&json!("low"), &json!("json_object")));
    let next = house.respond_with_upstream(json!({"previous_response_id": first["id"], "input": "two"})).await;
    let body = house.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!((&body["instructions"], &body["max_output_tokens"]), (&json!("Own words."), &Value::Null));
    assert_eq!((&next["instructions"], &next["temperature"]), (&Value::Null, &json!(1.0)));
    assert_eq!(house.last_input(), ["user: one", "assistant: Yes.", "user: two"]);
}

#[tokio::test]
async fn images_and_files_reach_the_model_and_are_returned_as_urls() {
    let house = recording_server().await;
    let parts = json!([{"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "file_url": "https://files.example/b.pdf"}]);
    let response = house.respond_with_upstream(json!({"input": [{"role": "user", "content": parts}]})).await;
    let path = format!("/v1/responses/{}/input_items", response["id"].as_str().unwrap());
    let shown = house.hw.get(&path).await.json()["data"][0]["content"].clone();
    assert_eq!((&shown[0], &shown[3]), (&parts[0], &parts[3]));
    assert_eq!((&shown[2]["filename"], &shown[2]["file_data"]), (&json!("a.pdf"), &Value::Null));
    for address in [&shown[1]["image_url"], &shown[2]["file_url"]] {
        assert!(address.as_str().unwrap().starts_with("/v1/blobs/"), "{shown}");
    }
    let body = house.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!(body["input"][0]["content"][2], parts[2]);
    for bad in [
        json!({"type": "input_file", "file_url": "hosts"}),
        json!({"type": "input_file", "file_data": "JVBERi0"}),
        json!({"type": "input_file", "file_data": ""}),
        json!({"type": "input_file", "file_id": "file-1"}),
        json!({"type": "input_image", "image_url": "ftp://pictures.example/a.png"}),
    ] {
        let body = json!({"model": "far", "input": [{"role": "user", "content": [bad]}]});
        assert_eq!(parse_error(&house.hw.post("/v1/responses", body).await).0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_fork_of_a_fork_has_only_its_own_history() {
    let house = recording_server().await;
    let one = house.respond_with_upstream(json!({"input": "one"})).await;
    let busy = house.respond_in_background(json!({"previous_response_id": one["id"], "input": "count 1000"})).await;
    let two = house.respond_with_upstream(json!({"previous_response_id": one["id"], "input": "two"})).await;
    assert_eq!(house.last_input(), ["user: one", "assistant: Yes.", "user: two"]);
    let busier = house.respond_in_background(json!({"previous_response_id": two["id"], "input": "count 1000"})).await;
    let three = house.respond_with_upstream(json!({"previous_response_id": two["id"], "input": "three"})).await;
    let past = ["user: one", "assistant: Yes.", "user: two", "assistant: Yes.", "user: three"];
    assert_eq!(house.last_input(), past);
    house.respond_with_upstream(json!({"previous_response_id": three["id"], "input": "four"})).await;
    assert_eq!(house.last_input(), [&past[..], &["assistant: Yes.", "user: four"]].concat());
    for response in [busy, busier] {
        let path = format!("/v1/responses/{}/cancel", response["id"].as_str().unwrap());
        assert_eq!(house.hw.post(&path, json!({})).await.json()["status"], "cancelled");
    }
    house.respond_with_upstream(json!({"previous_response_id": one["id"], "input": "off the head"})).await;
    assert_eq!(house.last_input(), ["user: one", "assistant: Yes.", "user: off the head"]);
}

#[tokio::test]
async fn a_response_that_continues_a_queued_one_is_queued_behind_it() {
    let house = recording_server().await;
    let first = house.respond_in_background(json!({"input": "count 30"})).await;
    let second = house.respond_in_background(json!({"previous_response_id": first["id"], "input": "hello"})).await;
    let third = house.respond_with_upstream(json!({"previous_response_id": second["id"], "input": "and now"})).await;
    assert_eq!(third["status"], "completed");
    let told = house.last_input();
    assert_eq!(told.len(), 5, "{told:?}");
    assert!(told[1].ends_with("29 30 ") && told[3] == "assistant: Hello." && told[4] == "user: and now", "{told:?}");
}

#[tokio::test]
async fn a_queued_response_has_its_input_and_a_stream_with_its_end() {
    let house = recording_server().await;
    let conversation = house.hw.post("/v1/conversations", json!({})).await.json();
    let busy = house.respond_in_background(json!({"conversation": conversation["id"], "input": "count 1000"})).await;
    let queued = house.respond_in_background(json!({"conversation": conversation["id"], "input": "hello"})).await;
    assert_eq!(queued["status"], "queued");
    let path = format!("/v1/responses/{}", queued["id"].as_str().unwrap());
    let asked = house.hw.get(&format!("{path}/input_items")).await.json();
    assert_eq!(asked["data"][0]["content"], json!([{"type": "input_text", "text": "hello"}]));
    let mut open = house.hw.open_stream(&format!("{path}?stream=true")).await;
    let cancelled = house.hw.post(&format!("{path}/cancel"), json!({})).await.json();
    assert_eq!(cancelled["status"], "cancelled");
    let told = open.read_to_end().await.unwrap().to_owned();
    let read = |text: &str| -> Vec<Value> {
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    };
    let events = read(&told);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response.created", "response.incomplete"]);
    assert_eq!(events[1]["response"], get_response(&house.hw, &queued["id"]).await);
    for place in 0..2 {
        let rest = house.hw.get(&format!("{path}?stream=true&starting_after={place}")).await;
        assert_eq!(read(&rest.text), events[place + 1..], "after {place}");
    }
    let busy = format!("/v1/responses/{}/cancel", busy["id"].as_str().unwrap());
    assert_eq!(house.hw.post(&busy, json!({})).await.status, 200);
}

#[tokio::test]
async fn prior_history_is_new_input_when_a_thread_is_named() {
    let house = recording_server().await;
    let elsewhere = house.respond_with_upstream(json!({"input": "elsewhere"})).await;
    let conversation = house.hw.post("/v1/conversations", json!({})).await.json();
    let brought = json!([{"role": "user", "content": "before"}, elsewhere["output"][0],
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "o"}, {"role": "user", "content": "now"}]);
    let past = ["user: before", "assistant: Yes.", "function_call", "output: o", "user: now"];
    house.respond_with_upstream(json!({"conversation": conversation["id"], "input": brought})).await;
    assert_eq!(house.last_input(), past);
    let one = house.respond_with_upstream(json!({"input": "one"})).await;
    house.respond_with_upstream(json!({"previous_response_id": one["id"], "input": brought})).await;
    assert_eq!(house.last_input(), [&["user: one", "assistant: Yes."], &past[..]].concat());
    // Without a named thread the ids identify it: everything before the last known id is known.
    house.respond_with_upstream(json!({"input": brought})).await;
    assert_eq!(house.last_input(), ["user: elsewhere", "assistant: Yes.", "function_call", "output: o", "user: now"]);
}

#[tokio::test]
async fn fifty_chained_responses_with_two_hundred_items_are_one_history() {
    let house = recording_server().await;
    let mut last = house.respond_with_upstream(json!({"input": "0"})).await;
    for number in 1..50 {
        last =
            house.respond_with_upstream(json!({"previous_response_id": last["id"], "input": number.to_string()})).await;
    }
    assert_eq!((house.last_input().len(), house.last_input()[98].as_str()), (99, "user: 49"));
    let items = |from: u32| -> Vec<Value> {
        (from..from + 20)
            .map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": n.to_string()}))
            .collect()
    };
    let conversation = house.hw.post("/v1/conversations", json!({"items": items(0)})).await.json();
    let path = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    for round in 1..10 {
        assert_eq!(house.hw.post(&path, json!({"items": items(round * 20)})).await.status, 200);
    }
    house.respond_with_upstream(json!({"conversation": conversation["id"], "input": "now"})).await;
    let expected: Vec<String> =
        (0..200).map(|n| format!("{}: {n}", if n % 2 == 0 { "user" } else { "assistant" })).collect();
    assert_eq!(house.last_input(), [expected, vec!["user: now".to_owned()]].concat());
    let (mut ids, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = house.hw.get(&format!("{path}?limit=37{after}")).await.json();
        ids.extend(page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        after = format!("&after={}", page["last_id"].as_str().unwrap());
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(ids.len(), 202);
}

#[tokio::test]
async fn thirty_viewers_of_which_half_disconnect() {
    let house = recording_server().await;
    let begun = house.respond_in_background(json!({"input": "count 60"})).await;
    let path = format!("/v1/responses/{}?stream=true", begun["id"].as_str().unwrap());
    let watch = async |number: u32| {
        let mut open = house.hw.open_stream(&path).await;
        if number.is_multiple_of(2) {
            open.read_until("response.output_text.delta").await;
            return None;
        }
        Some(open.read_to_end().await.unwrap().to_owned())
    };
    let seen = futures_util::future::join_all((0..30).map(watch)).await;
    let told: BTreeSet<Vec<String>> =
        seen.iter().flatten().map(|text| parse_events(text).iter().map(Value::to_string).collect()).collect();
    assert_eq!((seen.iter().flatten().count(), told.len()), (15, 1), "all who stay are told the same");
}

#[tokio::test]
async fn texts_of_any_length_are_complete() {
    let house = recording_server().await;
    for (input, length) in [("long", 3000 * 36), ("empty", 0)] {
        let begun = house.respond_in_background(json!({"input": input})).await;
        let last = house.wait_ended(&begun).await;
        assert_eq!((output_text(&last).len(), &last["status"]), (length, &json!("completed")), "{input}");
        assert_eq!(get_response(&house.hw, &begun["id"]).await, last, "{input}");
    }
}

#[tokio::test]
async fn the_end_of_a_response_is_a_valid_cursor_and_beyond_it_is_none() {
    let house = recording_server().await;
    let done = house.respond_with_upstream(json!({"input": "one"})).await;
    let path = format!("/v1/responses/{}", done["id"].as_str().unwrap());
    let count = parse_events(&house.hw.get(&format!("{path}?stream=true")).await.text).len();
    let at = |place: usize| format!("{path}?stream=true&starting_after={place}");
    assert!(parse_events(&house.hw.get(&at(count - 1)).await.text).is_empty());
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(house.hw.request(method, &at(count), &[], None).await.status, 400);
    }
    for (asked, status) in [("", 200), ("?stream=true", 200), ("/input_items", 200), ("_2", 404), ("?stream=x", 400)] {
        let reply = house.hw.request(Method::HEAD, &format!("{path}{asked}"), &[], None).await;
        assert_eq!((reply.status, reply.text.as_str()), (status, ""), "{asked}");
    }
    let live = house.respond_in_background(json!({"input": "count 50"})).await;
    let path = format!("/v1/responses/{}?stream=true", live["id"].as_str().unwrap());
    let ahead = house.hw.get(&format!("{path}&starting_after=5000")).await;
    assert_eq!((ahead.status, parse_events(&ahead.text)), (200, Vec::new()), "it waits until the response has ended");
    assert_eq!(parse_error(&house.hw.get(&format!("{path}&starting_after=5000")).await).2, "starting_after");
    assert_eq!(house.wait_ended(&live).await["status"], "completed");
}

#[tokio::test]
async fn deleting_a_running_response_ends_its_streams_with_an_error() {
    let house = recording_server().await;
    let begun = house.respond_in_background(json!({"input": "count 40"})).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let mut open = house.hw.open_stream(&format!("{path}?stream=true")).await;
    open.read_until("response.output_text.delta").await;
    assert_eq!(house.hw.request(Method::DELETE, &path, &[], None).await.status, 200);
    assert_eq!(parse_error(&house.hw.get(&path).await).0, 404);
    let told = parse_events(open.read_to_end().await.unwrap());
    assert_eq!(told.last().unwrap()["type"], "response.completed", "who was there already sees it to its end");
    // Deleting a thread deletes its responses, in the middle of a delta.
    let begun = house.respond_in_background(json!({"input": "count 1000"})).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let mut open = house.hw.open_stream(&format!("{path}?stream=true")).await;
    open.read_until("response.output_text.delta").await;
    let task =
        house.hw.get(&format!("/v1/tasks/{}", begun["id"].as_str().unwrap().replace("resp_", "task_"))).await.json();
    let thread = format!("/v1/threads/{}", task["thread_id"].as_str().unwrap());
    assert_eq!(house.hw.request(Method::DELETE, &thread, &[], None).await.status, 204);
    assert!(open.read_to_end().await.is_err(), "a stream that breaks is not one that ended");
    assert_eq!(parse_error(&house.hw.get(&path).await).0, 404);
    let on = json!({"model": "far", "previous_response_id": begun["id"], "input": "x"});
    assert_eq!(parse_error(&house.hw.post("/v1/responses", on).await).1, "previous_response_not_found");
}

/// Concurrent requests that add items keep each other's.
#[tokio::test(flavor = "multi_thread")]
async fn concurrently_added_items_are_all_kept() {
    let house = recording_server().await;
    for round in 0..5 {
        let conversation = house.hw.post("/v1/conversations", json!({})).await.json();
        let path = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
        let post = |text: String| {
            let body = json!({"items": [{"role": "user", "content": text}]});
            house.hw.post(&path, body)
        };
        let texts: Vec<String> = (0..6).map(|n| format!("item {n}")).collect();
        let replies = futures_util::future::join_all(texts.iter().cloned().map(post)).await;
        assert!(replies.iter().all(|reply| reply.status == 200), "round {round}");
        let listed = house.hw.get(&format!("{path}?limit=100")).await.json();
        let mut kept: Vec<&str> = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["content"][0]["text"].as_str().unwrap())
            .collect();
        kept.sort_unstable();
        assert_eq!(kept, texts, "round {round}");
    }
}
