//! Tools that a Responses service runs, and the settings that it alone knows: clients get them as the service sent them.

use super::{start_with_providers, take_bodies};
use crate::fake_provider::loopback::{ReceivedRequest, ResponseAction, stream_head};
use crate::responses::{create_response, parse_events};
use serde_json::{Value, json};

const IMAGE_URL: &str = "https://files.example/x.png";

/// A service whose MCP call fails, whose image is on the web, and whose answer has log probabilities.
fn answer(_: &ReceivedRequest) -> Vec<ResponseAction> {
    let arguments = r#"{"question":"how?"}"#;
    let ask = json!({"type": "mcp_call", "id": "mcp_1", "name": "ask", "server_label": "deepwiki", "arguments": "",
        "status": "in_progress"});
    let asked = json!({"type": "mcp_call", "id": "mcp_1", "name": "ask", "server_label": "deepwiki", "status": "failed",
        "arguments": arguments, "error": "no such page"});
    let drawn = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": IMAGE_URL});
    let logprobs = json!([{"token": "There.", "logprob": -0.25, "top_logprobs": [], "bytes": [84]}]);
    let text = json!([{"type": "output_text", "text": "There.", "annotations": [], "logprobs": logprobs}]);
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text});
    let response = |status: &str, output: Value| {
        json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status,
            "service_tier": "priority", "output": output})
    };
    let at = |kind: &str, more: Value| {
        let mut event = json!({"type": kind, "item_id": "mcp_1", "output_index": 0});
        event.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        event
    };
    let events = [
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": ask}),
        at("response.mcp_call.in_progress", json!({})),
        at("response.mcp_call_arguments.delta", json!({"delta": arguments})),
        at("response.mcp_call_arguments.done", json!({"arguments": arguments})),
        at("response.mcp_call.failed", json!({})),
        json!({"type": "response.output_item.done", "output_index": 0, "item": asked}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": drawn}),
        json!({"type": "response.output_item.done", "output_index": 2, "item": said}),
        json!({"type": "response.completed", "response": response("completed", json!([asked, drawn, said]))}),
    ];
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    vec![stream_head(), ResponseAction::Send(events.iter().map(frame).collect::<String>().into_bytes())]
}

#[tokio::test]
async fn a_failed_mcp_call_and_an_image_on_the_web_are_as_they_are_upstream() {
    let (hw, heard) = start_with_providers("", answer).await;
    let body = json!({"model": "to_responses", "input": "Draw.", "stream": true});
    let events = parse_events(&hw.post("/v1/responses", body).await.text);
    let of_call = |event: &&Value| event["type"].as_str().is_some_and(|name| name.contains("mcp_call"));
    let names: Vec<&str> = events.iter().filter(of_call).filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        names,
        [
            "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.failed",
        ]
    );
    let added = events.iter().find(|event| event["type"] == "response.output_item.added").unwrap();
    assert_eq!((&added["item"]["name"], &added["item"]["server_label"]), (&json!("ask"), &json!("deepwiki")));
    let response = &events.last().unwrap()["response"];
    let [call, image, _] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
    assert_eq!((&call["status"], &call["error"]), (&json!("failed"), &json!("no such page")));
    assert_eq!((&call["name"], &call["server_label"]), (&json!("ask"), &json!("deepwiki")));
    assert_eq!((&image["status"], &image["result"]), (&json!("completed"), &json!(IMAGE_URL)));

    take_bodies(&heard);
    create_response(&hw, json!({"model": "to_responses", "input": "Again.", "previous_response_id": response["id"]}))
        .await;
    let input = take_bodies(&heard).remove(0)["input"].clone();
    let sent_back = input.as_array().unwrap().iter().find(|item| item["type"] == "image_generation_call");
    assert_eq!(sent_back.unwrap()["result"], IMAGE_URL, "{input}");
}

#[tokio::test]
async fn log_probabilities_and_the_tier_are_asked_for_and_passed_on() {
    let (hw, heard) = start_with_providers("", answer).await;
    let include = "message.output_text.logprobs";
    let body = json!({"model": "to_responses", "input": "Draw.", "include": [include], "top_logprobs": 3,
        "service_tier": "flex"});
    let response = create_response(&hw, body).await;
    let sent = take_bodies(&heard).remove(0);
    assert_eq!((&sent["top_logprobs"], &sent["service_tier"]), (&json!(3), &json!("flex")));
    assert!(sent["include"].as_array().unwrap().contains(&json!(include)), "{}", sent["include"]);
    assert_eq!(response["service_tier"], "priority");
    assert_eq!(response["output"][2]["content"][0]["logprobs"][0]["logprob"], -0.25);
    let plain = create_response(&hw, json!({"model": "to_responses", "input": "Draw."})).await;
    let sent = take_bodies(&heard).remove(0);
    assert_eq!((sent.get("top_logprobs"), sent.get("service_tier")), (None, None));
    assert_eq!(plain["service_tier"], "priority");
}
