//! A chat of the AI SDK: its thread, and the runs of the conversation that it shows.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::queued_runs;
use crate::thread_names::reserve_named_thread;
use model::content::ContentPart;
use model::event::{ClientIds, Event, TaskCreated};
use model::ports::{AliasData, PageLimit, RunRow};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::ui_stream::UI_STREAM_PROTOCOL;

pub(crate) struct UiChat {
    pub(crate) thread: ThreadId,
    /// Whether the thread's id is the client's name for it, so that the thread must exist.
    pub(crate) is_thread_id: bool,
    /// The runs of the conversation, oldest first. An answer that was generated again replaces the one before.
    pub(crate) chain: Vec<TaskId>,
    /// The runs of its clients that have not started.
    pub(crate) queued: Vec<(TaskId, ClientIds)>,
}

/// A run of a chat, and its input.
pub(crate) struct UiChatRun {
    pub(crate) row: RunRow,
    pub(crate) input: Vec<ContentPart>,
    /// The client's ids of the messages in its input.
    pub(crate) client_message_ids: Vec<String>,
    /// The log's id of its input.
    message_ids: Vec<String>,
}

impl UiChatRun {
    pub(crate) fn has_message(&self, id: &str) -> bool {
        self.client_message_ids.iter().chain(&self.message_ids).any(|own| own == id)
    }
}

impl UiChat {
    /// The chat of a name, which need not exist yet.
    pub(crate) async fn find_or_reserve(gateway: &Gateway, user: &UserId, name: &str) -> Result<Self, Rejection> {
        let (thread, is_thread_id) = match ThreadId::parse(name) {
            Ok(thread) => (thread, true),
            Err(_) => (reserve_named_thread(gateway, user, AliasData::UiChat, name, "id").await?, false),
        };
        let exists = gateway.engine.ports().directory.thread(user, &thread).await?.is_some();
        if is_thread_id && !exists {
            return Err(Rejection::not_found());
        }
        if !exists {
            return Ok(Self { thread, is_thread_id, chain: Vec::new(), queued: Vec::new() });
        }
        // First the queue, then the log: a run that starts in between is in both, and not in neither.
        let queued = queued_runs(gateway, user, &thread, UI_STREAM_PROTOCOL).await?;
        let chain = gateway.engine.runs_of_chain(user, &thread, Seq::MAX).await?;
        Ok(Self { thread, is_thread_id, chain, queued })
    }

    /// The run that a message belongs to, among the newest runs: the run's answer, or a message of its input.
    pub(crate) async fn find_run_of_message(
        &self,
        gateway: &Gateway,
        user: &UserId,
        id: &str,
        runs_max: usize,
    ) -> Result<Option<UiChatRun>, Rejection> {
        if let Some(run) = TaskId::from(id).run_id() {
            return match self.chain.contains(&run) {
                true => read_chat_run(gateway, user, &run).await,
                false => Ok(None),
            };
        }
        for run in self.chain.iter().rev().take(runs_max) {
            let run = read_chat_run(gateway, user, run).await?;
            if run.as_ref().is_some_and(|run| run.has_message(id)) {
                return Ok(run);
            }
        }
        Ok(None)
    }

    /// The run in the queue whose input has this message.
    pub(crate) fn find_queued_run(&self, message: &str) -> Option<&TaskId> {
        let has_message = |(_, client): &&(TaskId, ClientIds)| client.message_ids.iter().any(|id| id == message);
        self.queued.iter().find(has_message).map(|(run, _)| run)
    }

    /// The run before this one.
    pub(crate) fn predecessor(&self, run: &TaskId) -> Option<&TaskId> {
        let index = self.chain.iter().position(|other| other == run)?;
        self.chain.get(index.checked_sub(1)?)
    }

    pub(crate) fn is_newest(&self, run: &TaskId) -> bool {
        self.chain.last() == Some(run)
    }
}

async fn read_chat_run(gateway: &Gateway, user: &UserId, run: &TaskId) -> Result<Option<UiChatRun>, Rejection> {
    let ports = gateway.engine.ports();
    let Some(row) = ports.directory.run(user, run).await? else { return Ok(None) };
    let Some(first) = row.first_seq else { return Ok(None) };
    let page = ports.journal.read_page(user, &row.thread, first.prev(), PageLimit::ONE).await?;
    let Some(Event::Created(TaskCreated { task, .. })) = page.records.first().map(|record| record.event()) else {
        return Ok(None);
    };
    let client = task.client.as_ref().filter(|client| client.protocol == UI_STREAM_PROTOCOL);
    Ok(Some(UiChatRun {
        row,
        input: task.input.iter().flat_map(|message| message.content.iter().cloned()).collect(),
        client_message_ids: client.map(|client| client.message_ids.clone()).unwrap_or_default(),
        message_ids: task.input.iter().map(|message| message.id.to_string()).collect(),
    }))
}
