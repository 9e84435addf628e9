//! Hears from a server outside of any call: that its tools have changed, or a question.
//!
//! A server of 2025-11-25 has a stream of its session; one of 2026-07-28 the response to `subscriptions/listen`. Without
//! either, a list is asked for again when it is old.

use crate::client_config::client_config;
use crate::http_body::EventReader;
use crate::http_client::HttpClient;
use crate::http_session::{SessionRequest, SessionResponse, media_type};
use crate::limits::{LISTEN_DELAY_MAX, RESUME_DELAY};
use crate::link::{RequestFailure, RequestFate};
use crate::message::encode_message;
use crate::param_headers::request_headers;
use crate::token_source::BearerToken;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject,
    SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use std::sync::Arc;
use std::time::Duration;
use tools::EndpointMethod;

/// The transport numbers its requests; this one is not among them.
const LISTEN_ID: &str = "listen";

/// Listens until the connection is closed, or the server does not offer it.
pub(crate) async fn listen(client: Arc<HttpClient>) {
    let mut last_event_id: Option<String> = None;
    let mut delay = RESUME_DELAY;
    loop {
        let opened = match client.session.state().version.is_some_and(|version| version.has_initialize()) {
            true => client.open_events(last_event_id.as_deref()).await,
            false => open_subscription(&client).await,
        };
        match opened {
            Ok(opened) => {
                let mut events = EventReader::new(opened.response);
                // A flood, or nonsense, is not listened to any more.
                let Ok(has_heard) = read_events(&client, &mut events, opened.token.as_ref()).await else { return };
                last_event_id = events.last_event_id().map(str::to_owned).or(last_event_id);
                delay = match (events.retry_ms(), has_heard) {
                    (Some(retry_ms), _) => Duration::from_millis(retry_ms).max(RESUME_DELAY),
                    (None, true) => RESUME_DELAY,
                    (None, false) => delay * 2,
                };
                // Whatever was said meanwhile was not heard.
                client.session.link.note_new_tools();
            }
            Err(RequestFailure { fate: RequestFate::SessionEnded, error }) => {
                return client.session.link.end_session(error);
            }
            // Most servers of 2025-11-25 have no such stream.
            Err(RequestFailure { fate: RequestFate::Refused, .. }) => return,
            Err(RequestFailure { fate: RequestFate::Unknown, .. }) => delay *= 2,
        }
        delay = delay.min(LISTEN_DELAY_MAX);
        tokio::time::sleep(delay).await;
    }
}

/// Handles events until the stream ends; whether there were any.
async fn read_events(client: &HttpClient, events: &mut EventReader, token: Option<&BearerToken>) -> Result<bool, ()> {
    let mut has_heard = false;
    while let Some(data) = events.next_data().await.map_err(|_| ())? {
        if data.trim().is_empty() {
            continue;
        }
        let message = client.parse(data, token).await.ok_or(())?;
        has_heard = true;
        // The subscription was refused, or has ended.
        if let Some(JsonRpcMessage::Error(_)) = client.handle_message(message, None).await {
            return Err(());
        }
    }
    Ok(has_heard)
}

async fn open_subscription(client: &HttpClient) -> Result<SessionResponse, RequestFailure> {
    let config = client_config(false);
    let version = ProtocolVersion::V_2026_07_28;
    let meta = RequestMetaObject::with_client_context(version.clone(), config.client_info, config.capabilities);
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = Some(true);
    let params = SubscriptionsListenRequestParams::new(filter).with_meta(meta);
    let request = ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
    let message = ClientJsonRpcMessage::request(request, RequestId::String(LISTEN_ID.into()));
    let body = encode_message(&message, None).map_err(|_| client.protocol_failure("cannot be asked"))?;
    let request = SessionRequest {
        method: EndpointMethod::Post,
        body: body.into(),
        version: Some(version),
        headers: request_headers("subscriptions/listen", None),
    };
    let label = &client.session.label;
    let answered = client.session.send(&request).await.map_err(|error| error.into_failure(label))?;
    match media_type(&answered.response) == "text/event-stream" {
        true => Ok(answered),
        false => Err(RequestFailure { fate: RequestFate::Refused, ..client.protocol_failure("has no subscriptions") }),
    }
}
