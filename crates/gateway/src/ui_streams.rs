//! Streams and messages of the AI SDK's chats.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::resolve_run::ResolvedRun;
use crate::run_lookup::{find_run_start, for_each_record_of_run};
use crate::stream_start::{StreamPosition, StreamStart, StreamView, check_frame_offset, resolve_cursor};
use crate::thread_names::find_named_thread;
use bytes::Bytes;
use model::cursor::Cursor;
use model::error::ErrorCode;
use model::event::Event;
use model::ports::{AliasKind, Frames, RunRow, StoreError};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::ui_stream::{UiMessage, UiReplay, UiRunMessages, UiStreamProjection, UiVersion, ui_cancelled_frames};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// How long a run that has ended is replayed: a page that was reloaded at the end of its answer must not lose it.
const REPLAY_AFTER_END_MS: u64 = 60_000;
/// Frames of a replay. What follows is streamed from the log as it is: a client that reads slowly costs no more memory than
/// any other viewer.
const REPLAY_BYTES_MAX: usize = 1024 * 1024;
/// The same for the segments before the last one. The log shows their calls of the client's tools before the results, and a
/// client would run them again, so a replay has these segments whole unless they are huge.
const EARLIER_SEGMENTS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Messages of one page.
const MESSAGES_MAX: usize = 200;
/// Messages of one page, as JSON. The newest run is always whole.
const MESSAGES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The stream of the segment that answers a request.
pub async fn start_of_ui_segment(
    gateway: &Gateway,
    user: &UserId,
    ResolvedRun { thread, run, segment, .. }: &ResolvedRun,
    version: UiVersion,
) -> Result<StreamStart, Rejection> {
    let run_start = find_run_start(gateway, user, run).await?;
    let view = ui_view(run, *segment, *segment, version);
    let cancelled_run = run.clone();
    let frames = Box::new(move |_: Option<&RunRow>| Some(ui_cancelled_frames(version, &cancelled_run)));
    Ok(StreamStart::new(thread.clone(), view, StreamPosition::after(run_start.before))
        .with_queued_run(run_start.queued_run(), Some(frames)))
}

fn ui_view(run: &TaskId, first: u32, last: u32, version: UiVersion) -> StreamView {
    let dialect = version.projection_name();
    let projection = Box::new(UiStreamProjection::new(run.clone(), first, last, version));
    StreamView { name: format!("{dialect}/{run}/{first}-{last}"), dialect, projection }
}

/// The stream of a client that comes back.
pub enum UiResume {
    /// Nothing runs, and nothing has ended lately.
    Nothing,
    /// Everything that the client may have missed; the message has ended, or waits.
    Ended(Bytes),
    /// The frames of the message so far, or of its beginning if it is long, are the prelude of the stream that continues
    /// them.
    Live(StreamStart),
}

