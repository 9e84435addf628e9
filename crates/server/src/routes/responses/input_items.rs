//! `GET /v1/responses/{id}/input_items`: what a response was asked with.

use super::{ResponsePath, find_response};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::routes::conversations::items::page_of_items;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use model::command::Command;
use model::ports::PageLimit;
use protocol::responses::InputItems;
use serde_json::Value;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
    uri: Uri,
) -> Result<Response, Problem> {
    let (found, _) = find_response(&app, &caller.user, &id).await?;
    let items = input_items_of_run(&app, &caller.user, &found.run, Some(found.segment)).await?;
    Ok(axum::Json(page_of_items(&uri, items)?).into_response())
}

/// What a run is asked with that has not begun.
async fn queued_input_items(
    app: &App,
    user: &model::UserId,
    run: &model::ports::RunRow,
) -> Result<Vec<Value>, Problem> {
    let rows = app.engine.ports().directory.inbox(user, &run.thread).await?;
    let start = rows.into_iter().find_map(|row| match row.command {
        Command::Start(start) if start.task_id == run.id => Some(start),
        _ => None,
    });
    Ok(start.map(|start| InputItems::of_start_command(&start)).unwrap_or_default())
}

/// What a run was asked with, in one of its segments or in all.
pub(crate) async fn input_items_of_run(
    app: &App,
    user: &model::UserId,
    run: &model::ports::RunRow,
    segment: Option<u32>,
) -> Result<Vec<Value>, Problem> {
    let Some(first) = run.first_seq else { return queued_input_items(app, user, run).await };
    let mut items = Vec::new();
    let mut at = first.prev();
    let mut now = 1;
    let mut given = InputItems::default();
    loop {
        let page = app.engine.ports().journal.read_page(user, &run.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(items) };
        at = last.seq;
        for record in &page.records {
            if record.run != run.id {
                return Ok(items);
            }
            now += u32::from(record.event_type() == "task.resumed");
            let new = given.read_record(record);
            if segment.is_none_or(|segment| segment == now) {
                items.extend(new);
            }
        }
    }
}
