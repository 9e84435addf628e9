//! Generated images: URLs in the log, inline for Responses clients, and sent back to the model.

use super::{
    data_url, greeting_actions, image_part as picture_of, kill_and_verify, png, short, start_with_providers,
    stored_blobs, take_bodies,
};
use crate::auth::create_key;
use crate::fake_provider::dialect::{DIALECTS, ProviderDialect};
use crate::fake_provider::loopback::{ReceivedRequest, ResponseAction, stream_head};
use crate::harness::Server;
use crate::responses::{create_response, get_response, parse_events};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const KIND: &str = "image_generation_call";

/// A service that reasons, generates these images with partial steps, and describes them.
fn draws(pictures: &[Vec<u8>]) -> impl Fn(&ReceivedRequest) -> Vec<ResponseAction> + Send + Sync + 'static {
    let pictures: Vec<String> = pictures.iter().map(|picture| STANDARD.encode(picture)).collect();
    let response = |status: &str, output: Value| {
        let (id, object) = ("resp_1", "response");
        json!({"id": id, "object": object, "created_at": 1, "model": "m", "status": status, "output": output})
    };
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"});
    let begun = json!({"type": KIND, "id": "ig_1", "status": "in_progress"});
    let drawn = json!({"type": KIND, "id": "ig_1", "status": "completed", "output_format": "png",
        "result": pictures.last().unwrap()});
    let text = json!([{"type": "output_text", "text": "There.", "annotations": []}]);
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text});
    let mut all = vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": thought}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": begun}),
    ];
    for (index, picture) in pictures.iter().enumerate() {
        all.push(json!({"type": "response.image_generation_call.partial_image", "item_id": "ig_1", "output_index": 1,
            "partial_image_index": index, "partial_image_b64": picture, "output_format": "png"}));
    }
    let output = json!([thought, drawn, said]);
    all.push(json!({"type": "response.output_item.done", "output_index": 1, "item": drawn}));
    all.push(json!({"type": "response.output_item.done", "output_index": 2, "item": said}));
    all.push(json!({"type": "response.completed", "response": response("completed", output)}));
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let answer: String = all.iter().map(frame).collect();
    move |_| vec![stream_head(), ResponseAction::Send(answer.clone().into_bytes())]
}

/// Every image in the events of a stream.
fn pictures(events: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for event in events {
        let items = [&event["item"]].into_iter().chain(event["response"]["output"].as_array().into_iter().flatten());
        let drawn = items.filter(|item| item["type"] == KIND).map(|item| &item["result"]);
        let all = [&event["partial_image_b64"]].into_iter().chain(drawn);
        found.extend(all.filter_map(Value::as_str).map(str::to_owned));
    }
    found
}

#[tokio::test]
async fn a_generated_image_is_a_url_in_the_log_and_inline_for_responses_clients() {
    let drawn = [png(40_000, 1), png(1_000_000, 2)];
    let base64: Vec<String> = drawn.iter().map(|picture| STANDARD.encode(picture)).collect();
    let (hw, heard) = start_with_providers("", draws(&drawn)).await;
    let address = "/v1/blobs/0000000000000000000000000000000000000000000000000000000000000000";
    let body = json!({"model": "to_responses", "input": "Draw.", "metadata": {"result": address}});
    let mut streamed = body.clone();
    streamed["stream"] = true.into();

    let text = hw.post("/v1/responses", streamed).await.text;
    let all = parse_events(&text);
    let [sketch, picture] = base64.as_slice() else { panic!() };
    let shown = pictures(&all);
    assert!(shown == [sketch.clone(), picture.clone(), picture.clone(), picture.clone()], "{} pictures", shown.len());
    let response = &all.last().unwrap()["response"];
    assert_eq!(response["metadata"]["result"], address, "an address elsewhere is an address");
    let id = response["id"].as_str().unwrap();
    assert!(get_response(&hw, &response["id"]).await == *response, "what was streamed is what is kept");
    for place in 0..all.len() {
        let rest = parse_events(&hw.get(&format!("/v1/responses/{id}?stream=true&starting_after={place}")).await.text);
        assert!(rest == all[place + 1..], "after {place}");
    }
    assert!(create_response(&hw, body).await["output"][1]["result"] == picture.as_str());

    let run = id.replace("resp_", "task_");
    let log = hw.get(&format!("/v1/tasks/{run}/events")).await.text;
    assert!(log.contains("/v1/blobs/") && !log.contains("base64") && log.len() < 100_000, "{}", log.len());
    let items = hw.get(&format!("/v1/tasks/{run}/events?format=run-items")).await.text;
    assert!(items.contains(picture.as_str()), "its frames carry those of Responses");
    assert_eq!(stored_blobs(&hw).len(), 2);

    take_bodies(&heard);
    let again = json!({"model": "to_responses", "input": "Make it blue.", "previous_response_id": id});
    create_response(&hw, again).await;
    let body = take_bodies(&heard).remove(0);
    let given: Vec<&Value> = body["input"].as_array().unwrap().iter().collect();
    let kinds: Vec<&str> = given.iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "reasoning", KIND, "message", "message"], "{}", short(&body));
    assert!(given[2]["result"] == picture.as_str(), "{}", short(given[2]));
    kill_and_verify(hw);
}

