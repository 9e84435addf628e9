//! Ownership: a resource of another user gets the same error as a missing one, in every protocol.

use super::*;
use crate::auth::create_key;

const KEYS: &str = "[auth]\nmode = \"keys\"";

async fn upload(hw: &Server, token: &str) -> Value {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("content-type", "text/plain")];
    let path = "/api/v1/agent/attachments?name=notes.txt";
    let file = hw.request(Method::POST, path, &headers, Some(b"some words".to_vec())).await.json();
    json!({"bucket": file["bucket"], "path": file["path"]})
}

async fn threads(hw: &Server, token: &str) -> usize {
    let bearer = format!("Bearer {token}");
    let reply = hw.request(Method::GET, "/v1/threads", &[("authorization", &*bearer)], None).await;
    reply.json()["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_file_is_private_even_if_user_names_share_a_prefix() {
    let hw = Server::demo_with(KEYS);
    let (one, ten) = (create_key(&hw, "u1"), create_key(&hw, "u10"));
    let (ones, tens) = (upload(&hw, &one).await, upload(&hw, &ten).await);
    let swap = |path: &str| json!({"bucket": tens["bucket"], "path": path});
    let path = tens["path"].as_str().unwrap();
    let unknown = path.replace(|c: char| c.is_ascii_hexdigit() && c > '4', "4").replace("u10", "u1");
    let foreign = [
        tens.clone(),
        swap(&unknown),
        swap(&path.replace("/u10/", "/u1/")),
        swap(&path.replace("/u10/", "/u1/../u10/")),
        swap(&path.replace("/u10/", "/u1%30/")),
        swap("agent-inputs/u1"),
        swap(""),
        json!({"bucket": "elsewhere", "path": ones["path"]}),
    ];
    for file in &foreign {
        let native = ApiProtocol::Native.request_with_parts("hello", &[json!({"type": "file", "file": file})]);
        let reply = send_as(&hw, &one, "/v1/tasks", &native).await;
        assert_eq!(reply.problem(), (404, "not_found".to_owned()), "{file}");
        let runs = json!({"message": "hello", "attachments": [file]});
        let runs = send_as(&hw, &one, "/api/v1/agent/runs", &runs).await;
        if file["path"] == "" {
            assert_eq!(runs.status, 422, "{file}");
        } else {
            assert_eq!((runs.status, &runs.text), (404, &reply.text), "{file}: the same words");
        }
    }
    assert_eq!(threads(&hw, &one).await, 0, "nothing was begun");
    for (token, file) in [(&one, &ones), (&ten, &tens)] {
        let runs = send_as(&hw, token, "/api/v1/agent/runs", &json!({"message": "hello", "attachments": [file]})).await;
        assert_eq!(runs.status, 202, "{}", runs.text);
        let native = ApiProtocol::Native.request_with_parts("hello", &[json!({"type": "file", "file": file})]);
        let task = send_as(&hw, token, "/v1/tasks", &native).await.json();
        let events = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
        let bearer = format!("Bearer {token}");
        let log = hw.request(Method::GET, &events, &[("authorization", &*bearer)], None).await.text;
        assert!(log.contains("\"name\":\"notes.txt\""), "its name comes with it: {log}");
    }
}

#[tokio::test]
async fn a_blob_is_private_in_every_protocol() {
    let hw = Server::demo_with(KEYS);
    let (one, ten) = (create_key(&hw, "u1"), create_key(&hw, "u10"));
    let mine = blob(&png("tens"));
    assert_eq!(
        send_as(&hw, &ten, "/v1/tasks", &ApiProtocol::Native.request_with_image(&picture_url("tens"))).await.status,
        200
    );
    let never = format!("/v1/blobs/{}", "0".repeat(64));
    for way in API_PROTOCOLS {
        let foreign = send_as(&hw, &one, way.path(), &way.request_with_image(&mine)).await;
        let unknown = send_as(&hw, &one, way.path(), &way.request_with_image(&never)).await;
        let same = |text: &str| text.split("request_id").next().unwrap().to_owned();
        assert_eq!((foreign.status, same(&foreign.text)), (404, same(&unknown.text)), "{way:?}");
        for no in [
            "/v1/blobs/",
            "/v1/blobs/../tasks",
            &mine[..mine.len() - 1],
            &mine.to_uppercase().replace("/V1/BLOBS", "/v1/blobs"),
        ] {
            assert_eq!(send_as(&hw, &one, way.path(), &way.request_with_image(no)).await.status, 404, "{way:?}: {no}");
        }
        assert_eq!(send_as(&hw, &ten, way.path(), &way.request_with_image(&mine)).await.status, 200, "{way:?}");
    }
    assert_eq!((threads(&hw, &one).await, kept(&hw).len()), (0, 1), "nothing was begun, and nothing more is kept");
    let header = format!("Authorization: Bearer {one}\r\n");
    let mut socket = Socket::connect_with_headers(&hw, &header).await.unwrap();
    socket.send_json(&json!({"type": "chat", "content": "hello", "content_urls": [mine]})).await;
    assert_eq!(socket.next_event().await["code"], "not_found");
    // The same bytes of another user are a separate blob.
    assert_eq!(
        send_as(&hw, &one, "/v1/tasks", &ApiProtocol::Native.request_with_image(&picture_url("tens"))).await.status,
        200
    );
    assert_eq!(kept(&hw).len(), 2);
    assert_eq!(fetch_bytes(&hw, &mine, Some(&one)).await, (200, png("tens")));
}

#[tokio::test]
async fn a_fork_of_a_share_has_its_images_and_the_names_of_its_files() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let file = json!({"type": "file", "file": upload(&hw, &ann).await});
    let more = [file, ApiProtocol::Native.image_part(&picture_url("anns"))];
    let task = send_as(&hw, &ann, "/v1/tasks", &ApiProtocol::Native.request_with_parts("hello", &more)).await.json();
    let thread = format!("/v1/threads/{}", task["thread_id"].as_str().unwrap());
    let share = send_as(&hw, &ann, &format!("{thread}/shares"), &json!({"mode": "frozen"})).await.json();
    assert_eq!(fetch_bytes(&hw, &blob(&png("anns")), Some(&ben)).await.0, 404);
    let go_on = json!({"model": "demo", "input": "hello", "share": share["token"], "wait": true});
    let own = send_as(&hw, &ben, "/v1/tasks", &go_on).await;
    assert_eq!(own.status, 200, "{}", own.text);
    let bearer = format!("Bearer {ann}");
    assert_eq!(hw.request(Method::DELETE, &thread, &[("authorization", &*bearer)], None).await.status, 204);
    assert_eq!(fetch_bytes(&hw, &blob(&png("anns")), Some(&ann)).await.0, 404, "its only thread is gone");
    assert_eq!(fetch_bytes(&hw, &blob(&png("anns")), Some(&ben)).await, (200, png("anns")), "a copy of one's own");
    let response = own.json()["task_id"].as_str().unwrap().replace("task_", "resp_");
    let bearer = format!("Bearer {ben}");
    let path = format!("/v1/responses/{response}/input_items?order=asc");
    let items = hw.request(Method::GET, &path, &[("authorization", &*bearer)], None).await.json();
    let said = &items["data"][0]["content"];
    assert_eq!(said[1], json!({"type": "input_text", "text": "[file notes.txt]"}), "{items}");
    assert_eq!(said[2]["image_url"], blob(&png("anns")), "{items}");
}
