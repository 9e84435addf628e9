use super::connection::tests::CountingWaker;
use super::*;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper_util::client::proxy::matcher::Matcher;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn uri(address: SocketAddr) -> Uri {
    Uri::try_from(format!("http://{address}/v1/chat/completions")).unwrap()
}

async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads a request with the body `{}`.
async fn read_request(socket: &mut TcpStream) -> String {
    let head = read_head(socket).await;
    let mut body = [0; 2];
    socket.read_exact(&mut body).await.unwrap();
    head
}

async fn post(transport: &Transport, uri: &Uri) -> Response<ResponseBody> {
    transport.post(uri, &HeaderMap::new(), Bytes::from_static(b"{}")).await.unwrap()
}

async fn read_text(response: Response<ResponseBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_connection_serves_one_turn_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = uri(listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            let head = read_request(&mut socket).await;
            assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("\r\nhost: 127.0.0.1:") && head.contains("\r\nuser-agent: headwater/"), "{head}");
            socket
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n")
                .await
                .unwrap();
        }
    });
    let transport = Transport::new(CONNECT_TIMEOUT).unwrap();
    for _ in 0..2 {
        assert_eq!(read_text(post(&transport, &uri).await).await, "one");
    }
    service.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_the_service_closed_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = uri(listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        for _ in 0..3 {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            // It announces nothing, and closes.
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none").await.unwrap();
            socket.shutdown().await.unwrap();
        }
    });
    let transport = Transport::new(CONNECT_TIMEOUT).unwrap();
    for _ in 0..3 {
        assert_eq!(read_text(post(&transport, &uri).await).await, "one");
        // The end of the connection arrives.
        sleep(Duration::from_millis(50)).await;
    }
    service.await.unwrap();
}

#[tokio::test]
async fn a_response_that_is_not_read_to_its_end_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = uri(listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none").await.unwrap();
        assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0, "it is closed");
    });
    let transport = Transport::new(CONNECT_TIMEOUT).unwrap();
    let mut response = post(&transport, &uri).await;
    assert_eq!(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    drop(response);
    service.await.unwrap();
}

/// Polls until there is a chunk. Like a task, it polls only after a wake-up.
async fn next_chunk(body: &mut ResponseBody, wakes: &Arc<CountingWaker>, polls: &mut usize) -> Bytes {
    let waker = Waker::from(Arc::clone(wakes));
    loop {
        *polls += 1;
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut Context::from_waker(&waker)) {
            return frame.unwrap().unwrap().into_data().unwrap();
        }
        let seen = wakes.0.load(Ordering::SeqCst);
        while wakes.0.load(Ordering::SeqCst) == seen {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn a_chunk_wakes_its_reader_once() {
    const CHUNKS: usize = 50;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = uri(listener.local_addr().unwrap());
    let (read, mut may_send) = tokio::sync::mpsc::channel::<()>(1);
    let service: JoinHandle<()> = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        while may_send.recv().await.is_some() {
            sleep(Duration::from_millis(2)).await;
            socket.write_all(b"3\r\none\r\n").await.unwrap();
        }
    });
    let transport = Transport::new(CONNECT_TIMEOUT).unwrap();
    let mut body = post(&transport, &uri).await.into_body();
    let (wakes, mut polls) = (Arc::new(CountingWaker::default()), 0);
    for _ in 0..CHUNKS {
        read.send(()).await.unwrap();
        assert_eq!(next_chunk(&mut body, &wakes, &mut polls).await, "one");
    }
    drop(read);
    service.await.unwrap();
    let wakes = wakes.0.load(Ordering::SeqCst);
    // One poll that finds nothing and one that finds the chunk.
    assert!(wakes <= CHUNKS + 2 && polls <= 2 * CHUNKS + 4, "{wakes} wake-ups, {polls} polls");
}

fn transport_with_proxy(proxy: SocketAddr) -> Transport {
    let proxies = Matcher::builder().all(format!("http://ann:secret@{proxy}")).no("127.0.0.9").build();
    Transport {
        connector: Arc::new(Connector::with_proxies(proxies).unwrap()),
        idle: Arc::default(),
        connect_timeout: CONNECT_TIMEOUT,
    }
}

#[tokio::test]
async fn a_proxy_forwards_plain_requests() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport_with_proxy(proxy.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut socket, _) = proxy.accept().await.unwrap();
        let head = read_request(&mut socket).await;
        assert!(head.starts_with("POST http://model.example/v1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nhost: model.example\r\n"), "{head}");
        assert!(head.contains("\r\nproxy-authorization: Basic YW5uOnNlY3JldA==\r\n"), "{head}");
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none").await.unwrap();
    });
    let response = post(&transport, &Uri::from_static("http://model.example/v1")).await;
    assert_eq!(read_text(response).await, "one");
    service.await.unwrap();
}

#[tokio::test]
async fn tls_passes_through_a_proxy_and_excepted_hosts_do_not() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = transport_with_proxy(proxy.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut socket, _) = proxy.accept().await.unwrap();
        let head = read_head(&mut socket).await;
        assert!(head.starts_with("CONNECT model.example:443 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n"), "{head}");
        socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        // A TLS handshake record.
        assert_eq!(socket.read_u8().await.unwrap(), 22);
    });
    let (headers, body) = (HeaderMap::new(), Bytes::from_static(b"{}"));
    let uri = Uri::from_static("https://model.example/v1");
    let failed = transport.post(&uri, &headers, body.clone()).await.map(drop);
    assert!(matches!(failed, Err(TransportError::Connect(_))), "{failed:?}");
    service.await.unwrap();
    let direct = TcpListener::bind("127.0.0.9:0").await.unwrap();
    let address = direct.local_addr().unwrap();
    drop(direct);
    let failed = transport.post(&self::uri(address), &headers, body).await.map(drop);
    assert!(matches!(failed, Err(TransportError::Connect(_))), "{failed:?}");
}