/// The message that is being written in a chat, from its start. A chat that does not exist has none.
pub async fn resume_ui_stream(
    gateway: &Gateway,
    user: &UserId,
    name: &str,
    version: UiVersion,
) -> Result<UiResume, Rejection> {
    let Some(run) = find_replayed_run(gateway, user, name).await? else { return Ok(UiResume::Nothing) };
    let segment = current_segment(gateway, user, &run).await?;
    let mut projection = Box::new(UiStreamProjection::new(run.id.clone(), 1, segment, version));
    let (mut replay, mut head, mut segments_read, mut earlier_bytes) = (UiReplay::default(), None, 1, 0);
    for_each_record_of_run(gateway, user, &run, |record| {
        projection.replay_record(record, &mut replay);
        head = Some(record.seq);
        if matches!(record.event(), Event::Resumed(_)) {
            (segments_read, earlier_bytes) = (segments_read + 1, replay.len());
        }
        let is_long = match segments_read < segment {
            true => replay.len() > EARLIER_SEGMENTS_BYTES_MAX,
            false => replay.len().saturating_sub(earlier_bytes) > REPLAY_BYTES_MAX,
        };
        let is_over = projection.is_finished() || is_long;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    let frames = replay.into_frames();
    if projection.is_finished() {
        return Ok(UiResume::Ended(frames));
    }
    let resolved = ResolvedRun { thread: run.thread.clone(), run: run.id.clone(), segment, is_new: false, after: None };
    let Some(head) = head else {
        return Ok(UiResume::Live(start_of_ui_segment(gateway, user, &resolved, version).await?));
    };
    let before = run.first_seq.map_or(Seq::ZERO, Seq::prev);
    let position = StreamPosition { history_start: before, start: head, skip_frames: 0 };
    let stream = StreamStart::new(run.thread, ui_view(&run.id, 1, segment, version), position);
    Ok(UiResume::Live(stream.resumed_at(projection, head, 0).with_prelude(frames)))
}

/// The rest of the message after a cursor, for transports that have one; `None` if the client has all of it.
pub async fn resume_ui_stream_after(
    gateway: &Gateway,
    user: &UserId,
    name: &str,
    version: UiVersion,
    cursor: Cursor,
) -> Result<Option<StreamStart>, Rejection> {
    let Some(run) = find_replayed_run(gateway, user, name).await? else { return Ok(None) };
    let segment = current_segment(gateway, user, &run).await?;
    resume_run_view(gateway, user, &run, ui_view(&run.id, 1, segment, version), cursor).await
}

/// The stream of a run from a cursor, for a projection that ends with the run or before it; `None` if the client has all of
/// it.
async fn resume_run_view(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    view: StreamView,
    cursor: Cursor,
) -> Result<Option<StreamStart>, Rejection> {
    let before = run.first_seq.map_or(Seq::ZERO, Seq::prev);
    let (start, skip_frames) = resolve_cursor(gateway, user, &run.thread, Some(&cursor), view.dialect).await?;
    let (start, skip_frames) = if start < before { (before, 0) } else { (start, skip_frames) };
    let (mut projection, mut is_finished) = (view.projection.boxed_clone(), false);
    let journal = &*gateway.engine.ports().journal;
    engine::for_each_condensed_record(journal, user, &run.thread, before, start, |record| {
        let mut frames = Frames::discarded();
        projection.project(record, &mut frames);
        is_finished |= frames.is_finished();
        ControlFlow::<()>::Continue(())
    })
    .await?;
    if is_finished {
        return Ok(None);
    }
    let position = StreamPosition { history_start: before, start, skip_frames };
    check_frame_offset(gateway, user, &run.thread, view.projection.boxed_clone(), position).await?;
    Ok(Some(StreamStart::new(run.thread.clone(), view, position)))
}

/// The newest run of a chat, if it has not ended long ago.
async fn find_replayed_run(gateway: &Gateway, user: &UserId, name: &str) -> Result<Option<RunRow>, Rejection> {
    let thread = match find_named_thread(gateway, user, AliasKind::UiChat, name).await {
        Ok(thread) => thread,
        // The SDK asks for the stream of a chat before its first message.
        Err(rejection) if rejection.code == ErrorCode::NotFound && ThreadId::parse(name).is_err() => return Ok(None),
        Err(rejection) => return Err(rejection),
    };
    let run = match gateway.engine.active_run(user, &thread).await? {
        Some(active) => Some(active),
        None => gateway.engine.runs_of_chain(user, &thread, Seq::MAX).await?.pop(),
    };
    let Some(run) = run else { return Ok(None) };
    let row = gateway.engine.ports().directory.run(user, &run).await?;
    let now = gateway.engine.ports().clock.now();
    let is_recent = |row: &RunRow| row.ended_at.is_none_or(|at| now.saturating_sub(at) <= REPLAY_AFTER_END_MS);
    Ok(row.filter(is_recent))
}

/// The segment that a run is in, or has ended in. Each pause ends one.
pub(crate) async fn current_segment(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<u32, StoreError> {
    let mut segment = 1;
    for_each_record_of_run(gateway, user, run, |record| {
        segment += u32::from(matches!(record.event(), Event::Resumed(_)));
        ControlFlow::<()>::Continue(())
    })
    .await?;
    Ok(segment)
}

/// Messages of a chat.
pub struct UiMessages {
    /// Oldest first.
    pub messages: Vec<UiMessage>,
    /// Whether there are older ones.
    pub has_more: bool,
}

/// The newest messages of a chat, before the one with this id if there is one. Runs are never cut in two.
pub async fn read_ui_messages(
    gateway: &Gateway,
    user: &UserId,
    name: &str,
    version: UiVersion,
    before: Option<&str>,
) -> Result<UiMessages, Rejection> {
    let thread = match find_named_thread(gateway, user, AliasKind::UiChat, name).await {
        Ok(thread) => thread,
        // Clients choose the name of a chat before its first message.
        Err(rejection) if rejection.code == ErrorCode::NotFound && ThreadId::parse(name).is_err() => {
            return Ok(UiMessages { messages: Vec::new(), has_more: false });
        }
        Err(rejection) => return Err(rejection),
    };
    let chain = gateway.engine.runs_of_chain(user, &thread, Seq::MAX).await?;
    let (mut pages, mut count, mut bytes, mut has_more) = (Vec::new(), 0, 0, false);
    let (mut is_wanted, mut hidden) = (before.is_none(), HashSet::new());
    for run in chain.iter().rev() {
        let messages = read_run_messages(gateway, user, run, version, &mut hidden).await?;
        if messages.is_empty() || hidden.contains(run) {
            continue;
        }
        if !is_wanted {
            is_wanted = messages.iter().any(|message| Some(message.id.as_str()) == before);
            continue;
        }
        bytes += serde_json::to_vec(&messages).map_or(usize::MAX, |text| text.len());
        count += messages.len();
        if !pages.is_empty() && (count > MESSAGES_MAX || bytes > MESSAGES_BYTES_MAX) {
            has_more = true;
            break;
        }
        pages.push(messages);
    }
    if !is_wanted {
        return Err(Rejection::invalid_param("before", "the chat has no such message"));
    }
    pages.reverse();
    Ok(UiMessages { messages: pages.into_iter().flatten().collect(), has_more })
}

/// The messages of a run; none before its first record. Adds the runs that its records hide to `hidden`.
async fn read_run_messages(
    gateway: &Gateway,
    user: &UserId,
    run: &TaskId,
    version: UiVersion,
    hidden: &mut HashSet<TaskId>,
) -> Result<Vec<UiMessage>, Rejection> {
    let Some(row) = gateway.engine.ports().directory.run(user, run).await? else { return Ok(Vec::new()) };
    let mut messages = UiRunMessages::new(run.clone(), version);
    for_each_record_of_run(gateway, user, &row, |record| {
        if let Event::RunHidden(event) = record.event() {
            hidden.insert(event.run_id.clone());
        }
        messages.read_record(record);
        ControlFlow::<()>::Continue(())
    })
    .await?;
    Ok(messages.into_messages())
}

/// The thread of a chat that exists.
pub async fn find_ui_chat(gateway: &Gateway, user: &UserId, name: &str) -> Result<ThreadId, Rejection> {
    find_named_thread(gateway, user, AliasKind::UiChat, name).await
}
