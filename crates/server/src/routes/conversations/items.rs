//! `/v1/conversations/{id}/items`: the items of a conversation, run by run.

use super::{
    Conversation, ItemsField, change_conversation, conversation_not_found, find_conversation, parse_new_items,
};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::json_response::json_response_with_images;
use crate::problem::Problem;
use crate::query_params::parse_known_query;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::responses::{ResponseRef, input_items_of_run, read_response};
use model::UserId;
use model::error::{ErrorCode, truncate_text};
use model::json::JsonObject;
use model::ports::{ListPage, RunFilter, RunRow};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const LIMIT_MAX: usize = 100;
const LIMIT_DEFAULT: usize = 20;
/// Number of runs that are read at a time.
const RUNS_PAGE_SIZE: usize = 100;

pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let conversation = find_conversation(&app, &caller.user, &id).await?;
    let mut page = ItemPage::parse(&uri)?;
    let mut runs = started_runs(&app, &caller.user, &conversation).await?;
    if page.newest_first {
        page.push_items(conversation.data.items.clone());
    } else {
        runs.reverse();
    }
    for run in &runs {
        if page.is_full() {
            break;
        }
        page.push_items(items_of_run(&app, &caller.user, run).await?);
    }
    if !page.newest_first {
        page.push_items(conversation.data.items);
    }
    Ok(json_response_with_images(&app, &caller.user, &conversation.thread, &page.into_json()?))
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let _large = json.take_permit();
    let body: JsonObject = json.into_object()?;
    let items = parse_new_items(&app, &caller.user, &body, ItemsField::Required).await?;
    let changed = change_conversation(&app, &caller.user, &id, |data| {
        data.items.extend(items.iter().cloned());
        Ok(())
    });
    changed.await?.ok_or_else(|| conversation_not_found(&id))?;
    Ok(axum::Json(list_json(&items, MorePages::No)).into_response())
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let conversation = find_conversation(&app, &caller.user, &id).await?;
    let is_it = |value: &Value| value.get("id").and_then(Value::as_str) == Some(&item);
    if let Some(found) = conversation.data.items.iter().find(|value| is_it(value)) {
        return Ok(axum::Json(found).into_response());
    }
    // The id of an item contains that of its run.
    let run = match model::TaskId::from(item.as_str()).run_id() {
        Some(run) => app.gateway.engine.run_of_task(&caller.user, &run).await?,
        None => None,
    };
    let Some(run) = run.filter(|run| run.thread == conversation.thread) else { return Err(item_not_found(&item)) };
    let found = items_of_run(&app, &caller.user, &run).await?.into_iter().find(is_it);
    Ok(json_response_with_images(&app, &caller.user, &run.thread, &found.ok_or_else(|| item_not_found(&item))?))
}

/// Removes an item that no run has read; an item that was read stays in the log.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let changed = change_conversation(&app, &caller.user, &id, |data| {
        let before = data.items.len();
        data.items.retain(|value| value.get("id").and_then(Value::as_str) != Some(&item));
        if data.items.len() == before {
            let detail = "an item that was read cannot be taken out of its log: delete the conversation's thread";
            return Err(Problem::new(ErrorCode::Unsupported, detail));
        }
        Ok(())
    });
    let conversation = changed.await?.ok_or_else(|| conversation_not_found(&id))?;
    Ok(axum::Json(conversation.to_json()).into_response())
}

fn item_not_found(id: &str) -> Problem {
    let short = truncate_text(id, 80);
    Problem::new(ErrorCode::NotFound, format!("Item with id '{short}' not found."))
}

/// The runs of a conversation that have started, newest first.
async fn started_runs(app: &App, user: &UserId, conversation: &Conversation) -> Result<Vec<RunRow>, Problem> {
    let filter = RunFilter { thread: Some(conversation.thread.clone()), ..RunFilter::default() };
    let mut all: Vec<RunRow> = Vec::new();
    loop {
        let page = ListPage { before: all.last().map(|run| run.id.to_string()), limit: RUNS_PAGE_SIZE };
        let runs = app.gateway.engine.ports().directory.runs(user, filter.clone(), page).await?;
        if runs.is_empty() {
            return Ok(all.into_iter().filter(|run| run.first_seq.is_some()).collect());
        }
        all.extend(runs);
    }
}

/// The items of a run, in order. An item that several segments of the run have appears once, at its last position.
async fn items_of_run(app: &App, user: &UserId, run: &RunRow) -> Result<Vec<Value>, Problem> {
    let mut items = Vec::new();
    for segment in 1.. {
        let found = ResponseRef { run: run.clone(), segment };
        let Some(read) = read_response(&app.gateway, user, &found).await? else { break };
        items.extend(input_items_of_run(&app.gateway, user, &found).await?);
        items.extend(read.object.get("output").and_then(Value::as_array).into_iter().flatten().cloned());
        if !read.is_ended {
            break;
        }
    }
    let mut seen = BTreeSet::new();
    let mut unique: Vec<Value> = items.into_iter().rev().filter(|item| seen.insert(item_id(item))).collect();
    unique.reverse();
    Ok(unique)
}

fn item_id(item: &Value) -> Option<String> {
    item.get("id").and_then(Value::as_str).map(str::to_owned)
}

/// A page of a listing under construction.
struct ItemPage {
    newest_first: bool,
    /// Only items after this one.
    after: Option<String>,
    limit: usize,
    /// At most one more than the limit, to detect a further page.
    items: Vec<Value>,
}

impl ItemPage {
    fn parse(uri: &Uri) -> Result<Self, Problem> {
        let [limit, order, after] = parse_known_query(uri, ["limit", "order", "after"])?;
        let limit = match limit {
            None => LIMIT_DEFAULT,
            Some(text) => {
                let number = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                number
                    .ok_or_else(|| Problem::invalid_param("limit", format!("must be a number from 1 to {LIMIT_MAX}")))?
            }
        };
        let newest_first = match order.as_deref() {
            None | Some("desc") => true,
            Some("asc") => false,
            Some(_) => return Err(Problem::invalid_param("order", "must be `asc` or `desc`")),
        };
        Ok(Self { newest_first, after, limit, items: Vec::new() })
    }

    fn is_full(&self) -> bool {
        self.items.len() > self.limit
    }

    /// Adds items, oldest first.
    fn push_items(&mut self, mut items: Vec<Value>) {
        if self.newest_first {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let index = items.iter().position(|item| item.get("id").and_then(Value::as_str) == Some(after));
            let Some(index) = index else { return };
            items.drain(..=index);
            self.after = None;
        }
        let room = (self.limit + 1).saturating_sub(self.items.len());
        self.items.extend(items.into_iter().take(room));
    }

    fn into_json(mut self) -> Result<Value, Problem> {
        // An empty page would look like the end.
        if let Some(after) = &self.after {
            let short = truncate_text(after, 80);
            return Err(Problem::invalid_param("after", format!("no item `{short}` in this conversation")));
        }
        let more = if self.is_full() { MorePages::Yes } else { MorePages::No };
        self.items.truncate(self.limit);
        Ok(list_json(&self.items, more))
    }
}

/// Whether there are more items after a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MorePages {
    Yes,
    No,
}

fn list_json(items: &[Value], more: MorePages) -> Value {
    let id = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned();
    let (first, last) = (id(items.first()), id(items.last()));
    let has_more = more == MorePages::Yes;
    json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more })
}

/// A page of a complete list of items, oldest first.
pub(crate) fn page_of_items(uri: &Uri, items: Vec<Value>) -> Result<Value, Problem> {
    let mut page = ItemPage::parse(uri)?;
    page.push_items(items);
    page.into_json()
}
