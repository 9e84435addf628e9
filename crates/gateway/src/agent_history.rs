//! Messages of a thread, one day at a time, for clients of agent runs.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{RECENT_RUNS_MAX, newest_runs};
use model::event::Event;
use model::ports::{Day, ListPage, PageLimit, RunFilter, RunRow};
use model::{Millis, Seq, TaskId, ThreadId, UserId};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, HistoryMessage, MessageHistory};
use std::collections::HashSet;

/// Smaller than `PageLimit::WIDE`: the pages of several runs are read one after the other.
const JOURNAL_PAGE: PageLimit = PageLimit { records_max: 512, bytes_max: 256 * 1024 };

/// The thread of the user's newest run, with the name under which a client of agent runs last started a run there. A run
/// that is only queued has not recorded that name yet.
pub async fn find_latest_thread(gateway: &Gateway, user: &UserId) -> Result<Option<(String, ThreadId)>, Rejection> {
    let ports = gateway.engine.ports();
    let newest = ports.directory.runs(user, RunFilter::default(), ListPage { before: None, limit: 1 }).await?;
    let Some(RunRow { thread, .. }) = newest.into_iter().next() else { return Ok(None) };
    let runs = newest_runs(gateway, user, &thread, RECENT_RUNS_MAX).await?;
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

/// The messages of one day.
#[derive(Default)]
pub struct HistoryDay {
    pub day: Option<Day>,
    /// Whether there are messages on earlier days.
    pub has_more: bool,
    pub messages: Vec<HistoryMessage>,
}

impl HistoryDay {
    /// Adds the messages of a run that is older than the runs before, newest message first.
    fn push_run_messages(&mut self, messages: Vec<HistoryMessage>, days: HistoryDays<'_>) {
        for message in messages.into_iter().rev() {
            let day = (days.day_of)(message.at);
            if days.before.is_some_and(|before| day >= before) {
                continue;
            }
            if *self.day.get_or_insert(day) > day {
                self.has_more = true;
                return;
            }
            self.messages.push(message);
        }
    }
}

/// Which days a client asks for.
#[derive(Clone, Copy)]
pub struct HistoryDays<'a> {
    /// Only days before this one.
    pub before: Option<Day>,
    /// The day that contains a point in time, in the client's calendar.
    pub day_of: &'a (dyn Fn(Millis) -> Day + Sync),
}

/// Reads the newest of these days that has messages. Runs are read one at a time, from the newest on, so that memory
/// holds one run and the day.
pub async fn read_history_day(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    days: HistoryDays<'_>,
) -> Result<HistoryDay, Rejection> {
    let mut history = HistoryDay::default();
    let mut hidden: HashSet<TaskId> = HashSet::new();
    // The first record of the run that was read before.
    let mut next: Option<Seq> = None;
    let mut page = ListPage { before: None, limit: RECENT_RUNS_MAX };
    while !history.has_more {
        let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
        let mut runs = gateway.engine.ports().directory.runs(user, filter, page.clone()).await?;
        let Some(oldest) = runs.last() else { break };
        page.before = Some(oldest.id.to_string());
        // By their records: of two concurrent requests the later one may have started first.
        runs.sort_by_key(|run| std::cmp::Reverse(run.first_seq));
        for run in runs {
            let Some(first) = run.first_seq else { continue };
            let skipped =
                days.before.is_some_and(|before| (days.day_of)(run.created_at) >= before) || hidden.contains(&run.id);
            let after = if skipped { run.last_seq.unwrap_or(first) } else { first.prev() };
            // Records of the thread itself may follow a run; else a skipped run has nothing to read.
            if !(skipped && next == Some(after.next())) {
                let messages = messages_of_run(gateway, user, &run, after, &mut hidden).await?;
                if !skipped && !hidden.contains(&run.id) {
                    history.push_run_messages(messages, days);
                }
            }
            next = Some(first);
            if history.has_more {
                break;
            }
        }
    }
    history.messages.reverse();
    Ok(history)
}

/// Reads the messages of a run after a position, and adds the runs that its records hide to `hidden`.
async fn messages_of_run(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    mut after: Seq,
    hidden: &mut HashSet<TaskId>,
) -> Result<Vec<HistoryMessage>, Rejection> {
    let mut messages = MessageHistory::default();
    loop {
        let page = gateway
            .engine
            .ports()
            .journal
            .read_condensed_page(user, &run.thread, after, Seq::MAX, JOURNAL_PAGE)
            .await?;
        for record in &page.records {
            if record.run != run.id {
                return Ok(messages.into_messages());
            }
            after = record.seq;
            if let Event::RunHidden(event) = record.event() {
                hidden.insert(event.run_id.clone());
            }
            messages.read_record(record);
        }
        if page.records.is_empty() {
            return Ok(messages.into_messages());
        }
    }
}
