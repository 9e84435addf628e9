//! `/v1/conversations/{id}/items`: everything that was said and done in a conversation, run by run.

use super::{Conversation, find_conversation, parse_new_items};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::json_response::json_response_with_images;
use crate::problem::Problem;
use crate::routes::responses::parse_known_query;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::responses::{ResponseRef, input_items_of_run, read_response};
use model::UserId;
use model::error::ErrorCode;
use model::json::JsonObject;
use model::ports::{ListPage, RunFilter, RunRow};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The longest page, and the usual one.
const LIMIT_MAX: usize = 100;
const LIMIT_DEFAULT: usize = 20;
/// Runs are listed so many at a time.
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
    let new = parse_new_items(&app, &caller.user, &body, true).await?;
    let mut conversation = find_conversation(&app, &caller.user, &id).await?;
    conversation.data.items.extend(new.iter().cloned());
    conversation.save(&app, &caller.user).await?;
    Ok(axum::Json(list_json(&new, false)).into_response())
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
    // Any id names its run.
    let run = match model::TaskId::from(item.as_str()).run_id() {
        Some(run) => app.gateway.engine.run_of_task(&caller.user, &run).await?,
        None => None,
    };
    let Some(run) = run.filter(|run| run.thread == conversation.thread) else { return Err(item_not_found(&item)) };
    let found = items_of_run(&app, &caller.user, &run).await?.into_iter().find(is_it);
    Ok(json_response_with_images(&app, &caller.user, &run.thread, &found.ok_or_else(|| item_not_found(&item))?))
}

/// What waits can be taken out again; what a run has read stays in the log.
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let mut conversation = find_conversation(&app, &caller.user, &id).await?;
    let before = conversation.data.items.len();
    conversation.data.items.retain(|value| value.get("id").and_then(Value::as_str) != Some(&item));
    if conversation.data.items.len() == before {
        let detail = "an item that was read cannot be taken out of its log: delete the conversation's thread";
        return Err(Problem::new(ErrorCode::Unsupported, detail));
    }
    conversation.save(&app, &caller.user).await?;
    Ok(axum::Json(conversation.to_json()).into_response())
}

fn item_not_found(id: &str) -> Problem {
    let short: String = id.chars().take(80).collect();
    Problem::new(ErrorCode::NotFound, format!("Item with id '{short}' not found."))
}

/// The runs of a conversation that have begun, newest first.
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

/// What was said and done in a run, in order. What a pause cut in two, or what was asked at several of them, stands where it
/// was shown last: an item is in a conversation once.
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
    let mut shown = BTreeSet::new();
    let mut once: Vec<Value> = items.into_iter().rev().filter(|item| shown.insert(item_id(item))).collect();
    once.reverse();
    Ok(once)
}

fn item_id(item: &Value) -> Option<String> {
    item.get("id").and_then(Value::as_str).map(str::to_owned)
}

/// Part of a listing, as it is put together.
struct ItemPage {
    newest_first: bool,
    /// Only what comes after this one.
    after: Option<String>,
    limit: usize,
    /// One more than asked for, to know whether there is more.
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

    /// More items, oldest first.
    fn push_items(&mut self, mut items: Vec<Value>) {
        if self.newest_first {
            items.reverse();
        }
        if let Some(after) = &self.after {
            let place = items.iter().position(|item| item.get("id").and_then(Value::as_str) == Some(after));
            let Some(place) = place else { return };
            items.drain(..=place);
            self.after = None;
        }
        let room = (self.limit + 1).saturating_sub(self.items.len());
        self.items.extend(items.into_iter().take(room));
    }

    fn into_json(mut self) -> Result<Value, Problem> {
        // Silence would look like the end.
        if let Some(after) = &self.after {
            let short: String = after.chars().take(80).collect();
            return Err(Problem::invalid_param("after", format!("no item `{short}` in this conversation")));
        }
        let has_more = self.is_full();
        self.items.truncate(self.limit);
        Ok(list_json(&self.items, has_more))
    }
}

fn list_json(items: &[Value], has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned();
    let (first, last) = (id(items.first()), id(items.last()));
    json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more })
}

/// A page of items that are all at hand, oldest first.
pub(crate) fn page_of_items(uri: &Uri, items: Vec<Value>) -> Result<Value, Problem> {
    let mut page = ItemPage::parse(uri)?;
    page.push_items(items);
    page.into_json()
}
