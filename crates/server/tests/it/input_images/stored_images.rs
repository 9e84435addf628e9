//! Accepted images: stored once, logged as URLs, and readable by their sender.

use super::*;
use crate::broker_fixture::{broker_server, start_paused, tool_results, wait_outcome};

#[tokio::test]
async fn an_image_of_every_protocol_is_stored_and_logged_as_url() {
    for way in API_PROTOCOLS {
        let hw = Server::demo();
        let (picture, paper) = (png("mine"), b"%PDF-1.7\n\x80\x81".to_vec());
        let more = [
            way.image_part(&data_url("image/jpeg", &picture)),
            way.file_part(&data_url("application/pdf", &paper), "p.pdf"),
        ];
        let reply = hw.post(way.path(), way.request_with_parts("hello", &more)).await;
        assert_eq!(reply.status, 200, "{way:?}: {}", reply.text);
        let log = all_events_text(&hw).await;
        assert!(!log.contains("base64") && log.contains("\"name\":\"p.pdf\""), "{way:?}: {log}");
        for bytes in [&picture, &paper] {
            assert!(log.contains(&format!("\"{}\"", blob(bytes))), "{way:?}: {log}");
            assert_eq!(fetch_bytes(&hw, &blob(bytes), None).await, (200, bytes.clone()), "{way:?}");
        }
        assert_eq!(kept(&hw).len(), 2, "{way:?}");
        // The returned URL can be sent again.
        let again = [way.image_part(&blob(&picture))];
        assert_eq!(hw.post(way.path(), way.request_with_parts("hello", &again)).await.status, 200, "{way:?}");
        assert_eq!(
            hw.post(way.path(), way.request_with_image(&data_url("image/png", &picture))).await.status,
            200,
            "{way:?}"
        );
        assert_eq!(kept(&hw).len(), 2, "{way:?}: the same bytes are kept once");
    }
}

#[tokio::test]
async fn images_sent_over_a_socket_are_stored_and_shown_as_urls() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    let paper = data_url("text/csv", b"a,b\n1,2\n");
    socket.send_json(&json!({"type": "chat", "content": "hello", "content_urls": [paper, picture_url("mine")]})).await;
    socket.read_until("message_stop").await;
    let log = all_events_text(&hw).await;
    assert!(!log.contains("base64"), "{log}");
    for bytes in [png("mine"), b"a,b\n1,2\n".to_vec()] {
        assert!(log.contains(&blob(&bytes)), "{log}");
        assert_eq!(fetch_bytes(&hw, &blob(&bytes), None).await, (200, bytes));
    }
    let input = log.find("\"input\":[").map(|at| &log[at..]).unwrap();
    assert!(input.find("\"file\"") < input.find("\"hello\""), "files stand before the words: {input}");
}

#[tokio::test]
async fn input_to_an_active_or_ended_run_may_have_images() {
    let hw = Server::demo();
    let task = hw.start_run("slow 60").await;
    let path = format!("/v1/tasks/{}/input", task["task_id"].as_str().unwrap());
    for bad in ["data:image/png;base64,****".to_owned(), format!("/v1/blobs/{}", "0".repeat(64))] {
        let status = hw.post(&path, json!({"input": [ApiProtocol::Native.image_part(&bad)]})).await.status;
        assert!(matches!(status, 404 | 422), "{status}");
    }
    assert_eq!(kept(&hw).len(), 0);
    let added = hw.post(&path, json!({"input": [ApiProtocol::Native.image_part(&picture_url("live"))]})).await;
    assert_eq!(added.status, 202, "{}", added.text);
    assert_eq!(kept(&hw).len(), 1);
    let cancel = format!("/v1/tasks/{}/cancel", task["task_id"].as_str().unwrap());
    assert_eq!(hw.post(&cancel, json!({})).await.status, 202);
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let next = hw.post(&path, json!({"input": [ApiProtocol::Native.image_part(&picture_url("next"))]})).await;
    assert_eq!(next.status, 202, "{}", next.text);
    hw.wait_ended(next.json()["task_id"].as_str().unwrap()).await;
    assert_eq!(kept(&hw).len(), 2);
    let log = all_events_text(&hw).await;
    assert!(!log.contains("base64") && log.contains(&blob(&png("next"))), "{log}");
}

