//! `POST /v1/tickets`: a ticket for one stream or socket, for pages that cannot send headers with it.

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use crate::tickets::{TICKET_LIFETIME, TicketError};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use model::Millis;
use model::error::ErrorCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTicket {}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Ticket {
    expires_at: Millis,
    ticket: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let NewTicket {} = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?.into_object()?;
    let ticket = app.tickets.issue(&caller).await.map_err(|error| match error {
        TicketError::TooMany => {
            Problem::new(ErrorCode::TooManyTickets, error.to_string()).with_header(header::RETRY_AFTER, "60")
        }
        TicketError::Store(error) => Problem::from(error),
        TicketError::Random(_) => {
            tracing::error!(%error, "no ticket");
            Problem::internal()
        }
    })?;
    let good_for = u64::try_from(TICKET_LIFETIME.as_millis()).unwrap_or(u64::MAX);
    let expires_at = app.gateway.engine.ports().clock.now().saturating_add(good_for);
    let body = Ticket { expires_at, ticket };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}