#[tokio::test]
async fn a_replay_gives_the_inline_images_that_a_client_got() {
    let (hw, _) = start_with_providers("", draws(&[png(3_000, 1), png(200_000, 2)])).await;
    let body = json!({"model": "to_responses", "input": "Draw.", "stream": true});
    let told = hw.post("/v1/responses", body).await.text;
    let id = parse_events(&told)[0]["response"]["id"].as_str().unwrap().to_owned();
    for protocol in ["responses", "run-items"] {
        let replayed = hw.run_cli(&["replay", &id, "--as", protocol, "--fast"]);
        let replayed = String::from_utf8(replayed.stdout).unwrap();
        let told = match protocol {
            "responses" => told.clone(),
            _ => hw.get(&format!("/v1/tasks/{}/events?format=run-items", id.replace("resp_", "task_"))).await.text,
        };
        let data = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with("data: ")).map(str::to_owned).collect()
        };
        assert!(data(&replayed) == data(&told), "{protocol}: {} and {} bytes", replayed.len(), told.len());
    }
}

#[tokio::test]
async fn an_image_whose_bytes_are_lost_is_empty() {
    let (hw, _) = start_with_providers("", draws(&[png(3_000, 1)])).await;
    let response = create_response(&hw, json!({"model": "to_responses", "input": "Draw."})).await;
    assert_eq!(response["output"][1]["result"], STANDARD.encode(png(3_000, 1)));
    std::fs::remove_dir_all(hw.data_dir().join("files/blobs")).unwrap();
    let now = get_response(&hw, &response["id"]).await;
    assert_eq!((&now["output"][1]["type"], &now["output"][1]["result"]), (&json!(KIND), &json!("")));
    let path = format!("/v1/responses/{}?stream=true", response["id"].as_str().unwrap());
    assert_eq!(pictures(&parse_events(&hw.get(&path).await.text)), ["", "", ""]);
}

#[tokio::test]
async fn a_share_shows_generated_images_and_a_conversation_lists_them() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    let hw = {
        let owner = create_key(&hw, "owner");
        hw.with_key(&owner)
    };
    let conversation = hw.post("/v1/conversations", json!({})).await.json()["id"].clone();
    let body = json!({"model": "demo", "input": "image", "conversation": conversation});
    let response = create_response(&hw, body).await;
    let is_drawn = |item: &&Value| item["type"] == KIND;
    let drawn = response["output"].as_array().unwrap().iter().find(is_drawn).unwrap();
    assert!(STANDARD.decode(drawn["result"].as_str().unwrap()).unwrap().starts_with(b"\x89PNG"), "{drawn}");

    let items = format!("/v1/conversations/{}/items", conversation.as_str().unwrap());
    let listed = hw.get(&items).await.json();
    assert_eq!(listed["data"].as_array().unwrap().iter().find(is_drawn), Some(drawn));
    assert_eq!(hw.get(&format!("{items}/{}", drawn["id"].as_str().unwrap())).await.json(), *drawn);

    let id = response["id"].as_str().unwrap();
    let thread = hw.get(&format!("/v1/tasks/{}", id.replace("resp_", "task_"))).await.json()["thread_id"].clone();
    let shares = format!("/v1/threads/{}/shares", thread.as_str().unwrap());
    let mut tokens = Vec::new();
    for mode in ["live", "frozen"] {
        let share = hw.post(&shares, json!({ "mode": mode })).await.json();
        tokens.push(share["token"].as_str().unwrap().to_owned());
    }
    let mut viewer = hw;
    for token in tokens {
        viewer = viewer.with_key(&token);
        assert!(get_response(&viewer, &response["id"]).await == response);
        let streamed = parse_events(&viewer.get(&format!("/v1/responses/{id}?stream=true")).await.text);
        assert!(streamed.last().unwrap()["response"] == response);
    }
}

