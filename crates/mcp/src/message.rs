//! What every transport does with messages, however they travel.

use crate::elicitation::read_question;
use crate::limits::PROGRESS_MESSAGE_BYTES_MAX;
use crate::link::{CallRoute, ConnectionLink, Elicitation};
use crate::tool_list::clean_text;
use model::tool::ProgressUpdate;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ClientResult, ErrorCode, ErrorData, GetMeta as _, JsonRpcMessage,
    JsonRpcRequest, ProgressToken, ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a transport does with a message of the server.
pub(crate) enum SortedMessage {
    /// For the library, which knows the request.
    Response(ServerJsonRpcMessage),
    /// A request of the server; this is the response to send.
    Answer(ClientJsonRpcMessage),
    /// Nothing.
    Handled,
}

/// Routes progress to its call, and lets through responses alone: the library spawns a task for everything else.
/// `origin` is the call in whose response the message came, where the transport knows it.
pub(crate) fn sort_message(
    message: ServerJsonRpcMessage,
    link: &ConnectionLink,
    origin: Option<&ProgressToken>,
) -> SortedMessage {
    match message {
        response @ (JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => SortedMessage::Response(response),
        JsonRpcMessage::Notification(notification) => {
            match notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    let progress = progress.params;
                    let message = progress.message.map(|text| clean_text(&text, PROGRESS_MESSAGE_BYTES_MAX));
                    let update = ProgressUpdate { message, progress: Some(progress.progress), total: progress.total };
                    link.send_progress(&progress.progress_token, update);
                }
                ServerNotification::ToolListChangedNotification(_) => link.note_new_tools(),
                ServerNotification::CancelledNotification(cancelled) => {
                    cancelled.params.request_id.iter().for_each(|id| link.withdraw_request(id));
                }
                _ => {}
            }
            SortedMessage::Handled
        }
        JsonRpcMessage::Request(JsonRpcRequest { id, request, .. }) => SortedMessage::Answer(match request {
            ServerRequest::PingRequest(_) => ClientJsonRpcMessage::response(ClientResult::empty(()), id),
            ServerRequest::ElicitRequest(request) if link.takes_questions() => {
                let question = read_question(request.params).ok_or("only forms are supported");
                let asked = question.and_then(|question| link.ask(Elicitation { id: id.clone(), question }, origin));
                let Err(why) = asked else { return SortedMessage::Handled };
                ClientJsonRpcMessage::error(ErrorData::new(ErrorCode::INVALID_REQUEST, why, None), Some(id))
            }
            // No capability was declared for anything else.
            _ => {
                let refusal = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "not supported", None);
                ClientJsonRpcMessage::error(refusal, Some(id))
            }
        }),
    }
}

pub(crate) fn parse_message(json: &[u8]) -> Option<ServerJsonRpcMessage> {
    serde_json::from_slice(json).ok()
}

/// The route of a tool call; its progress is awaited before the call is sent.
pub(crate) fn register_route(message: &ClientJsonRpcMessage, link: &ConnectionLink) -> Option<CallRoute> {
    let JsonRpcMessage::Request(JsonRpcRequest { request, .. }) = message else { return None };
    let ClientRequest::CallToolRequest(call) = request else { return None };
    let route = call.extensions.get::<CallRoute>()?.clone();
    if let Some(token) = request.get_meta().get_progress_token() {
        link.add_asker(token.clone(), route.elicitations.clone());
        link.add_route(token, Arc::clone(&route.progress));
    }
    Some(route)
}

/// A message as JSON. The arguments are inserted as text, because a parsed number could be another one.
pub(crate) fn encode_message(
    message: &ClientJsonRpcMessage,
    arguments: Option<&str>,
) -> Result<Vec<u8>, serde_json::Error> {
    let Some(arguments) = arguments else { return serde_json::to_vec(message) };
    let mut members: BTreeMap<String, Value> = serde_json::from_value(serde_json::to_value(message)?)?;
    let params = members.remove("params").unwrap_or_default();
    let mut params: BTreeMap<String, Box<RawValue>> = match params {
        Value::Object(params) => params
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::value::to_raw_value(&value)?)))
            .collect::<Result<_, serde_json::Error>>()?,
        _ => BTreeMap::new(),
    };
    params.insert("arguments".to_owned(), RawValue::from_string(arguments.to_owned())?);
    let mut raw: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    for (name, value) in members {
        raw.insert(name, serde_json::value::to_raw_value(&value)?);
    }
    raw.insert("params".to_owned(), serde_json::value::to_raw_value(&params)?);
    serde_json::to_vec(&raw)
}
