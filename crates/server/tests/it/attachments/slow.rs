//! Slow uploads.

use super::{KEYS, ROUTE};
use crate::auth::create_key;
use crate::harness::{Server, TEST_TIMEOUT, read_until_closed};
use reqwest::Method;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// The number of concurrent uploads per user.
const USER_MAX: usize = 96;

/// Sends a file except for its last byte.
async fn begin(hw: &Server, key: &str) -> TcpStream {
    let head =
        format!("POST {ROUTE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n");
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    // The server answers this as soon as it waits for the file.
    stream.write_all((head + "expect: 100-continue\r\ncontent-length: 5\r\n\r\n").as_bytes()).await.unwrap();
    stream.readable().await.unwrap();
    stream.write_all(b"slow").await.unwrap();
    stream
}

#[tokio::test]
async fn slow_uploads_of_one_user_do_not_block_others() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let mut slow = Vec::new();
    for _ in 0..USER_MAX {
        slow.push(begin(&hw, &ann).await);
    }
    let send = async |key: &str| {
        let bearer = format!("Bearer {key}");
        hw.request(Method::POST, ROUTE, &[("authorization", &bearer)], Some(b"quick".to_vec())).await
    };
    let more = send(&ann).await;
    assert_eq!(more.problem(), (429, "too_many_uploads".to_owned()));
    assert_ne!(more.header("retry-after"), "");
    assert_eq!(send(&ben).await.status, 201);
    // The admitted uploads still finish.
    for stream in &mut slow {
        stream.write_all(b"!").await.unwrap();
        let answer = read_until_closed(stream, TEST_TIMEOUT).await;
        assert!(answer.contains("HTTP/1.1 201 "), "{answer}");
    }
    assert_eq!(send(&ann).await.status, 201);
}