#[tokio::test]
async fn images_of_the_demo_are_urls() {
    let hw = Server::demo();
    for input in ["weather", "image"] {
        let task = hw.start_run(input).await;
        let id = task["task_id"].as_str().unwrap();
        let ended = hw.wait_ended(id).await;
        let log = hw.get(&format!("/v1/tasks/{id}/events")).await.text + &ended.to_string();
        assert!(log.contains("/v1/blobs/") && !log.contains(&data_url("image/png", b"")), "{input}: {log}");
    }
}

/// A Chat Completions answer with text and an image.
fn shows(words: &str, picture: &[u8]) -> Vec<ResponseAction> {
    let picture = json!({"type": "image_url", "image_url": {"url": data_url("image/png", picture)}});
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk =
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let said = chunk(json!({"role": "assistant", "content": words}), Value::Null);
    let shown = chunk(json!({ "images": [picture] }), Value::Null);
    let answer = [said, shown, chunk(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()].concat();
    vec![stream_head(), ResponseAction::Send(answer.into_bytes())]
}

#[tokio::test]
async fn an_image_in_a_message_reaches_the_next_model() {
    let drawn = png(10_000, 5);
    let picture = drawn.clone();
    let (hw, heard) = start_with_providers("", move |asked| {
        let is_first = !asked.body.to_string().contains("There.");
        if is_first { shows("There.", &picture) } else { greeting_actions(asked) }
    })
    .await;
    let task = hw.post("/v1/tasks", json!({"model": "to_chat", "input": "Draw.", "wait": true})).await.json();
    assert_eq!(task["status"], "completed", "{task}");
    for d in DIALECTS {
        let more = json!({"model": format!("to_{}", d.name()), "input": "More.", "wait": true,
            "thread_id": task["thread_id"]});
        assert_eq!(hw.post("/v1/tasks", more).await.json()["status"], "completed");
        let told = take_bodies(&heard).pop().unwrap().to_string();
        assert_eq!(told.matches(&picture_of(d, &drawn).to_string()).count(), 1, "{d:?}: {told:.2000}");
        assert!(told.find("There.") < told.find("More."), "{d:?}");
    }
    kill_and_verify(hw);
}

#[tokio::test]
async fn an_image_of_a_sub_agent_reaches_its_parent() {
    const ARTIST: &str = "[agents.artist]\nmodel = \"chat/artist\"\ndescription = \"Draws.\"\n\
        [tools.work]\nkind = \"agent\"\nagent = \"artist\"\n";
    let drawn = png(10_000, 6);
    let picture = drawn.clone();
    let (hw, heard) = start_with_providers(ARTIST, move |asked| {
        let d = ProviderDialect::from_path(&asked.path);
        match asked.body["model"].as_str() {
            Some("artist") => shows("", &picture),
            _ if d.has_results(&asked.body) => greeting_actions(asked),
            _ => {
                let (item, id, given) = ("fc_1", "call_1", r#"{"prompt":"A tree."}"#);
                let call =
                    d.call_start(0, item, id) + &d.arguments_delta(0, item, given) + &d.call_end(0, item, id, given);
                vec![
                    stream_head(),
                    ResponseAction::Send([d.answer_start(), call, d.terminal_event(true, 9, 4)].concat().into_bytes()),
                ]
            }
        }
    })
    .await;
    for d in DIALECTS {
        let body = json!({"model": format!("to_{}", d.name()), "input": "Have it drawn.", "wait": true});
        let task = hw.post("/v1/tasks", body).await.json();
        assert_eq!(task["status"], "completed", "{task}");
        let told = take_bodies(&heard).pop().unwrap().to_string();
        assert_eq!(told.matches(&picture_of(d, &drawn).to_string()).count(), 1, "{d:?}: {told:.2000}");
    }
    kill_and_verify(hw);
}
