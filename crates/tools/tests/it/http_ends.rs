//! HTTP tools that are unreachable, hang, flood or disconnect.

use crate::site::{Site, head};
use crate::test_toolbox::{OUTPUT_BYTES_MAX, address, failed, peak_kib, request, start, within};
use futures_util::StreamExt;
use model::definition::ToolExecutor;
use model::tool::{ToolEvent, ToolRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

fn get(url: String) -> ToolRequest {
    request(ToolExecutor::Http(address("GET", url)), "{}")
}

/// Sends this, waits for the client to disconnect, and reports it.
async fn hanging(begin: String) -> (Site, mpsc::UnboundedReceiver<()>) {
    let (gone, left) = mpsc::unbounded_channel();
    let begin: Arc<str> = begin.into();
    let site = Site::serving(move |mut socket: TcpStream| {
        let (gone, begin) = (gone.clone(), Arc::clone(&begin));
        async move {
            socket.write_all(begin.as_bytes()).await.unwrap();
            // The client sends nothing more, so this is its end, clean or not.
            let _ = socket.read(&mut [0; 16]).await;
            let _ = gone.send(());
        }
    });
    (site.await, left)
}

#[tokio::test]
async fn a_closed_port_is_an_unreachable_tool() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (code, message) = failed(get(format!("http://{host}/private/path"))).await;
    assert_eq!(code, "unreachable");
    assert!(message.starts_with(&format!("cannot reach {host}: ")) && message.contains("refused"), "{message}");
    assert!(!message.contains("private"), "{message}");
}

#[tokio::test]
async fn a_server_that_disconnects_is_unreachable() {
    let site = Site::serving(|socket| async move { drop(socket) }).await;
    assert_eq!(failed(get(site.url("/"))).await.0, "unreachable");
}

#[tokio::test]
async fn a_silent_server_is_aborted_at_the_deadline() {
    for begin in [String::new(), "HTTP/1.1 200 OK\r\n".to_owned(), head("text/plain") + "some"] {
        let (site, mut left) = hanging(begin).await;
        let begun = Instant::now();
        let (code, message) = failed(within(300, get(site.url("/")))).await;
        assert_eq!(code, "tool_timeout");
        assert_eq!(message, "The tool did not finish within 300 ms and was stopped.");
        assert!((300..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
        assert_eq!(left.recv().await, Some(()));
    }
}

#[tokio::test]
async fn a_call_after_its_deadline_sends_no_request() {
    let (site, _left) = hanging(String::new()).await;
    assert_eq!(failed(within(0, get(site.url("/")))).await.0, "tool_timeout");
    assert_eq!(site.seen().len(), 0);
}

#[tokio::test]
async fn no_request_is_sent_before_the_stream_is_polled() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let mut events = start(within(2_000, get(format!("http://{host}/"))));
    let early = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(early.is_err(), "somebody came");
    let (came, _) = tokio::join!(listener.accept(), tokio::time::timeout(Duration::from_millis(100), events.next()));
    assert!(came.is_ok());
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let line = head("application/x-ndjson") + "{\"type\":\"progress\"}\n";
    let (site, mut left) = hanging(line).await;
    let mut events = start(get(site.url("/")));
    assert!(matches!(events.next().await, Some(ToolEvent::Progress(_))));
    assert!(left.try_recv().is_err());
    drop(events);
    assert_eq!(left.recv().await, Some(()));
}

#[tokio::test]
async fn unlimited_output_is_stopped_within_bounded_memory() {
    for kind in ["text/plain", "application/x-ndjson"] {
        let (wrote, mut told) = mpsc::unbounded_channel();
        let site = Site::serving(move |mut socket: TcpStream| {
            let wrote = wrote.clone();
            async move {
                let mut bytes = 0_u64;
                socket.write_all(head(kind).as_bytes()).await.unwrap();
                while bytes < 1_000_000_000 && socket.write_all(&[b'x'; 65_536]).await.is_ok() {
                    bytes += 65_536;
                }
                let _ = wrote.send(bytes);
            }
        })
        .await;
        let before = peak_kib();
        let (code, message) = failed(get(site.url("/"))).await;
        assert_eq!(code, "output_too_large");
        assert!(message.contains(&OUTPUT_BYTES_MAX.to_string()), "{message}");
        let bytes = told.recv().await.unwrap();
        assert!(bytes < 100_000_000, "{bytes} bytes were taken");
        assert!(peak_kib() - before < 32 * 1024, "{} KiB more", peak_kib() - before);
    }
}

#[tokio::test]
async fn an_endless_error_response_is_not_awaited() {
    let site = Site::serving(|mut socket: TcpStream| async move {
        let head = "HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        while socket.write_all(&[b'x'; 65_536]).await.is_ok() {}
    })
    .await;
    let (code, message) = failed(get(site.url("/"))).await;
    assert_eq!(code, "http_error");
    assert_eq!(message, format!("status 500 Internal Server Error: {}", "x".repeat(500)));
}

#[tokio::test]
async fn a_truncated_response_is_no_result() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nhalf";
    let site = Site::answering(cut).await;
    let (code, message) = failed(get(site.url("/"))).await;
    assert_eq!(code, "http_error");
    assert!(message.contains("was cut off"), "{message}");
}
