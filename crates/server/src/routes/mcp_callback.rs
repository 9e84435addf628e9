//! `GET` and `POST /v1/mcp/callback`: the answer of an authorization server, brought by the user's browser or by an
//! application that the browser came back to. And `GET /v1/mcp/client.json`, which describes this server to them.
//!
//! A browser has no key, so the state alone says whose authorization it is. An application that shows its users' keys is
//! safer: a user cannot be talked into finishing the authorization of somebody else.

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::mcp_servers::{CALLBACK_PATH, CLIENT_DOCUMENT_PATH, client_addresses, document_url};
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use gateway::approvals::decide_approval_of_task;
use mcp::{AnswerSource, AuthorizationAnswer, AuthorizationError, FinishedAuthorization, McpAuthorizations};
use model::definition::{McpAuth, McpTransport};
use model::event::{ApprovalDecision, ApprovalDecisionKind};
use model::ports::{ApprovalFilter, ApprovalRow, ListPage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Questions of one user that an authorization answers at once.
const QUESTIONS_MAX: usize = 100;

/// What the authorization server appended to the address.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpCallback {
    state: String,
    code: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct FinishedMcpAuthorization {
    /// The server that is authorized now.
    name: String,
}

/// The pages are no part of the API, so the OpenAPI document leaves them out.
pub(crate) fn router() -> Router<App> {
    Router::new().route(CALLBACK_PATH, get(show_page)).route(CLIENT_DOCUMENT_PATH, get(client_document))
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<FinishedMcpAuthorization>, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let McpCallback { state, code, iss, error } =
        JsonBody::read(&headers, body, &app.limits, &caller.user).await?.into_object()?;
    let answer = AuthorizationAnswer { state, code, iss, error };
    let finished = app.mcp_authorizations.finish(answer, AnswerSource::User(&caller.user)).await;
    let finished = finished.map_err(|error| failed(&error))?;
    answer_questions(&app, &finished).await;
    Ok(Json(FinishedMcpAuthorization { name: finished.label }))
}

async fn show_page(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Response {
    let finished = match query_params::parse_known_query(&uri, ["state", "code", "iss", "error"]) {
        Ok([state, code, iss, error]) => {
            let answer = AuthorizationAnswer { state: state.unwrap_or_default(), code, iss, error };
            let addresses = client_addresses(&app, &headers);
            let source = AnswerSource::Browser { callback_url: &addresses.callback_url };
            app.mcp_authorizations.finish(answer, source).await
        }
        Err(_) => Err(AuthorizationError::UnknownState),
    };
    match finished {
        // The name is that of a config: letters, digits, `_` and `-`.
        Ok(finished) => {
            answer_questions(&app, &finished).await;
            let text = format!("Headwater may now use {} for you. You can close this window.", finished.label);
            page(StatusCode::OK, "Authorized", &text)
        }
        Err(error) => {
            let status = StatusCode::from_u16(error.code().http_status()).unwrap_or(StatusCode::BAD_REQUEST);
            page(status, "Not authorized", &format!("Nothing was authorized: {error}."))
        }
    }
}

/// The calls that wait for this authorization go on. A question that cannot be answered now can be by its user.
async fn answer_questions(app: &App, finished: &FinishedAuthorization) {
    let url = mcp::authorize_path(&finished.label);
    let page = ListPage { before: None, limit: QUESTIONS_MAX };
    let directory = &app.gateway.engine.ports().directory;
    let pending = directory.approvals(&finished.user, ApprovalFilter::Pending, page).await.unwrap_or_default();
    let waits = |approval: &&ApprovalRow| {
        approval.question.as_ref().is_some_and(|question| question.url.as_deref() == Some(url.as_str()))
    };
    for approval in pending.iter().filter(waits) {
        let decision =
            ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None };
        let (task, key) = (&approval.task_id, &approval.key);
        let decided = decide_approval_of_task(&app.gateway, &finished.user, task, key, decision, None).await;
        if decided.is_err() {
            tracing::debug!(%task, "a question for an authorization was answered by somebody else");
        }
    }
}

fn failed(error: &AuthorizationError) -> Problem {
    Problem::new(error.code(), format!("nothing was authorized: {error}"))
}

/// Nothing of a request is in it but error codes of OAuth, which are letters, digits and `_`.
fn page(status: StatusCode, title: &str, text: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n<h1>{title}</h1>\n<p>{text}</p>\n"
    );
    (status, headers, html).into_response()
}

/// Says what a registration would say, for authorization servers that read it instead.
async fn client_document(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    let url = document_url(&app).ok_or_else(Problem::not_found)?;
    let definitions = app.gateway.engine.ports().definitions.get();
    let mut redirect_uris = BTreeSet::from([client_addresses(&app, &headers).callback_url]);
    redirect_uris.extend(definitions.mcp.values().filter_map(|server| match &server.program.transport {
        McpTransport::Endpoint(endpoint) => match endpoint.auth.as_deref() {
            Some(McpAuth::OAuth(client)) => client.redirect_url.clone(),
            Some(McpAuth::User | McpAuth::ClientCredentials(_)) | None => None,
        },
        McpTransport::Command(_) => None,
    }));
    let redirect_uris: Vec<String> = redirect_uris.into_iter().collect();
    Ok(Json(McpAuthorizations::client_document(&url, &redirect_uris)).into_response())
}
