//! Clients that resend their whole history: its images are stored once and recognised by their bytes.

use super::*;

/// The answer as a client sends it back.
async fn answered(hw: &Server, messages: &Value) -> Value {
    let body = json!({"model": "demo", "max_tokens": 1000, "messages": messages});
    let reply = hw.post("/v1/messages", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    json!({"role": "assistant", "content": reply.json()["content"]})
}

#[tokio::test]
async fn a_resent_image_is_recognised_and_the_conversation_continues() {
    let hw = Server::demo();
    let mut messages = vec![json!({"role": "user", "content": "weather"})];
    messages.push(answered(&hw, &json!(messages)).await);
    let picture = ApiProtocol::Messages.image_part(&picture_url("resent"));
    messages.push(json!({"role": "user", "content": [picture, {"type": "text", "text": "hello"}]}));
    messages.push(answered(&hw, &json!(messages)).await);
    messages.push(json!({"role": "user", "content": "help"}));
    answered(&hw, &json!(messages)).await;
    let tasks = hw.get("/v1/tasks").await.json();
    let tasks = tasks["data"].as_array().unwrap();
    assert_eq!((tasks.len(), hw.count_threads_and_records().await.0), (3, 1), "three runs of one thread");
    let newest = tasks[0]["task_id"].as_str().unwrap();
    let begun = hw.frames(&format!("/v1/tasks/{newest}/events"), None).await;
    let input = &begun[0].data["task"]["input"];
    assert_eq!(input[0]["content"], json!([{"type": "text", "text": "help"}]), "only what is new is said");
    assert_eq!(kept(&hw).iter().filter(|path| std::fs::read(path).unwrap() == png("resent")).count(), 1);
}

#[tokio::test]
async fn a_foreign_history_is_stored_with_its_images_and_validated() {
    for (way, words) in
        [(ApiProtocol::Messages, "text"), (ApiProtocol::Chat, "text"), (ApiProtocol::Responses, "input_text")]
    {
        let hw = Server::demo();
        let request = |url: &str| {
            let past = json!([
                {"role": "user", "content": [way.image_part(url), {"type": words, "text": "what is this?"}]},
                {"role": "assistant", "content": "A picture."},
                {"role": "user", "content": "hello"},
            ]);
            let field = if way == ApiProtocol::Responses { "input" } else { "messages" };
            let mut body = json!({"model": "demo", "max_tokens": 100});
            body[field] = past;
            body
        };
        assert_eq!(hw.post(way.path(), request("data:image/png;base64,****")).await.status, 400, "{way:?}");
        assert_eq!(hw.post(way.path(), request(&format!("/v1/blobs/{}", "0".repeat(64)))).await.status, 404, "{way:?}");
        assert_eq!((kept(&hw).len(), hw.count_threads_and_records().await), (0, (0, 0)), "{way:?}");
        for _ in 0..2 {
            let reply = hw.post(way.path(), request(&picture_url("past"))).await;
            assert_eq!(reply.status, 200, "{way:?}: {}", reply.text);
        }
        assert_eq!(kept(&hw).len(), 1, "{way:?}: once, however often it comes");
        assert_eq!(fetch_bytes(&hw, &blob(&png("past")), None).await, (200, png("past")), "{way:?}");
        // Every thread that it was sent to links it.
        let threads = hw.get("/v1/threads").await.json();
        let threads: Vec<&str> =
            threads["data"].as_array().unwrap().iter().map(|row| row["thread_id"].as_str().unwrap()).collect();
        assert_eq!(threads.len(), 2, "{way:?}");
        for (left, thread) in [(1, threads[0]), (0, threads[1])] {
            hw.request(Method::DELETE, &format!("/v1/threads/{thread}"), &[], None).await;
            assert_eq!(kept(&hw).len(), left, "{way:?}");
        }
    }
}

#[tokio::test]
async fn results_with_images_resume_a_run_in_every_protocol_that_has_them() {
    for way in [ApiProtocol::Messages, ApiProtocol::Responses] {
        let hw = crate::broker_fixture::broker_server("");
        let tool = match way {
            ApiProtocol::Messages => json!({"name": "locate", "input_schema": {"type": "object"}}),
            _ => json!({"type": "function", "name": "locate", "parameters": {"type": "object"}}),
        };
        let (field, said) = if way == ApiProtocol::Messages { ("messages", "content") } else { ("input", "output") };
        let mut body = json!({"model": "broker", "max_tokens": 1000, "tools": [tool]});
        body[field] = json!([{"role": "user", "content": "locate"}]);
        let first = hw.post(way.path(), body.clone()).await.json();
        let calls = first[said].as_array().unwrap_or_else(|| first["content"].as_array().unwrap());
        let is_call = |item: &&Value| matches!(item["type"].as_str(), Some("tool_use" | "function_call"));
        let call = calls.iter().find(is_call).unwrap_or_else(|| panic!("{first}")).clone();
        let answer = |url: &str| match way {
            ApiProtocol::Messages => json!([
                {"role": "user", "content": "locate"},
                {"role": "assistant", "content": first["content"]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call["id"], "content": [way.image_part(url)]},
                ]},
            ]),
            _ => json!([
                {"type": "function_call_output", "call_id": call["call_id"], "output": [way.image_part(url)]},
            ]),
        };
        body[field] = answer("data:image/png;base64,****");
        assert_eq!(hw.post(way.path(), body.clone()).await.status, 400, "{way:?}");
        body[field] = answer(&format!("/v1/blobs/{}", "0".repeat(64)));
        assert_eq!(hw.post(way.path(), body.clone()).await.status, 404, "{way:?}");
        assert_eq!(kept(&hw).len(), 0, "{way:?}");
        body[field] = answer(&picture_url("shot"));
        let reply = hw.post(way.path(), body.clone()).await;
        assert_eq!(reply.status, 200, "{way:?}: {}", reply.text);
        assert_eq!((kept(&hw).len(), hw.count_threads_and_records().await.0), (1, 1), "{way:?}");
        let log = all_events_text(&hw).await;
        assert!(log.contains(&blob(&png("shot"))) && !log.contains("base64"), "{way:?}: {log}");
    }
}
