//! A small HTTP server on loopback with fixed responses, byte for byte.

use fetch::{FetchLimits, Fetcher, UrlRules};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::names::rules_for;

pub(crate) struct Site {
    pub(crate) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Site {
    /// Sends this response to every request.
    pub(crate) async fn with_response(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::with_handler(move |_, mut socket| {
            let answer = Arc::clone(&answer);
            async move {
                // A client that has read enough disconnects.
                let _ = socket.write_all(&answer).await;
            }
        })
        .await
    }

    /// Passes on the path and the socket of every request after its head was read.
    pub(crate) async fn with_handler<F, T>(serve: F) -> Self
    where
        F: Fn(String, TcpStream) -> T + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (noted, serve) = (Arc::clone(&heads), Arc::new(serve));
        let task = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (noted, serve) = (Arc::clone(&noted), Arc::clone(&serve));
                tokio::spawn(async move {
                    let head = head(&mut socket).await;
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    noted.lock().unwrap().push(head);
                    serve(path, socket).await;
                });
            }
        });
        Self { port, heads, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The requests so far, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().iter().map(|head| head.to_ascii_lowercase()).collect()
    }

    /// A fetcher that may reach this server only.
    pub(crate) fn rules(&self) -> UrlRules {
        rules_for(&["127.0.0.1"], &[self.port])
    }

    pub(crate) fn fetcher(&self, limits: FetchLimits) -> Fetcher {
        Fetcher::new(self.rules(), limits)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response with a body and its length.
pub(crate) fn answer(kind: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer_with(&format!("content-type: {kind}\r\n"), body)
}

pub(crate) fn answer_with(headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub(crate) fn redirect(status: u16, to: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Moved\r\nlocation: {to}\r\nset-cookie: a=b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )
    .into_bytes()
}

async fn head(socket: &mut TcpStream) -> String {
    let mut reader = BufReader::new(socket);
    let mut head = String::new();
    while reader.read_line(&mut head).await.unwrap() > 2 {}
    head
}
