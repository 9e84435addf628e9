//! Uploaded files, linked by their signed URL.

use super::{Listener, REFUSED, begin, files, frames};
use crate::attachments::{signed_path, str_field, upload_file};
use crate::auth::create_key;
use crate::harness::Server;
use serde_json::Value;

/// The signed URL of an uploaded file.
async fn address(hw: &Server, file: &Value) -> String {
    let answer = hw.get(&signed_path(str_field(file, "bucket"), str_field(file, "path"))).await.json();
    str_field(&answer, "url").to_owned()
}

async fn file_message(hw: &Server, url: &str) -> String {
    let frames = frames(hw, &begin(hw, &[url.to_owned()]).await).await;
    assert_eq!(frames.last().unwrap().event, "task.completed");
    let found = files(&frames);
    let [(_, _, message)] = &found[..] else { panic!("{found:?}") };
    message.clone()
}

#[tokio::test]
async fn an_own_file_is_read_by_its_signed_url_without_a_request() {
    let model = Listener::open().await;
    // Fetching is disabled altogether.
    let hw = model.server("[auth]\nmode = \"keys\"\n[fetch]\nports = []\nbytes_max = 1000\n");
    let (ann, bob) = (create_key(&hw, "ann"), create_key(&hw, "bob"));
    let hw = hw.with_key(&ann);
    let url = address(&hw, &upload_file(&hw, "?name=notes.md", b"# Notes of mine").await).await;
    assert_eq!(file_message(&hw, &url).await, "Read notes.md (15 bytes)");
    assert!(model.heard().join("\n").contains("# Notes of mine"));
    let large = address(&hw, &upload_file(&hw, "?name=large.txt", &[b'a'; 1001]).await).await;
    assert_eq!(file_message(&hw, &large).await, "The file is too large.");
    let other = address(&hw, &upload_file(&hw, "?name=a.exe", b"MZ\x90\0\x03\0\0\0").await).await;
    assert_eq!(file_message(&hw, &other).await, "Files of this type cannot be read.");

    let altered = [url.replace("notes", "n0tes"), url.replace("expires=", "expires=1"), format!("{url}0")];
    let elsewhere = [url.replace("/raw?", "/raw/x?"), url.replace("/raw?", "?")];
    for url in altered.iter().filter(|altered| **altered != url).chain(&elsewhere) {
        assert_eq!(file_message(&hw, url).await, REFUSED, "{url}");
    }
    let hw = hw.with_key(&bob);
    assert_eq!(file_message(&hw, &url).await, REFUSED, "it is somebody else's");
    assert!(!model.heard().join("\n").contains("# Notes of mine"));
}
