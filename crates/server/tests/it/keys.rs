//! Concurrent key changes, as a script makes them for a whole team.

use crate::harness::{Server, TEST_TIMEOUT};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

const PEOPLE: usize = 16;
const KEYS_EACH: usize = 25;

/// Sends a request over the admin socket, as `headwater keys` does.
async fn admin_request(hw: &Server, ask: Value) -> Value {
    let mut stream = UnixStream::connect(hw.data_dir().join("control.sock")).await.unwrap();
    stream.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    serde_json::from_str(&answer).unwrap()
}

async fn status(hw: &Server, key: &Value) -> u16 {
    let bearer = format!("Bearer {}", key["secret"].as_str().unwrap());
    hw.request(Method::GET, "/v1/models", &[("authorization", &bearer)], None).await.status
}

/// Creates and revokes keys. Each change must hold once it is confirmed, whatever else changes.
async fn change(hw: &Server, user: String) {
    for round in 0..KEYS_EACH {
        let key = admin_request(hw, json!({"op": "create_key", "user": user})).await;
        assert_eq!(status(hw, &key).await, 200, "{user}, round {round}: the key was made");
        let answer = admin_request(hw, json!({"op": "revoke_key", "id": key["id"]})).await;
        assert_eq!(answer["answer"], "revoked", "{answer}");
        assert_eq!(status(hw, &key).await, 401, "{user}, round {round}: the key was revoked");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_key_changes_all_count() {
    let hw = Server::demo_with("[auth]\nmode = \"keys\"");
    join_all((0..PEOPLE).map(|n| change(&hw, format!("user-{n}")))).await;
}

/// A server that starts or stops holds the lock of the folder without listening: the command waits for it.
#[tokio::test]
async fn keys_are_created_while_a_server_stops() {
    let mut hw = Server::demo();
    hw.kill9();
    let stopping = store::SqliteStore::open(&hw.data_dir(), &store::SqliteOptions::default()).unwrap();
    let mut command = crate::harness::headwater_command(&hw.path(""));
    let data_dir = hw.data_dir();
    command.args(["keys", "create", "--user", "ann", "--data-dir", data_dir.to_str().unwrap()]);
    let mut create = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    for _ in 0..10 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        if let Some(status) = create.try_wait().unwrap() {
            panic!("it did not wait: {status}");
        }
    }
    stopping.close().await;
    drop(stopping);
    let output = create.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"hw_"), "{output:?}");
}
