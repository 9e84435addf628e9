//! The table of routes.

use crate::app::App;
use crate::middleware;
use crate::problem::Problem;
use crate::routes;
use crate::ws;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use gateway::attachments::RAW_ATTACHMENT_PATH;
use std::any::Any;
use tower_http::catch_panic::CatchPanicLayer;

pub(crate) fn router(app: &App) -> Router {
    native_routes()
        .merge(compatible_routes())
        .route_layer(from_fn_with_state(app.clone(), middleware::require_caller))
        .merge(public_routes())
        .method_not_allowed_fallback(async || middleware::method_not_allowed())
        .fallback(async || Problem::not_found())
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(from_fn_with_state(app.clone(), middleware::enforce_origin_policy))
        .with_state(app.clone())
}

fn native_routes() -> Router<App> {
    Router::new()
        .route("/v1/tasks", post(routes::task_create::handle).get(routes::task_list::handle))
        .route("/v1/tasks/{task}", get(routes::task_get::handle))
        .route("/v1/tasks/{task}/events", get(routes::task_events::handle))
        .route("/v1/tasks/{task}/cancel", post(routes::task_cancel::handle))
        .route("/v1/tasks/{task}/input", post(routes::task_input::handle))
        .route("/v1/tasks/{task}/approvals/{key}", post(routes::task_approve::handle))
        .route("/v1/tasks/{task}/tool_results", post(routes::task_tool_results::handle))
        .route("/v1/approvals", get(routes::approval_list::handle))
        .route("/v1/usage", get(routes::usage::handle))
        .route("/v1/threads", get(routes::thread_list::handle))
        .route("/v1/threads/{thread}", get(routes::thread_get::handle).delete(routes::thread_delete::handle))
        .route("/v1/threads/{thread}/events", get(routes::thread_events::handle))
        .route("/v1/threads/{thread}/shares", get(routes::share_list::handle).post(routes::share_create::handle))
        .route("/v1/threads/{thread}/shares/{share}", delete(routes::share_revoke::handle))
        .route("/v1/blobs/{hash}", get(routes::blob_get::handle))
        .route("/v1/tickets", post(routes::ticket_create::handle))
        .route("/ws", get(ws::handle))
        .route("/api/v1/agent/runs", post(routes::agent_run_create::handle))
        .route("/api/v1/agent/runs/{thread}/events", get(routes::agent_run_events::handle))
        .route("/api/v1/agent/runs/{thread}/cancel", post(routes::agent_run_cancel::handle))
        .route("/api/v1/agent/history", get(routes::agent_history::handle))
        .route("/api/v1/agent/attachments", post(routes::attachment_create::handle))
        .route("/api/v1/agent/attachments/signed-url", get(routes::attachment_signed_url::handle))
}

/// Routes of other vendors' APIs.
fn compatible_routes() -> Router<App> {
    Router::new()
        .route("/v1/responses", post(routes::responses::create::handle))
        .route(
            "/v1/responses/{response}",
            get(routes::responses::get::handle).delete(routes::responses::delete::handle),
        )
        .route("/v1/responses/{response}/cancel", post(routes::responses::cancel::handle))
        .route("/v1/responses/{response}/input_items", get(routes::responses::input_items::handle))
        .route("/v1/conversations", post(routes::conversations::create))
        .route(
            "/v1/conversations/{conversation}",
            get(routes::conversations::get).post(routes::conversations::update).delete(routes::conversations::delete),
        )
        .route(
            "/v1/conversations/{conversation}/items",
            get(routes::conversations::items::list).post(routes::conversations::items::create),
        )
        .route(
            "/v1/conversations/{conversation}/items/{item}",
            get(routes::conversations::items::get).delete(routes::conversations::items::delete),
        )
        .route("/v1/chat/completions", post(routes::chat_create::handle))
        .route("/v1/messages", post(routes::message_create::handle))
        .route("/v1/models", get(routes::models::list))
        .route("/v1/models/{*model}", get(routes::models::get))
}

/// Routes without a key.
fn public_routes() -> Router<App> {
    Router::new()
        .route("/healthz", get(routes::health::alive))
        .route("/readyz", get(routes::health::ready))
        .route("/metrics", get(routes::metrics::handle))
        .route("/openapi.json", get(routes::page::openapi_json))
        .route(RAW_ATTACHMENT_PATH, get(routes::attachment_raw::handle))
        .route("/", get(routes::page::index))
        .route("/app.js", get(routes::page::app_js))
        .route("/draw.js", get(routes::page::draw_js))
        .route("/fold.js", get(routes::page::fold_js))
        .route("/follow.js", get(routes::page::follow_js))
        .route("/style.css", get(routes::page::style_css))
}

/// A bug costs one response, not the process.
#[expect(clippy::needless_pass_by_value, reason = "the layer's signature")]
fn panic_response(cause: Box<dyn Any + Send>) -> Response {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(cause = text, "a request panicked");
    metrics::counter!("headwater_panics_total").increment(1);
    Problem::internal().into_response()
}
