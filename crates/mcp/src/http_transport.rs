//! Messages over HTTP: each is the body of a POST, whose response carries the answer as JSON or as a stream of events.
//!
//! Each request is a task of its own and fails alone. What travels upwards is responses: progress, requests of the server
//! and everything else is handled here, as in `stdio_transport`. Redirects are not followed: the URL is the operator's
//! choice, and where it leads is not.

use crate::http_client::{HttpClient, HttpError, PendingPost, RequestKind, run_request, send_answers};
use crate::http_listener;
use crate::http_session::{HttpSession, SessionRequest};
use crate::limits::OUTGOING_MESSAGES_MAX;
use crate::link::{ConnectionLink, FailureSlot, lock};
use crate::message;
use crate::param_headers::{ArgumentHeaders, request_headers};
use crate::stdio_transport;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tools::EndpointMethod;

pub(crate) struct HttpTransport {
    client: Arc<HttpClient>,
    incoming: mpsc::Receiver<ServerJsonRpcMessage>,
    /// Dropping them aborts the requests.
    tasks: JoinSet<()>,
    requests: HashMap<RequestId, AbortHandle>,
    is_listening: bool,
}

impl HttpTransport {
    pub(crate) fn new(session: HttpSession, may_ask: bool) -> Self {
        let (sender, incoming) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        let (client, mut tasks) = (Arc::new(HttpClient::new(session, sender)), JoinSet::new());
        if may_ask {
            let (answers, given) = mpsc::channel(OUTGOING_MESSAGES_MAX);
            client.session.link.allow_questions(answers);
            tasks.spawn(send_answers(Arc::clone(&client), given));
        }
        Self { client, incoming, tasks, requests: HashMap::new(), is_listening: false }
    }

    fn link(&self) -> &ConnectionLink {
        &self.client.session.link
    }

    fn send_request(&mut self, message: &ClientJsonRpcMessage) -> Result<(), HttpError> {
        let JsonRpcMessage::Request(request) = message else { return Ok(()) };
        let route = message::register_route(message, self.link());
        let body = message::encode_message(message, route.as_ref().map(|route| &*route.arguments))?;
        let kind = match &request.request {
            ClientRequest::DiscoverRequest(_) => RequestKind::Discover,
            ClientRequest::InitializeRequest(_) => RequestKind::Initialize,
            _ => RequestKind::Other,
        };
        let version = request.request.get_meta().protocol_version();
        let extensions = request.request.extensions();
        let mut headers = version.as_ref().map(|_| standard_headers(message)).unwrap_or_default();
        if let Some(ArgumentHeaders(of_arguments)) = extensions.get::<ArgumentHeaders>().filter(|_| version.is_some()) {
            headers.extend(of_arguments.iter().cloned());
        }
        let failure = extensions.get::<FailureSlot>().cloned();
        let request_headers = SessionRequest { method: EndpointMethod::Post, body: body.into(), version, headers };
        let token = request.request.get_meta().get_progress_token();
        let pending = PendingPost { id: request.id.clone(), token, kind, request: request_headers, failure };
        while self.tasks.try_join_next().is_some() {}
        self.requests.retain(|_, task| !task.is_finished());
        let task = self.tasks.spawn(run_request(Arc::clone(&self.client), pending));
        self.requests.insert(request.id.clone(), task);
        self.start_listening(&request.request);
        Ok(())
    }

    /// Once the handshake is over and the tools are asked for.
    fn start_listening(&mut self, request: &ClientRequest) {
        let is_due = matches!(request, ClientRequest::ListToolsRequest(_)) && !self.is_listening;
        let state = self.client.session.state();
        // In a session, some servers ask their questions there.
        if is_due && (state.announces_new_tools || state.id.is_some()) {
            self.is_listening = true;
            self.tasks.spawn(http_listener::listen(Arc::clone(&self.client)));
        }
    }

    /// Ends the request that a notification cancels. Whether the server has to be told, too.
    fn abort_cancelled(&mut self, message: &ClientJsonRpcMessage) -> bool {
        let JsonRpcMessage::Notification(notification) = message else { return true };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification else { return true };
        if let Some(task) = cancelled.params.request_id.as_ref().and_then(|id| self.requests.remove(id)) {
            task.abort();
        }
        // From 2026-07-28 on, the end of the response stream is the cancellation.
        self.client.session.state().version.is_none_or(|version| version.has_initialize())
    }

    fn stop(&mut self) {
        self.tasks.abort_all();
        self.link().close(stdio_transport::closed());
        let has_session = !self.link().has_session_ended() && lock(&self.client.session.state).id.is_some();
        if let (true, Ok(runtime)) = (has_session, tokio::runtime::Handle::try_current()) {
            let client = Arc::clone(&self.client);
            runtime.spawn(async move { client.delete_session().await });
        }
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let started = match &message {
            JsonRpcMessage::Request(_) => Some(self.send_request(&message)),
            _ if self.abort_cancelled(&message) => None,
            _ => Some(Ok(())),
        };
        let client = Arc::clone(&self.client);
        async move {
            match started {
                Some(started) => started,
                None => client.notify(&message).await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let link = &self.client.session.link;
        tokio::select! {
            biased;
            _ = link.closed() => None,
            message = self.incoming.recv() => message,
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.stop();
        Ok(())
    }
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Headers of every request from 2026-07-28 on.
fn standard_headers(message: &ClientJsonRpcMessage) -> Vec<(String, String)> {
    let value = serde_json::to_value(message).unwrap_or_default();
    let method = value.get("method").and_then(Value::as_str).unwrap_or_default();
    request_headers(method, value.get("params"))
}
