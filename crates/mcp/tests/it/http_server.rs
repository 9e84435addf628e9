//! A server with a URL, in a mode.

use crate::fixtures::TestServers;
use model::definition::{Definitions, McpEndpoint, McpServer, McpTransport};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A server and the pool that is connected to it.
pub(crate) struct HttpTest {
    pub(crate) servers: TestServers,
    pub(crate) host: HttpServer,
}

pub(crate) struct HttpServer {
    process: Child,
    folder: TempDir,
    pub(crate) url: String,
}

impl HttpServer {
    pub(crate) fn start(mode: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/servers/http_server.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(mode).arg(folder.path()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, folder, url: format!("http://127.0.0.1:{}/mcp", port.trim()) }
    }

    pub(crate) fn notes(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The requests with this method of the protocol, or of HTTP.
    pub(crate) fn requests(&self, method: &str) -> Vec<Value> {
        let is_wanted = |request: &Value| request["message"]["method"] == method || request["method"] == method;
        self.notes("requests").into_iter().filter(is_wanted).collect()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl HttpTest {
    pub(crate) fn start(mode: &str) -> Self {
        Self { servers: TestServers::new(), host: HttpServer::start(mode) }
    }

    /// A run with the tools of a server in this mode.
    pub(crate) async fn run(mode: &str) -> (Self, Arc<Definitions>) {
        let test = Self::start(mode);
        let run = test.servers.resolve(test.server()).await.expect("the server lists its tools");
        (test, run)
    }

    pub(crate) fn server(&self) -> McpServer {
        let mut server = self.servers.server("none");
        let endpoint = McpEndpoint {
            url: self.host.url.clone(),
            headers: [("X-Team".to_owned(), "Bearer {env:TOKEN}".to_owned())].into(),
            auth: None,
        };
        server.program.transport = McpTransport::Endpoint(endpoint);
        server
    }
}
