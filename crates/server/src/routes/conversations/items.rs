//! `/v1/conversations/{id}/items`: the items of a conversation, run by run.

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::json_response::json_response_with_images;
use crate::problem::Problem;
use crate::query_params::parse_known_query;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use gateway::conversations::{
    ConversationObject, add_conversation_items, find_conversation, find_conversation_item, items_of_run,
    remove_conversation_item, started_runs,
};
use heavy_work::run_in_place;
use model::error::truncate_text;
use model::json::JsonObject;
use serde_json::{Value, json};

const LIMIT_MAX: usize = 100;
const LIMIT_DEFAULT: usize = 20;

pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let conversation = find_conversation(&app.gateway, &caller.user, &id).await?;
    let mut page = ItemPage::parse(&uri)?;
    let mut runs = started_runs(&app.gateway, &caller.user, &conversation).await?;
    if page.newest_first {
        page.push_items(conversation.pending_items().to_vec());
    } else {
        runs.reverse();
    }
    for run in &runs {
        if page.is_full() {
            break;
        }
        page.push_items(items_of_run(&app.gateway, &caller.user, run).await?);
    }
    if !page.newest_first {
        page.push_items(conversation.pending_items().to_vec());
    }
    let page = page.into_json()?;
    let json = vec![run_in_place(|| page.to_string().into())];
    Ok(json_response_with_images(&app, &caller.user, &conversation.thread, json))
}

pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits, &caller.user).await?;
    let _large = json.take_permit();
    let body: JsonObject = json.into_object()?;
    let items = add_conversation_items(&app.gateway, &caller.user, &id, &body).await?;
    Ok(Json(list_json(&items, MorePages::No)))
}

pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let conversation = find_conversation(&app.gateway, &caller.user, &id).await?;
    let found = find_conversation_item(&app.gateway, &caller.user, &conversation, &item).await?;
    let json = vec![run_in_place(|| found.to_string().into())];
    Ok(json_response_with_images(&app, &caller.user, &conversation.thread, json))
}

pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path((id, item)): Path<(String, String)>,
) -> Result<Json<ConversationObject>, Problem> {
    Ok(Json(remove_conversation_item(&app.gateway, &caller.user, &id, &item).await?.into_object()))
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
