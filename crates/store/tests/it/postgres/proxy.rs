//! A proxy between the store and its server, which loses or delays what a test tells it to.
//!
//! It reads the client's messages (a type, a length, a body) only as far as needed to find statements. Connections must not be
//! encrypted.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A server that does not answer in this time fails the test.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What happens to the statement that contains `at`, in a transaction with a statement that contains `after`. Happens once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) after: &'static str,
    pub(crate) at: &'static str,
    pub(crate) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Both connections break; the server does not get the statement.
    LoseRequest,
    /// The client's connection breaks when the server has ended the transaction.
    LoseAnswer,
    /// The client's connection breaks at once; the server gets the statement and the COMMIT later.
    Delay(Duration),
    /// As [`Self::LoseRequest`], but only after [`Proxy::release`].
    Hold,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct ProxyState {
    fault: Mutex<Option<Fault>>,
    /// Faults whose effect is over.
    done: AtomicUsize,
    is_held: Notify,
    release: Notify,
    answer_delay_ms: AtomicU64,
    is_frozen: watch::Sender<bool>,
    /// All statements, in the order in which they arrived.
    statements: Mutex<Vec<String>>,
}

impl Proxy {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<ProxyState>::default();
        let accepting = tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let state = Arc::clone(&state);
                    tokio::spawn(async move {
                        // A connection that breaks is what this is for.
                        let _ = Connection::run(client, server_port, &state).await;
                    });
                }
            }
        });
        Self { port, state, accepting }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    pub(crate) fn inject(&self, fault: Fault) {
        let before = self.state.fault.lock().unwrap().replace(fault);
        assert!(before.is_none(), "the last fault did not happen: {before:?}");
    }

    /// The number of faults whose effect is over.
    pub(crate) fn faults_done(&self) -> usize {
        self.state.done.load(Ordering::SeqCst)
    }

    /// Waits until [`Effect::Hold`] holds a statement.
    pub(crate) async fn wait_until_held(&self) {
        tokio::time::timeout(ANSWER_MAX, self.state.is_held.notified()).await.expect("nothing was held");
    }

    pub(crate) fn release(&self) {
        self.state.release.notify_one();
    }

    /// Delays every answer of the server.
    pub(crate) fn delay_answers(&self, delay: Duration) {
        self.state.answer_delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Stops to forward anything, or goes on: to the server the client falls silent, and to the client the server does.
    pub(crate) fn set_frozen(&self, is_frozen: bool) {
        self.state.is_frozen.send_replace(is_frozen);
    }

    /// The statements since the last call.
    pub(crate) fn take_statements(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.statements.lock().unwrap())
    }
}

impl ProxyState {
    async fn wait_while_frozen(&self) {
        // The sender is here, so there is no error.
        let _ = self.is_frozen.subscribe().wait_for(|is_frozen| !is_frozen).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Connection<'a> {
    client: TcpStream,
    server: TcpStream,
    state: &'a ProxyState,
    /// Bytes of the client that are not forwarded yet.
    received: Vec<u8>,
    is_startup: bool,
    /// The statements of the current transaction.
    transaction: String,
}

impl Connection<'_> {
    async fn run(client: TcpStream, server_port: u16, state: &ProxyState) -> std::io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server_port)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (received, transaction) = (Vec::new(), String::new());
        let mut connection = Connection { client, server, state, received, is_startup: true, transaction };
        let (mut from_client, mut from_server) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            tokio::select! {
                read = connection.client.read(&mut from_client) => {
                    let count = read?;
                    if count == 0 {
                        return Ok(());
                    }
                    state.wait_while_frozen().await;
                    connection.received.extend_from_slice(&from_client[..count]);
                    if let Some(fault) = connection.forward_messages().await? {
                        let applied = connection.apply(fault.effect).await;
                        state.done.fetch_add(1, Ordering::SeqCst);
                        return applied;
                    }
                }
                read = connection.server.read(&mut from_server) => {
                    let count = read?;
                    if count == 0 {
                        return Ok(());
                    }
                    state.wait_while_frozen().await;
                    tokio::time::sleep(Duration::from_millis(state.answer_delay_ms.load(Ordering::SeqCst))).await;
                    connection.client.write_all(&from_server[..count]).await?;
                }
            }
        }
    }

    /// Forwards complete messages up to one at which a fault happens.
    async fn forward_messages(&mut self) -> std::io::Result<Option<Fault>> {
        let mut end = 0;
        let mut hit = None;
        while let Some((length, statement)) = next_message(&self.received[end..], self.is_startup) {
            self.is_startup = false;
            if let Some(statement) = statement {
                hit = self.note_statement(&statement);
            }
            if hit.is_some() {
                break;
            }
            end += length;
        }
        self.server.write_all(&self.received[..end]).await?;
        self.received.drain(..end);
        Ok(hit)
    }

    fn note_statement(&mut self, statement: &str) -> Option<Fault> {
        if statement.starts_with("BEGIN") {
            self.transaction.clear();
        }
        self.transaction.push_str(statement);
        self.state.statements.lock().unwrap().push(statement.to_owned());
        let is_hit = |fault: &mut Fault| self.transaction.contains(fault.after) && statement.contains(fault.at);
        self.state.fault.lock().unwrap().take_if(is_hit)
    }

    async fn apply(mut self, effect: Effect) -> std::io::Result<()> {
        match effect {
            Effect::LoseRequest => {}
            Effect::Hold => {
                self.state.is_held.notify_one();
                self.state.release.notified().await;
            }
            Effect::LoseAnswer => {
                self.read_until_commit().await?;
                self.finish_transaction().await?;
            }
            Effect::Delay(delay) => {
                self.read_until_commit().await?;
                self.client.shutdown().await?;
                tokio::time::sleep(delay).await;
                self.finish_transaction().await?;
            }
        }
        Ok(())
    }

    /// The client sends its COMMIT without waiting for answers.
    async fn read_until_commit(&mut self) -> std::io::Result<()> {
        let mut bytes = vec![0; 64 * 1024];
        while !contains(&self.received, b"COMMIT\0") {
            let count = tokio::time::timeout(ANSWER_MAX, self.client.read(&mut bytes)).await??;
            self.received.extend_from_slice(&bytes[..count]);
        }
        Ok(())
    }

    /// Forwards what is left, and waits until the server has committed or rolled back.
    async fn finish_transaction(&mut self) -> std::io::Result<()> {
        self.server.write_all(&self.received).await?;
        let (mut answer, mut bytes) = (Vec::new(), vec![0; 64 * 1024]);
        while !contains(&answer, b"COMMIT\0") && !contains(&answer, b"ROLLBACK\0") {
            let count = tokio::time::timeout(ANSWER_MAX, self.server.read(&mut bytes)).await??;
            if count == 0 {
                break;
            }
            answer.extend_from_slice(&bytes[..count]);
        }
        Ok(())
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The length of the first message and, for a query or the preparation of one, the statement; `None` if it is incomplete.
fn next_message(bytes: &[u8], is_startup: bool) -> Option<(usize, Option<String>)> {
    let type_length = usize::from(!is_startup);
    let length = bytes.get(type_length..type_length + 4)?;
    let length = type_length + usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
    let body = bytes.get(type_length + 4..length)?;
    let texts: Vec<&[u8]> = body.split(|byte| *byte == 0).collect();
    let statement = match (is_startup, bytes[0]) {
        (false, b'Q') => texts.first(),
        // The name of the statement comes first.
        (false, b'P') => texts.get(1),
        _ => None,
    };
    Some((length, statement.map(|text| String::from_utf8_lossy(text).into_owned())))
}