#[tokio::test]
async fn images_of_client_results_are_stored_if_the_call_is_pending() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "locate", "tools": [{"name": "locate"}]})).await;
    let path = format!("/v1/tasks/{}/tool_results", task["task_id"].as_str().unwrap());
    let call = &task["pending"][0]["call_id"];
    let give = |call: &Value, url: &str| json!([{"call_id": call, "content": [ApiProtocol::Native.image_part(url)]}]);
    let stray = hw.post(&path, give(&json!("call_1"), &picture_url("stray"))).await;
    assert_eq!(stray.problem(), (409, "nothing_pending".to_owned()));
    assert_eq!(hw.post(&path, give(call, "data:image/png;base64,****")).await.status, 422);
    assert_eq!(kept(&hw).len(), 0);
    let given = hw.post(&path, give(call, &picture_url("shot"))).await;
    assert_eq!(given.status, 202, "{}", given.text);
    let (ended, _) = wait_outcome(&hw, &task).await;
    assert_eq!(tool_results(&ended)[0]["block_list"][0]["image_url"]["url"], blob(&png("shot")), "{ended}");
    assert_eq!(kept(&hw).len(), 1);
}

#[tokio::test]
async fn a_repeated_request_stores_nothing_new() {
    let hw = Server::demo();
    let body = ApiProtocol::Native.request_with_image(&picture_url("once")).to_string().into_bytes();
    let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let first = hw.request(Method::POST, "/v1/tasks", &headers, Some(body.clone())).await;
    let thread = format!("/v1/threads/{}", first.json()["thread_id"].as_str().unwrap());
    let second = hw.request(Method::POST, "/v1/tasks", &headers, Some(body)).await;
    assert_eq!(
        (first.status, second.status, second.json()["task_id"].clone()),
        (200, 200, first.json()["task_id"].clone())
    );
    assert_eq!((kept(&hw).len(), hw.count_threads_and_records().await.0), (1, 1));
    assert_eq!(hw.request(Method::DELETE, &thread, &[], None).await.status, 204);
    assert_eq!(kept(&hw).len(), 0, "no thread that never came holds on to it");
}

#[tokio::test]
async fn a_refused_request_stores_nothing() {
    let hw = Server::demo_with("[files]\nuser_bytes_max = 100000");
    let with = |name: &str, value: Value| {
        let mut body = ApiProtocol::Native.request_with_image(&picture_url("lost"));
        body[name] = value;
        body
    };
    let thread = "thr_00000000000000000000000000000000";
    for (body, status) in [
        (with("model", json!("nobody")), 422),
        (with("thread_id", json!(thread)), 404),
        (with("metadata", json!({"long": "x".repeat(300_000)})), 413),
        (with("tools", json!([{"name": "a b"}])), 422),
        (ApiProtocol::Native.request_with_image(&data_url("image/png", &png(&"x".repeat(150_000)))), 413),
    ] {
        let reply = hw.post("/v1/tasks", body).await;
        assert_eq!(reply.status, status, "{}", reply.text);
        assert_eq!(kept(&hw), Vec::<PathBuf>::new(), "{}", reply.text);
    }
    assert_eq!(hw.count_threads_and_records().await, (0, 0));
    let busy = hw.start_run("slow 60").await;
    let mut body = with("thread_id", busy["thread_id"].clone());
    body["on_busy"] = json!("reject");
    assert_eq!(hw.post("/v1/tasks", body.clone()).await.problem(), (409, "thread_busy".to_owned()));
    body["on_busy"] = json!("enqueue");
    body["previous"] = json!("task_00000000000000000000000000000000");
    assert_eq!(hw.post("/v1/tasks", body).await.problem(), (422, "unknown_previous".to_owned()));
    assert_eq!(kept(&hw), Vec::<PathBuf>::new());
    assert_eq!(hw.post("/v1/tasks", ApiProtocol::Native.request_with_image(&picture_url("kept"))).await.status, 200);
    let files: Vec<Value> =
        ["a", "b"].map(|tag| ApiProtocol::Native.image_part(&data_url("image/png", &png(&tag.repeat(60_000))))).into();
    let over = hw.post("/v1/tasks", ApiProtocol::Native.request_with_parts("hello", &files)).await;
    assert_eq!(over.problem(), (413, "quota_exceeded".to_owned()));
    assert_eq!(kept(&hw).len(), 1, "the first of the two is gone with the thread that was to hold it");
}
