//! The routes that viewers of shares may call.

use crate::problem::Problem;
use axum::http::Method;
use model::error::ErrorCode;

/// `gateway::shares::ScopedStore` limits what these show to the shared thread.
const VIEWER_ROUTES: [&str; 15] = [
    "/v1/threads/{thread}",
    "/v1/threads/{thread}/events",
    "/v1/tasks",
    "/v1/tasks/{task}",
    "/v1/tasks/{task}/events",
    "/v1/responses/{response}",
    "/v1/responses/{response}/input_items",
    "/api/v1/agent/runs/{thread}/events",
    "/api/v1/agent/history",
    "/api/v1/agent/attachments/signed-url",
    "/api/chat/{thread}/stream",
    "/api/chat/{thread}/messages",
    "/agui/{agent}/threads/{thread}/events",
    "/v1/blobs/{hash}",
    "/ws",
];
/// A ticket opens a stream from a browser.
const TICKET_ROUTE: &str = "/v1/tickets";

pub(crate) fn check_viewer_route(method: &Method, route: &str) -> Result<(), Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if (reads && VIEWER_ROUTES.contains(&route)) || (*method == Method::POST && route == TICKET_ROUTE) {
        return Ok(());
    }
    // The same for every thread, so that an error does not reveal which threads exist.
    Err(if reads { Problem::not_found() } else { share_read_only() })
}

pub(crate) fn share_read_only() -> Problem {
    let detail = "a share can be read, and nothing else: go on in a thread of your own";
    Problem::new(ErrorCode::ShareReadOnly, detail)
}
