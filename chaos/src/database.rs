//! The PostgreSQL server under the nodes, and what the program asks it directly.

use anyhow::Context;
use postgres_testing::PostgresServer;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

const NAME: &str = "chaos";
/// The name of this program's own connections.
pub(crate) const APPLICATION_NAME: &str = "chaos";
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// One row, a text per column; empty for NULL.
pub(crate) type TextRow = Vec<String>;

#[derive(Debug)]
pub(crate) struct Database {
    server: Arc<Mutex<PostgresServer>>,
    port: u16,
    url: String,
}

impl Database {
    /// Starts a server and creates the database.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let server = tokio::task::spawn_blocking(|| {
            let server = PostgresServer::start();
            server.execute("postgres", &format!("CREATE DATABASE {NAME}"));
            server
        });
        let server = server.await.context("PostgreSQL does not start")?;
        let (port, url) = (server.port(), server.url(NAME));
        Ok(Self { server: Arc::new(Mutex::new(server)), port, url })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The URL for clients of a proxy.
    pub(crate) fn url_through(&self, proxy: SocketAddr) -> String {
        self.url.replace(&format!("@127.0.0.1:{}/", self.port), &format!("@{proxy}/"))
    }

    /// Runs one statement on a connection of its own.
    pub(crate) async fn query(&self, sql: &str) -> anyhow::Result<Vec<TextRow>> {
        let query = async {
            let mut config: Config = self.url.parse()?;
            config.application_name(APPLICATION_NAME);
            let (client, connection) = config.connect(NoTls).await?;
            let connection = tokio::spawn(connection);
            let answer = client.simple_query(sql).await;
            connection.abort();
            answer
        };
        let answer = tokio::time::timeout(QUERY_TIMEOUT, query).await.context("PostgreSQL does not answer")??;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows
            .map(|row| (0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect())
            .collect())
    }

    /// The process id of the postmaster.
    pub(crate) async fn postmaster_pid(&self) -> anyhow::Result<String> {
        self.on_server(|server| {
            let file = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap_or_default();
            file.lines().next().unwrap_or_default().to_owned()
        })
        .await
    }

    /// Kills all processes of the server.
    pub(crate) async fn crash(&self) -> anyhow::Result<()> {
        self.on_server(PostgresServer::crash).await
    }

    pub(crate) async fn start_again(&self) -> anyhow::Result<()> {
        self.on_server(PostgresServer::start_again).await
    }

    /// Kills one process with SIGKILL, after which the server ends all connections and recovers.
    pub(crate) async fn kill_backend(&self, pid: i32) -> anyhow::Result<()> {
        self.on_server(move |server| server.kill_backend(pid)).await
    }

    async fn on_server<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut PostgresServer) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let server = Arc::clone(&self.server);
        let done =
            tokio::task::spawn_blocking(move || action(&mut server.lock().unwrap_or_else(PoisonError::into_inner)));
        done.await.context("the PostgreSQL server of the test failed")
    }
}
