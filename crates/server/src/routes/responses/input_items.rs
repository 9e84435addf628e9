//! `GET /v1/responses/{id}/input_items`: lists the input of a response.

use super::ResponsePath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_response::LongJson;
use crate::problem::Problem;
use crate::routes::conversations::items::page_of_items;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use gateway::responses::{find_response, input_items_of_run};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
    uri: Uri,
) -> Result<Response, Problem> {
    let (response, _) = find_response(&app.gateway, &caller.user, &id).await?;
    let items = input_items_of_run(&app.gateway, &caller.user, &response).await?;
    Ok(LongJson(page_of_items(&uri, items)?).into_response())
}
