//! The table of routes. The router and the OpenAPI document are both built from it.

mod agui;
mod compatible;
mod native;
mod ui_chat;

use crate::app::App;
use crate::middleware;
use crate::openapi::{Api, date};
use crate::problem::Problem;
use crate::routes::*;
use crate::ws;
use axum::Router;
use axum::middleware::from_fn_with_state;
use model::error::ErrorCode::{
    AuthorizationUnavailable, InvalidAuthorization, InvalidHandshake, NotFound, Stopping, StorageUnavailable,
    TooManyStreams, TooManyTickets, Unauthorized, UpgradeRequired,
};
use model::json::JsonObject;
use std::sync::LazyLock;

static OPENAPI_JSON: LazyLock<String> = LazyLock::new(|| api().into_document());

/// The OpenAPI document.
pub(crate) fn openapi_json() -> &'static str {
    &OPENAPI_JSON
}

pub(crate) fn router(app: &App) -> Router {
    let Api { keyed, public, .. } = api();
    keyed
        .route_layer(from_fn_with_state(app.clone(), middleware::sign_blob_urls))
        .route_layer(from_fn_with_state(app.clone(), middleware::require_caller))
        .merge(public)
        .merge(page::router())
        .merge(mcp_callback::router())
        .method_not_allowed_fallback(async || middleware::method_not_allowed())
        .fallback(async || Problem::not_found())
        .layer(from_fn_with_state(app.clone(), middleware::enforce_origin_policy))
        .with_state(app.clone())
}

fn api() -> Api {
    let mut api = Api::new();
    native::add_routes(&mut api);
    api.group("blocks", "A thread as content blocks over one socket.");
    add_socket_route(&mut api);
    compatible::add_routes(&mut api);
    agui::add_routes(&mut api);
    api.group("mcp", "MCP servers that act for a user.");
    add_mcp_routes(&mut api);
    api.group("server", "Tickets, usage, health and metrics.");
    add_server_routes(&mut api);
    api
}

fn add_socket_route(api: &mut Api) {
    api.get("/ws", ws::handle, "openSocket", "Open a conversation as content blocks, over a WebSocket")
        .description(
            "Messages are JSON texts. In: `chat`, `resume`, `stop`, `approval_response`, `ping`. Out: a turn's \
             `message_start`, `content_block_start`, `content_block_delta`, `content_block_stop`, `message_delta` and \
             `message_stop`, each with `message_id` and `cursor`; `error` and `pong`. docs/protocols.md has their shapes.",
        )
        .ticket()
        .blob_urls()
        .empty(101, "The socket is open.")
        .errors(&[InvalidHandshake, UpgradeRequired, TooManyStreams]);
}

fn add_mcp_routes(api: &mut Api) {
    api.get("/v1/mcp", mcp_list::handle, "listMcpServers", "List the MCP servers of your agents")
        .json::<mcp_list::McpServerList>(200, "The servers, and which of them you have authorized.")
        .errors(&[StorageUnavailable]);
    api.post("/v1/mcp/{server}/authorize", mcp_authorize::handle, "authorizeMcpServer", "Authorize an MCP server")
        .description(
            "Finds the authorization server, makes Headwater known there, and returns the URL that the user opens in a \
             browser. The browser comes back to `GET /v1/mcp/callback`, which keeps the token and shows a page; with \
             `redirect_url` in the config it comes back there instead, and the application passes the answer on.",
        )
        .optional_body::<mcp_authorize::NewMcpAuthorization>()
        .json::<mcp_authorize::McpAuthorization>(201, "Where the user goes on.")
        .errors(&[AuthorizationUnavailable, InvalidAuthorization, StorageUnavailable]);
    api.get("/v1/mcp/{server}/authorize", mcp_authorize::redirect, "openMcpAuthorization", "Authorize in a browser")
        .description(
            "The `url` of a question for an authorization, for links on pages: sends the browser where `POST` says. With keys \
             it needs a ticket.",
        )
        .ticket()
        .empty(303, "To the authorization server.")
        .response_header(303, "Location")
        .errors(&[AuthorizationUnavailable, InvalidAuthorization, StorageUnavailable]);
    api.post("/v1/mcp/callback", mcp_callback::handle, "finishMcpAuthorization", "Finish an authorization")
        .description(
            "For the page that `redirect_url` names: the parameters with which the browser came back, sent with the key of \
             the user who started the authorization. An answer counts once, for ten minutes.",
        )
        .body::<mcp_callback::McpCallback>()
        .json::<mcp_callback::FinishedMcpAuthorization>(200, "The server is authorized.")
        .errors(&[AuthorizationUnavailable, InvalidAuthorization, StorageUnavailable]);
    api.delete(
        "/v1/mcp/{server}/authorization",
        mcp_forget::handle,
        "forgetMcpAuthorization",
        "Delete your tokens for an MCP server",
    )
    .empty(204, "They are deleted.")
    .errors(&[StorageUnavailable]);
}

fn add_server_routes(api: &mut Api) {
    api.post("/v1/tickets", ticket_create::handle, "createTicket", "Create a ticket for one stream or socket")
        .description(
            "For browsers, whose `EventSource` and `WebSocket` cannot send a key: append `?ticket=hwt_…` to the URL. A \
             ticket is valid once, for 60 seconds, on event streams and `/ws`, with the access of its creator. A stream \
             that reconnects needs a new ticket and `?after=` with the last id.",
        )
        .optional_body::<ticket_create::NewTicket>()
        .json::<ticket_create::Ticket>(201, "The ticket.")
        .errors(&[TooManyTickets]);
    api.get("/v1/usage", usage::handle, "getUsage", "Get the usage of a day")
        .description("The usage of all runs on that day (UTC), deleted threads included.")
        .query("day", "Today by default.", date())
        .json::<usage::DayUsage>(200, "The usage.");
    api.public_get("/metrics", metrics::handle, "metrics", "Get Prometheus metrics")
        .description("From this machine, or with the token of `[metrics]` as `Authorization: Bearer …`.")
        .text("Text format 0.0.4.")
        .errors(&[NotFound, Unauthorized]);
    api.public_get("/healthz", health::alive, "isAlive", "Check that the process is alive").text("It is.");
    api.public_get("/readyz", health::ready, "isReady", "Check that the server accepts work")
        .text("It does.")
        .errors(&[Stopping]);
    let document = async || page::embedded("application/json", openapi_json());
    api.public_get("/openapi.json", document, "openapi", "Get this document").json::<JsonObject>(200, "OpenAPI 3.1.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_that_signs_blob_urls_documents_it() {
        let document: serde_json::Value = serde_json::from_str(openapi_json()).unwrap();
        let mut documented = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if operation["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "blobs") {
                    documented.push(format!("{} {path}", method.to_uppercase()));
                }
            }
        }
        let documented_path = |path: &str| path.replace("{task}", "{task_id}").replace("{thread}", "{thread_id}");
        let mut signing: Vec<String> = middleware::BLOB_URL_ROUTES
            .iter()
            .map(|(method, path)| format!("{method} {}", documented_path(path)))
            .collect();
        documented.sort();
        signing.sort();
        assert_eq!(documented, signing);
    }

    #[test]
    fn a_schema_has_one_meaning() {
        assert_eq!(api().conflicting_schemas(), Vec::<String>::new());
    }
}
