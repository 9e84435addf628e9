//! `GET /api/v1/agent/history?threadId=&before=`: what was said in a thread, a day at a time, the newest day first.

use super::agent_threads;
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{dates, query_params};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use model::event::Event;
use model::ports::{Day, ListPage, PageLimit, RunFilter, RunRow};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, HistoryMessage, MessageHistory};
use serde::Serialize;
use std::collections::HashSet;

/// Runs are looked at so many at a time, and their records in pages.
const RUNS_PAGE_SIZE: usize = 100;
const JOURNAL_PAGE: PageLimit = PageLimit { records_max: 512, bytes_max: 256 * 1024 };

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryResponse {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    snapshot: HistorySnapshot,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HistorySnapshot {
    scope: &'static str,
    thread_id: Option<String>,
    day: Option<String>,
    has_more: bool,
    messages: Vec<TimedMessage>,
}

#[derive(Serialize)]
struct TimedMessage {
    #[serde(flatten)]
    message: HistoryMessage,
    timestamp: String,
}

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<HistoryResponse>, Problem> {
    let [name, before] = query_params::parse_query(&uri, ["threadId", "before"])?;
    let wrong = || Problem::invalid_param("before", "must be a date, such as 2025-01-31");
    let before = before.map(|text| dates::parse_day(&text).ok_or_else(wrong)).transpose()?;
    let thread = match name {
        Some(name) => {
            let thread = agent_threads::find_named_thread(&app, &caller.user, &name).await?;
            Some((name, thread))
        }
        None => find_latest_thread(&app, &caller.user).await?,
    };
    let Some((name, thread)) = thread else { return Ok(Json(history_response(None, HistoryDay::default()))) };
    let found = read_history_day(&app, &caller.user, &thread, before).await?;
    Ok(Json(history_response(Some(name), found)))
}

fn history_response(name: Option<String>, found: HistoryDay) -> HistoryResponse {
    let HistoryDay { day, has_more, messages } = found;
    let messages =
        messages.into_iter().map(|message| TimedMessage { timestamp: dates::format_timestamp(message.at), message });
    let snapshot = HistorySnapshot {
        scope: "history_day",
        thread_id: name.clone(),
        day: day.map(dates::format_day),
        has_more,
        messages: messages.collect(),
    };
    HistoryResponse { kind: "STATE_SNAPSHOT", thread_id: name, snapshot }
}

/// The thread in which the user's newest run is, by the name under which a client of this protocol began its newest run
/// there. A run that is only queued has not said yet what its client calls the thread.
async fn find_latest_thread(app: &App, user: &UserId) -> Result<Option<(String, ThreadId)>, Problem> {
    let ports = app.engine.ports();
    let newest = ports.directory.runs(user, RunFilter::default(), ListPage { before: None, limit: 1 }).await?;
    let Some(RunRow { thread, .. }) = newest.into_iter().next() else { return Ok(None) };
    let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
    let runs = ports.directory.runs(user, filter, ListPage { before: None, limit: RUNS_PAGE_SIZE }).await?;
    let mut name = None;
    if let Some(first) = runs.into_iter().find_map(|run| run.first_seq) {
        let page = ports.journal.read_page(user, &thread, first.prev(), PageLimit::ONE).await?;
        name = page.records.first().and_then(|record| match record.event() {
            Event::Created(created) => {
                created.task.client.clone().filter(|client| client.protocol == AGENT_RUNS_PROJECTION)?.thread_id
            }
            _ => None,
        });
    }
    Ok(Some((name.unwrap_or_else(|| thread.to_string()), thread)))
}

/// A day of a thread.
#[derive(Default)]
struct HistoryDay {
    day: Option<Day>,
    has_more: bool,
    messages: Vec<HistoryMessage>,
}

impl HistoryDay {
    /// Takes what was said in a run that is older than those before it.
    fn push_run_messages(&mut self, said: Vec<HistoryMessage>, before: Option<Day>) {
        for said in said.into_iter().rev() {
            let day = Day::from_millis(said.at);
            if before.is_some_and(|before| day >= before) {
                continue;
            }
            if *self.day.get_or_insert(day) > day {
                self.has_more = true;
                return;
            }
            self.messages.push(said);
        }
    }
}

/// The newest day before `before` on which anything was said. The runs are read from the newest on, one at a time: what is
/// held is one run and the day.
async fn read_history_day(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    before: Option<Day>,
) -> Result<HistoryDay, Problem> {
    let mut found = HistoryDay::default();
    let mut hidden: HashSet<TaskId> = HashSet::new();
    // The first record of the run after the one at hand.
    let mut next: Option<Seq> = None;
    let mut page = ListPage { before: None, limit: RUNS_PAGE_SIZE };
    loop {
        let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
        let mut runs = app.engine.ports().directory.runs(user, filter, page.clone()).await?;
        let Some(oldest) = runs.last() else { break };
        page.before = Some(oldest.id.to_string());
        // By their records: of two that were asked for at once the later one may have begun first.
        runs.sort_by_key(|run| std::cmp::Reverse(run.first_seq));
        for run in runs {
            let Some(first) = run.first_seq else { continue };
            let skipped =
                before.is_some_and(|before| Day::from_millis(run.created_at) >= before) || hidden.contains(&run.id);
            let from = if skipped { run.last_seq.unwrap_or(first) } else { first.prev() };
            // Behind a run there may be what happened to the thread; else there is nothing to read of a skipped one.
            if !(skipped && next == Some(from.next())) {
                let said = messages_of_run(app, user, &run, from, &mut hidden).await?;
                if !skipped && !hidden.contains(&run.id) {
                    found.push_run_messages(said, before);
                }
            }
            next = Some(first);
            if found.has_more {
                break;
            }
        }
        if found.has_more {
            break;
        }
    }
    found.messages.reverse();
    Ok(found)
}

/// What was said in a run after a place in it, and which runs were hidden behind it.
async fn messages_of_run(
    app: &App,
    user: &UserId,
    run: &RunRow,
    from: Seq,
    hidden: &mut HashSet<TaskId>,
) -> Result<Vec<HistoryMessage>, Problem> {
    let mut conversation = MessageHistory::default();
    let mut at = from;
    loop {
        let page = app.engine.ports().journal.read_page(user, &run.thread, at, JOURNAL_PAGE).await?;
        for record in &page.records {
            if record.run != run.id {
                return Ok(conversation.into_messages());
            }
            at = record.seq;
            if let Event::RunHidden(e) = record.event() {
                hidden.insert(e.run_id.clone());
            }
            conversation.read_record(record);
        }
        if page.records.is_empty() {
            return Ok(conversation.into_messages());
        }
    }
}
