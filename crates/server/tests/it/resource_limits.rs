//! What one client can take from the others: connections, descriptors and memory.

use crate::auth::create_key;
use crate::harness::{Server, TEST_TIMEOUT, http_client, read_until_closed};
use serde_json::json;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const MIB: usize = 1024 * 1024;
const KEYS: &str = "[auth]\nmode = \"keys\"\n";
/// As documented.
const REFUSAL_DELAY: Duration = Duration::from_millis(200);
/// An agent with a tool that is a program.
const TOOL_AGENT: &str = "[agents.tooled]\nmodel = \"scripted/demo\"\ntools = [\"greet\"]\n\
    [tools.greet]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo greetings\"]\ndescription = \"Greets.\"\n";
const TOOL_SCENARIOS: &str = "[[scenario]]\nmatch = 'tool'\n[[scenario.turn]]\n\
    steps = [{ call = 'greet' }]\n[[scenario.turn]]\nsteps = [{ text = 'done' }]\n\
    [[scenario]]\nmatch = 'hold'\n[[scenario.turn]]\nsteps = [{ pause_ms = 600000 }, { text = '' }]\n\
    [[scenario]]\n[[scenario.turn]]\nsteps = [{ text = 'hello' }]\n";

fn memory_mib(pid: u32, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB").trim().parse::<usize>().unwrap() / 1024
}

/// The most memory that the process has had, once it has read what was sent: the peak grows no more.
async fn settled_peak_mib(pid: u32) -> usize {
    let mut peak = memory_mib(pid, "VmHWM");
    let mut unchanged = 0;
    while unchanged < 20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = memory_mib(pid, "VmHWM");
        unchanged = if now == peak { unchanged + 1 } else { 0 };
        peak = now;
    }
    peak
}

/// The head of a request with a body, of a user.
fn post_head(hw: &Server, key: &str, length: usize) -> String {
    format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n",
        hw.address
    )
}

