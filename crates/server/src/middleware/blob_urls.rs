//! `?blobs=signed`: responses in which blob URLs need no key.
//!
//! Bodies are rewritten while they are sent to one client. Every chunk of a stream is a number of whole frames, and that of
//! an object never ends inside a string that holds a URL, so each is rewritten by itself.

use super::authentication::{matched_route, with_query};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use gateway::attachments::{BlobUrlSigner, BlobUrls};
use gateway::stream_start::blob_url_signer;
use std::sync::Arc;

/// Other spellings, such as percent-encoded ones, are not recognized.
const BLOBS_PARAM: &str = "blobs=";
/// Routes whose responses have blob URLs.
pub(crate) const BLOB_URL_ROUTES: [(Method, &str); 26] = [
    (Method::POST, "/v1/tasks"),
    (Method::GET, "/v1/tasks/{task}"),
    (Method::GET, "/v1/tasks/{task}/events"),
    (Method::GET, "/v1/threads/{thread}/events"),
    (Method::GET, "/v1/approvals"),
    (Method::POST, "/api/v1/agent/runs"),
    (Method::GET, "/api/v1/agent/runs/{thread}/events"),
    (Method::GET, "/api/v1/agent/history"),
    (Method::GET, "/ws"),
    (Method::POST, "/v1/responses"),
    (Method::GET, "/v1/responses"),
    (Method::GET, "/v1/responses/{response}"),
    (Method::GET, "/v1/responses/{response}/input_items"),
    (Method::GET, "/v1/conversations/{conversation}/items"),
    (Method::GET, "/v1/conversations/{conversation}/items/{item}"),
    (Method::POST, "/v1/messages"),
    (Method::POST, "/v1/chat/completions"),
    (Method::POST, "/api/chat"),
    (Method::GET, "/api/chat/{thread}/stream"),
    (Method::GET, "/api/chat/{thread}/messages"),
    (Method::POST, "/agui/{agent}"),
    (Method::POST, "/agui/{agent}/connect"),
    (Method::GET, "/agui/{agent}/threads/{thread}/events"),
    (Method::POST, "/copilotkit"),
    (Method::POST, "/copilotkit/agent/{agent}/run"),
    (Method::POST, "/copilotkit/agent/{agent}/connect"),
];

/// Runs after authentication. A socket is not a body: its handler finds [`BlobUrls`] in the request.
pub(crate) async fn sign_blob_urls(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = matched_route(&request);
    let method = if *request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    if !BLOB_URL_ROUTES.iter().any(|known| known.0 == method && known.1 == route) {
        return next.run(request).await;
    }
    let form = match take_blobs_param(&mut request) {
        Ok(form) => form.unwrap_or(app.gateway.attachments.settings.blob_urls),
        Err(problem) => return problem.into_response(),
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let (BlobUrls::Signed, Some(caller)) = (form, caller) else { return next.run(request).await };
    request.extensions_mut().insert(form);
    let response = next.run(request).await;
    sign_body(blob_url_signer(&app.gateway, &caller.user), response)
}

/// Removes the parameter from the URL, so that no handler has to know it.
fn take_blobs_param(request: &mut Request) -> Result<Option<BlobUrls>, Problem> {
    let query = request.uri().query().unwrap_or_default();
    let (forms, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with(BLOBS_PARAM));
    let form = match forms.as_slice() {
        [] => return Ok(None),
        ["blobs=plain"] => BlobUrls::Plain,
        ["blobs=signed"] => BlobUrls::Signed,
        _ => return Err(Problem::invalid_param("blobs", "must be `plain` or `signed`, once")),
    };
    let uri = with_query(request.uri(), &rest.join("&")).ok_or_else(Problem::internal)?;
    *request.uri_mut() = uri;
    Ok(Some(form))
}

fn sign_body(signer: BlobUrlSigner, response: Response) -> Response {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let has_urls = media_type.is_some_and(|media_type| {
        media_type.starts_with("text/event-stream") || media_type.starts_with("application/json")
    });
    if !has_urls {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let signer = Arc::new(signer);
    let chunks = body.into_data_stream().then(move |chunk| {
        let signer = Arc::clone(&signer);
        async move { signer.sign_urls(chunk?).await.map_err(axum::Error::new) }
    });
    Response::from_parts(head, Body::from_stream(chunks))
}