/// Everything that another user does, each time over a new connection.
async fn works_for(hw: &Server, key: &str, round: usize) {
    let client = http_client();
    let body = json!({"model": "tooled", "input": "tool", "wait": true});
    let run = client.post(hw.url("/v1/tasks")).bearer_auth(key).json(&body).send().await;
    let run = run.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
    assert_eq!(run.status(), 200, "round {round}");
    let run = run.text().await.unwrap();
    assert!(run.contains("greetings") && !run.contains("cannot start"), "round {round}: {run}");
    let url = hw.url("/api/v1/agent/attachments?name=a.txt");
    let upload =
        http_client().post(url).bearer_auth(key).header("content-type", "text/plain").body("text").send().await;
    assert_eq!(upload.unwrap().status(), 201, "round {round}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirteen_hundred_idle_connections_leave_room_for_runs_uploads_and_tools() {
    let hw = Server::with_descriptors(1024, &format!("{KEYS}{TOOL_AGENT}"), TOOL_SCENARIOS);
    let ben = create_key(&hw, "ben");
    let address = hw.address.clone();
    let (filled, is_filled) = tokio::sync::oneshot::channel();
    let attack = tokio::spawn(async move {
        let (mut filled, mut idle) = (Some(filled), VecDeque::new());
        loop {
            for _ in 0..130 {
                idle.push_back(TcpStream::connect(&address).await.unwrap());
            }
            if idle.len() >= 1_300 {
                filled.take().map(|filled| filled.send(()));
                idle.drain(..130);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    });
    is_filled.await.unwrap();
    for round in 0..10 {
        works_for(&hw, &ben, round).await;
    }
    attack.abort();
    assert!(!hw.log().contains("Too many open files"), "{}", hw.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_of_one_user_leave_connections_for_others() {
    let hw = Server::with_descriptors(1024, &format!("{KEYS}{TOOL_AGENT}"), TOOL_SCENARIOS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let mut slow = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(&hw.address).await.unwrap();
        // The server may have refused it before it was sent.
        let _refused = stream.write_all(post_head(&hw, &ann, 100).as_bytes()).await;
        slow.push(stream);
    }
    works_for(&hw, &ben, 0).await;
    let mut refused = slow.pop().unwrap();
    let answer = read_until_closed(&mut refused, TEST_TIMEOUT).await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("too_many_requests"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\nretry-after: "), "{answer}");
}

#[tokio::test]
async fn a_connection_too_many_takes_the_place_of_an_idle_one_and_is_refused_if_there_is_none() {
    let hw = Server::with_scenarios_and(TOOL_SCENARIOS, "[limits]\nconnections_max = 1");
    let head = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", hw.address);
    let ask = async |stream: &mut TcpStream| {
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    };
    let mut idle = TcpStream::connect(&hw.address).await.unwrap();
    // After its answer it waits, and has to be woken to be closed.
    ask(&mut idle).await;
    let mut used = TcpStream::connect(&hw.address).await.unwrap();
    ask(&mut used).await;
    let rest = read_until_closed(&mut idle, TEST_TIMEOUT).await;
    assert_eq!(rest.matches("HTTP/1.1").count(), 0, "the idle one was closed: {rest}");
    drop((idle, used));
    // Its close may not have been noticed yet, but then it is idle.
    let client = reqwest::Client::builder().timeout(TEST_TIMEOUT).no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let body = json!({"model": "demo", "input": "hold", "stream": true});
    let stream = client.post(hw.url("/v1/tasks")).json(&body).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let refused = client.get(hw.url("/healthz")).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "2"));
    assert!(refused.text().await.unwrap().contains("server_busy"));
    drop(stream);
    hw.wait_until("the place is free", async || client.get(hw.url("/healthz")).send().await.unwrap().status() == 200)
        .await;
}

/// Sends the head and all but the last bytes of a body. The server may refuse it at any moment.
async fn send_unfinished(mut stream: TcpStream, head: String, length: usize) -> TcpStream {
    let _refused = stream.write_all(head.as_bytes()).await;
    let chunk = vec![b' '; 64 * 1024];
    let mut left = length;
    while left > 0 {
        let part = left.min(chunk.len());
        if stream.write_all(&chunk[..part]).await.is_err() {
            break;
        }
        left -= part;
    }
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_hundred_bodies_of_one_user_take_a_bounded_amount_of_memory() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let before = memory_mib(hw.pid(), "VmRSS");
    let mut sending = JoinSet::new();
    for _ in 0..1_200 {
        let stream = TcpStream::connect(&hw.address).await.unwrap();
        sending.spawn(send_unfinished(stream, post_head(&hw, &ann, MIB - 16), MIB - 32));
    }
    let bodies = sending.join_all().await;
    assert_eq!(bodies.len(), 1_200);
    let peak = settled_peak_mib(hw.pid()).await - before;
    // 64 MiB are one user's share; 1,200 connections have buffers, too, and the allocator keeps some of what was freed.
    assert!(peak < 5 * 64, "{peak} MiB more than {before}");
    let hello = json!({"model": "demo", "input": "hello", "wait": true});
    let other = http_client().post(hw.url("/v1/tasks")).bearer_auth(&ben).json(&hello).send().await.unwrap();
    assert_eq!(other.status(), 200, "others go on");
    drop(bodies);
    let again = async || {
        let sent = http_client().post(hw.url("/v1/tasks")).bearer_auth(&ann).json(&hello).send().await;
        sent.unwrap().status() == 200
    };
    hw.wait_until("the memory is free again", again).await;
}

/// A handshake, and a message of which the end is missing.
async fn send_unfinished_message(mut stream: TcpStream, key: String, length: usize) -> TcpStream {
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        stream.peer_addr().unwrap()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![];
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    // A masked text frame with a length of eight bytes and the mask 0.
    let mut frame = vec![0x81, 0xff];
    frame.extend_from_slice(&(length as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    if stream.write_all(&frame).await.is_ok() {
        stream = send_unfinished(stream, String::new(), length - 16).await;
    }
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_unfinished_socket_messages_are_bounded_and_end_in_time() {
    let hw = Server::demo_with(&format!("{KEYS}[limits]\nbody_read_ms = 2000"));
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let before = memory_mib(hw.pid(), "VmRSS");
    let mut sending = JoinSet::new();
    for _ in 0..300 {
        let stream = TcpStream::connect(&hw.address).await.unwrap();
        let key = ann.clone();
        sending.spawn(async move {
            let mut stream = send_unfinished_message(stream, key, MIB - 16).await;
            // Whatever has been sent by now, the server ends it.
            let mut rest = Vec::new();
            let _reset = stream.read_to_end(&mut rest).await;
        });
    }
    let ended = tokio::time::timeout(5 * Duration::from_secs(4), sending.join_all()).await;
    assert_eq!(ended.expect("an unfinished message has a time limit").len(), 300);
    let peak = settled_peak_mib(hw.pid()).await - before;
    assert!(peak < 240, "{peak} MiB more than {before}");
    let hello = json!({"model": "demo", "input": "hello", "wait": true});
    let other = http_client().post(hw.url("/v1/tasks")).bearer_auth(&ben).json(&hello).send().await.unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_slow_large_bodies_of_one_user_leave_places_for_another() {
    let hw = Server::demo_with(KEYS);
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let mut slow = Vec::new();
    for _ in 0..16 {
        let stream = TcpStream::connect(&hw.address).await.unwrap();
        slow.push(send_unfinished(stream, post_head(&hw, &ann, 2 * MIB), 1_000).await);
    }
    let text = "x".repeat(2 * MIB);
    let body = json!({"model": "demo", "input": "hello", "metadata": {"text": text}});
    for _ in 0..4 {
        let sent = http_client().post(hw.url("/v1/tasks")).bearer_auth(&ben).json(&body).send().await.unwrap();
        assert_ne!(sent.status(), 429, "{}", sent.text().await.unwrap());
    }
    let refused = http_client().post(hw.url("/v1/tasks")).bearer_auth(&ann).json(&body).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "2"));
    assert!(refused.text().await.unwrap().contains("too_many_uploads"));
}

async fn post_as(hw: &Server, key: &str, path: &str, body: serde_json::Value) -> (u16, String, String) {
    let sent = hw.client.post(hw.url(path)).bearer_auth(key).json(&body).send().await.unwrap();
    let retry_after = sent.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (sent.status().as_u16(), retry_after.unwrap_or_default(), sent.text().await.unwrap())
}

#[tokio::test]
async fn a_user_has_a_limit_of_live_runs_and_others_are_not_affected() {
    let hw = Server::with_scenarios_and(TOOL_SCENARIOS, &format!("{KEYS}[limits]\nruns_per_user_max = 2"));
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let hold = json!({"model": "demo", "input": "hold"});
    let first = post_as(&hw, &ann, "/v1/tasks", hold.clone()).await;
    let first: serde_json::Value = serde_json::from_str(&first.2).unwrap();
    assert_eq!(post_as(&hw, &ann, "/v1/tasks", hold.clone()).await.0, 202);
    let message = json!([{"role": "user", "content": "hello"}]);
    for (path, body) in [
        ("/v1/tasks", hold.clone()),
        ("/v1/responses", json!({"model": "demo", "input": "hello"})),
        ("/v1/chat/completions", json!({"model": "demo", "messages": message})),
    ] {
        let (status, retry_after, text) = post_as(&hw, &ann, path, body).await;
        assert_eq!((status, retry_after.as_str()), (429, "2"), "{path}: {text}");
        assert!(text.contains("too_many_runs"), "{path}: {text}");
    }
    let queued = json!({"model": "demo", "input": "hello", "thread_id": first["thread_id"]});
    assert_eq!(post_as(&hw, &ann, "/v1/tasks", queued).await.0, 202, "a run in the queue is not live");
    assert_eq!(post_as(&hw, &ben, "/v1/tasks", hold.clone()).await.0, 202, "others go on");
    let cancel = format!("/v1/tasks/{}/cancel", first["task_id"].as_str().unwrap());
    assert_eq!(post_as(&hw, &ann, &cancel, json!({})).await.0, 202);
    hw.wait_until("a run has ended", async || post_as(&hw, &ann, "/v1/tasks", hold.clone()).await.0 == 202).await;
}

#[tokio::test]
async fn runs_that_are_started_at_once_keep_the_limit_of_live_runs() {
    let hw = Server::with_scenarios_and(TOOL_SCENARIOS, &format!("{KEYS}[limits]\nruns_per_user_max = 3"));
    let ann = create_key(&hw, "ann");
    let hold = json!({"model": "demo", "input": "hold"});
    let sent = futures_util::future::join_all((0..40).map(|_| post_as(&hw, &ann, "/v1/tasks", hold.clone()))).await;
    let started = sent.iter().filter(|(status, ..)| *status == 202).count();
    let refused = sent.iter().filter(|(status, ..)| *status == 429).count();
    assert_eq!((started, refused), (3, 37), "{sent:?}");
    // Those in one thread wait for each other, so they take one place.
    let ben = create_key(&hw, "ben");
    let created = post_as(&hw, &ben, "/v1/tasks", json!({"model": "demo", "input": "hello"})).await;
    let created: serde_json::Value = serde_json::from_str(&created.2).unwrap();
    hw.wait_until("the run has ended", async || {
        let url = hw.url(&format!("/v1/tasks/{}", created["task_id"].as_str().unwrap()));
        let task = hw.client.get(url).bearer_auth(&ben).send().await.unwrap().text().await.unwrap();
        task.contains("\"completed\"")
    })
    .await;
    let in_thread = json!({"model": "demo", "input": "hold", "thread_id": created["thread_id"]});
    let sent = futures_util::future::join_all((0..8).map(|_| post_as(&hw, &ben, "/v1/tasks", in_thread.clone()))).await;
    assert!(sent.iter().all(|(status, ..)| *status == 202), "{sent:?}");
    for _ in 0..2 {
        assert_eq!(post_as(&hw, &ben, "/v1/tasks", hold.clone()).await.0, 202);
    }
    assert_eq!(post_as(&hw, &ben, "/v1/tasks", hold.clone()).await.0, 429);
}

#[tokio::test]
async fn a_user_has_a_limit_of_requests_per_minute_and_an_address_of_invalid_keys() {
    let hw = Server::demo_with(&format!("{KEYS}[limits]\nrequests_per_user_minute_max = 5"));
    let (ann, ben) = (create_key(&hw, "ann"), create_key(&hw, "ben"));
    let get = async |key: &str| {
        let reply = hw.client.get(hw.url("/v1/threads")).bearer_auth(key).send().await.unwrap();
        (reply.status().as_u16(), reply.headers().contains_key("retry-after"))
    };
    for _ in 0..5 {
        assert_eq!(get(&ann).await, (200, false));
    }
    let asked = Instant::now();
    assert_eq!(get(&ann).await, (429, true));
    assert!(asked.elapsed() >= REFUSAL_DELAY, "a client that asks again at once waits: {:?}", asked.elapsed());
    assert_eq!(get(&ben).await, (200, false), "others go on");
    let wrong = format!("hw_{}", "x".repeat(40));
    let mut refused = (401, false);
    for _ in 0..200 {
        refused = get(&wrong).await;
        if refused.0 != 401 {
            break;
        }
    }
    assert_eq!(refused, (429, true), "each attempt costs something");
    assert_eq!(get(&ben).await, (200, false), "a valid key is not affected by others of the same address");
}
