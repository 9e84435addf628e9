//! One thread under one term.
//!
//! Inputs (commands, effect streams, timers) go through the machine one by one, and their records gather in a batch. One
//! append is in flight at a time. When it is durable its records are published and its tools start; meanwhile the next
//! batch gathers, up to a bound beyond which effect streams are not read. An append for which the disk has no room waits
//! until it has. Any other outcome but `Durable` ends the term, and so does a run that waits for people: it costs no memory
//! until somebody answers or its time is up, unless one of its tools waits with it.
//!
//! Submodules are parts of [`ThreadSession`]: `inbox` handles commands, `batch` gathers and appends records, `run_preparation`
//! works before a run starts, `run_end` after it has ended; `session_event` waits for whatever comes next.

mod batch;
mod daily_spend;
mod failure_log;
mod inbox;
mod run_end;
mod run_preparation;
mod session_event;

use crate::bursts::BurstReader;
use crate::effect_streams::{self, EffectStreams};
use crate::load_thread::{self, CheckpointedRuns};
use crate::recovery_tracker::recovery_error;
use crate::shared::{StopMode, ThreadContext};
use crate::timers::Timers;
use batch::{BatchBuilder, InFlightAppend};
use machine::{Effect, EffectId, MachineInput, MachineOutput, RunState, ThreadInput, ThreadState};
use model::command::Command;
use model::definition::Definitions;
use model::fold::RunFold;
use model::ports::{AppendOutcome, ClaimOutcome, InboxRow, Lease, Spend, StoreError};
use model::task::TaskStatus;
use model::tool::{ToolEvent, ToolRequest};
use model::{Millis, Seq};
use run_preparation::PendingStart;
use session_event::SessionEvent;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// A state of this size is folded, copied and serialised beside the async workers.
const HEAVY_STATE_BYTES: usize = 256 * 1024;
/// A step only copies the history for the model: so much of it costs as much as a byte of the run, which is folded and
/// validated, too.
const HISTORY_BYTES_PER_RUN_BYTE: usize = 4;

/// A thread that a submission has claimed: what the submitter knows need not be read.
pub(crate) struct ClaimedThread {
    pub(crate) lease: Lease,
    /// The only row of its inbox. Every later row notifies the context.
    pub(crate) first_row: InboxRow,
}

pub(crate) enum TermEnd {
    /// Nothing is left to do, or nothing but to wait for people.
    Idle,
    /// The thread does not exist, or does not any more.
    Deleted,
    /// The thread must not be executed by this version.
    Parked,
    /// The process stops.
    Halted,
    /// Another node holds the thread until then, unless it renews its lease.
    HeldElsewhere { until: Millis },
    /// An append was not durable: fold the log again.
    Retry(String),
    /// Something panicked: fold the log again.
    Panicked,
}

pub(crate) struct ThreadSession<'a> {
    pub(crate) context: &'a ThreadContext,
    pub(crate) lease: Lease,
    /// What outlives the runs that have ended.
    pub(crate) thread: ThreadState,
    pub(crate) run: Option<RunState>,
    /// Commands that cannot be handled yet.
    pub(crate) waiting_rows: VecDeque<InboxRow>,
    pub(crate) next_batch: BatchBuilder,
    pub(crate) in_flight: Option<InFlightAppend>,
    /// The last record that was handed to the journal.
    pub(crate) submitted_seq: Seq,
    /// The newest row of the inbox that was read.
    pub(crate) last_row_read: u64,
    /// A run that starts when it has been prepared.
    pub(crate) pending_start: Option<PendingStart>,
    /// What the owner has spent today, without the current run.
    pub(crate) daily_spend: Spend,
    effect_streams: EffectStreams,
    pub(crate) burst: BurstReader,
    pub(crate) timers: Timers,
    /// The size of the records of the run, or of the last one.
    pub(crate) run_bytes: usize,
    pub(crate) checkpointed: CheckpointedRuns,
    /// Resuming or starting its first run has failed too often.
    pub(crate) gives_up: bool,
}

impl<'a> ThreadSession<'a> {
    /// Claims the thread and folds its log. The inner error says why the thread cannot be executed now.
    pub(crate) async fn open(
        context: &'a ThreadContext,
        claimed: Option<ClaimedThread>,
        gives_up: bool,
    ) -> Result<Result<ThreadSession<'a>, TermEnd>, StoreError> {
        let ports = &context.shared.ports;
        let (lease, first_row) = match claimed {
            Some(ClaimedThread { lease, first_row }) => (lease, Some(first_row)),
            None => match ports.journal.claim(&context.owner, &context.thread, &ports.node).await? {
                ClaimOutcome::Granted(lease) => (lease, None),
                ClaimOutcome::Held { node, until } => {
                    tracing::debug!(thread = %context.thread, %node, until, "another node holds the thread");
                    return Ok(Err(TermEnd::HeldElsewhere { until }));
                }
            },
        };
        context.shared.hub.advance_head(&context.thread, lease.head);
        context.shared.run_waiters.wake_thread(&context.thread);
        let loaded = match context.shared.idle_threads.take(&context.owner, &context.thread, lease.head) {
            Some(idle) => idle.into(),
            None => load_thread::load_thread(ports, &context.owner, &context.thread, lease.head).await?,
        };
        let fold_errors = loaded.thread.fold_errors + loaded.run.as_ref().map_or(0, |run| run.fold_errors);
        if loaded.has_newer_format || fold_errors > 0 {
            let newer = loaded.has_newer_format;
            tracing::error!(thread = %context.thread, fold_errors, newer, "the thread is parked: its log does not fold");
            metrics::counter!("headwater_threads_parked_total").increment(1);
            return Ok(Err(TermEnd::Parked));
        }
        let mut session = Self {
            context,
            lease,
            thread: ThreadState::new(context.owner.clone(), context.thread.clone(), loaded.thread),
            run: None,
            waiting_rows: VecDeque::new(),
            next_batch: BatchBuilder::default(),
            in_flight: None,
            submitted_seq: lease.head,
            last_row_read: 0,
            pending_start: None,
            daily_spend: Spend::default(),
            effect_streams: EffectStreams::default(),
            burst: BurstReader::default(),
            timers: Timers::default(),
            run_bytes: loaded.run_bytes,
            checkpointed: loaded.checkpointed,
            gives_up,
        };
        session.daily_spend = daily_spend::read_daily_spend(context).await?.unwrap_or_default();
        if let Some(fold) = loaded.run {
            session.restore_run(fold).await?;
        }
        match first_row {
            Some(row) => {
                session.last_row_read = row.id;
                session.waiting_rows.push_back(row);
            }
            None => session.read_inbox().await?,
        }
        session.give_up_on_inbox();
        Ok(Ok(session))
    }

    /// Continues a run that has not ended.
    async fn restore_run(&mut self, fold: RunFold) -> Result<(), StoreError> {
        let definitions = definitions_for_run(self.context, &fold).await?;
        let mut run = self.new_run_state(definitions, Some(fold));
        // The spend of today includes what this run has spent.
        machine::exclude_own_spend(&mut run);
        let (now, due) = (self.context.shared.ports.clock.now(), self.context.wakeup.take_due_timer());
        // Before the first input: should the run pause at once, its row needs the time of the next timer.
        for id in machine::outstanding_effects(&run) {
            if let EffectId::Timer(timer) = id
                && let Some(at) = machine::timer_deadline(&run, &timer)
            {
                // The clock may have been set back since the timer was recorded: then it is due although its time is to come.
                self.timers.arm(timer, if due == Some(at) { at.min(now) } else { at }, now);
            }
        }
        self.run = Some(run);
        let input = match self.is_paused() {
            false if std::mem::take(&mut self.gives_up) => MachineInput::RecoveryFailed(recovery_error()),
            _ => MachineInput::Recovered,
        };
        let _permit = heavy_work::acquire_permit(&self.context.owner).await;
        heavy_work::run_in_place(|| self.step(input));
        Ok(())
    }

    /// What fails may also be what waits in the inbox: an answer to the paused run, or the start of the next one.
    fn give_up_on_inbox(&mut self) {
        if self.run.is_some() && self.gives_up && !self.waiting_rows.is_empty() {
            self.gives_up = false;
            self.step(MachineInput::RecoveryFailed(recovery_error()));
        }
        self.gives_up &= self.waiting_rows.iter().any(|row| matches!(row.command, Command::Start(_)));
    }

    /// Executes until nothing is left to do.
    pub(crate) async fn run(&mut self) -> TermEnd {
        loop {
            let mode = self.context.shared.stop_mode();
            if mode != StopMode::Halted {
                self.handle_waiting_rows(mode).await;
                self.flush();
            }
            if self.in_flight.is_none() {
                match mode {
                    StopMode::Halted => return TermEnd::Halted,
                    _ if self.is_idle(mode) => return TermEnd::Idle,
                    _ => {}
                }
            }
            match poll_fn(|cx| self.poll_event(cx)).await {
                // A node that was stopped for long may have been replaced: it starts no tool before it has claimed again.
                SessionEvent::AppendDone(AppendOutcome::Durable) if self.starts_tools_without_lease() => {
                    return TermEnd::Retry("the lease of this node has expired".to_owned());
                }
                SessionEvent::AppendDone(AppendOutcome::Durable) => self.on_durable(),
                SessionEvent::AppendDone(AppendOutcome::Fenced) => {
                    return TermEnd::Retry("another executor has the thread".to_owned());
                }
                SessionEvent::AppendDone(AppendOutcome::Rejected(why) | AppendOutcome::Unknown(why)) => {
                    return TermEnd::Retry(why);
                }
                // An append that waits for room is not done; see `poll_append`.
                SessionEvent::AppendDone(AppendOutcome::NoSpace) => {
                    return TermEnd::Retry(StoreError::NoSpace.to_string());
                }
                SessionEvent::Input(input) => self.step_beside_workers(*input).await,
                SessionEvent::DeltasApplied => {}
                SessionEvent::Timer(id) => {
                    if let Err(error) = self.on_timer(id).await {
                        return TermEnd::Retry(error.to_string());
                    }
                }
                SessionEvent::RunPrepared(Ok(())) => {}
                SessionEvent::RunPrepared(Err(error)) => return TermEnd::Retry(error.to_string()),
                // What waited for room is recovered like after a crash.
                SessionEvent::HaltedWithoutSpace => return TermEnd::Halted,
                SessionEvent::Wakeup => {
                    if let Err(error) = self.read_inbox().await {
                        return TermEnd::Retry(error.to_string());
                    }
                    self.refresh_daily_spend().await;
                }
            }
        }
    }

    async fn handle_waiting_rows(&mut self, mode: StopMode) {
        if !self.has_heavy_rows() {
            return self.handle_rows(mode);
        }
        let _permit = heavy_work::acquire_permit(&self.context.owner).await;
        heavy_work::run_in_place(|| self.handle_rows(mode));
    }

    /// Applies one input: on another thread's time if it may take long.
    async fn step_beside_workers(&mut self, input: MachineInput) {
        let is_small =
            matches!(input, MachineInput::Tool { event: ToolEvent::Progress(_) | ToolEvent::Piece { .. }, .. });
        if !is_small {
            self.refresh_daily_spend().await;
        }
        if is_small || !self.has_heavy_state() {
            return self.step(input);
        }
        let _permit = heavy_work::acquire_permit(&self.context.owner).await;
        heavy_work::run_in_place(|| self.step(input));
    }

    /// Whether the next step may validate arguments, or copy and serialise a long history.
    fn has_heavy_state(&self) -> bool {
        let state_bytes = self.run_bytes + self.checkpointed.bytes / HISTORY_BYTES_PER_RUN_BYTE;
        state_bytes >= HEAVY_STATE_BYTES || self.run.as_ref().is_some_and(machine::has_open_calls)
    }

    /// Rows that only wait for the active run to end cost nothing.
    fn has_heavy_rows(&self) -> bool {
        let is_start = |row: &InboxRow| matches!(row.command, Command::Start(_));
        let can_proceed = self.run.is_none() || !self.waiting_rows.iter().all(is_start);
        !self.waiting_rows.is_empty() && can_proceed && self.has_heavy_state()
    }

    /// A paused run needs no session, unless one of its tools runs and waits for the answer of a person.
    fn is_idle(&self, mode: StopMode) -> bool {
        let has_rows = mode == StopMode::Running && !self.waiting_rows.is_empty();
        let is_starting = self.pending_start.is_some() || self.thread.is_compacting();
        if !self.next_batch.is_empty() || (is_starting && mode == StopMode::Running) {
            return false;
        }
        // A timer that is due answers the run.
        let is_due = || self.timers.next_due().is_some_and(|at| at <= self.context.shared.ports.clock.now());
        let keeps_tool = mode == StopMode::Running && self.has_asking_tool();
        (self.run.is_none() && !has_rows) || (self.is_paused() && !is_due() && !keeps_tool)
    }

    /// Whether a tool of the paused run waits for the answer of a person.
    pub(crate) fn has_asking_tool(&self) -> bool {
        !self.effect_streams.is_empty()
    }

    pub(crate) fn is_paused(&self) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.status == TaskStatus::Paused)
    }

    /// The state of a run before its first record, or from its log.
    pub(crate) fn new_run_state(&self, definitions: Arc<Definitions>, fold: Option<RunFold>) -> RunState {
        let context = self.context;
        let mut run = RunState::new(
            context.owner.clone(),
            context.thread.clone(),
            definitions,
            Arc::clone(&self.thread.fold),
            fold,
        );
        run.prior_spend = self.daily_spend;
        run.schemas = context.shared.schemas.clone();
        run
    }

    /// Applies one input: its records join the batch, its effects start.
    pub(crate) fn step(&mut self, input: MachineInput) {
        let now = self.context.shared.ports.clock.now();
        let Some(run) = &mut self.run else {
            if let MachineInput::Model { id, event } = input {
                self.step_thread(ThreadInput::Model { id, event });
            }
            return;
        };
        let mut out = MachineOutput::new(now);
        machine::apply_input(run, input, &mut out);
        for effect in out.effects {
            self.start_effect(effect);
        }
        let Some(root) = self.run.as_ref().and_then(|run| run.fold.root()).map(|root| root.id.clone()) else { return };
        self.push_spend(out.spend, out.drafts.last().map_or(now, |draft| draft.at));
        for draft in out.drafts {
            self.push_record(&root, draft);
        }
        if self.run.as_ref().is_some_and(|run| run.fold.has_ended()) {
            self.finish_run();
        }
    }

    /// One input to the thread between two runs: its history may be compacted.
    pub(crate) fn step_thread(&mut self, input: ThreadInput) {
        let now = self.context.shared.ports.clock.now();
        let mut out = MachineOutput::new(now);
        let ends = matches!(input, ThreadInput::Model { .. }) && self.thread.is_compacting();
        machine::apply_thread_input(&mut self.thread, input, &mut out);
        for effect in out.effects {
            self.start_effect(effect);
        }
        self.daily_spend = self.daily_spend.saturating_add(out.spend);
        self.push_spend(out.spend, out.drafts.last().map_or(now, |draft| draft.at));
        if ends && !self.thread.is_compacting() && out.drafts.is_empty() {
            tracing::warn!(thread = %self.context.thread, "the history was not compacted; the next run tries again");
        }
        let run = self.thread.compacted_run().cloned();
        for (draft, run) in out.drafts.into_iter().zip(run) {
            self.push_record(&run, draft);
            self.push_checkpoint();
        }
    }

    fn start_effect(&mut self, effect: Effect) {
        let ports = &self.context.shared.ports;
        match effect {
            Effect::CallModel { id, request, not_before: None } => {
                self.effect_streams.push_model(id, ports.models.stream_turn(*request));
            }
            Effect::CallModel { id, request, not_before: Some(at) } => {
                let wait = Duration::from_millis(at.saturating_sub(ports.clock.now()));
                self.effect_streams
                    .push_model(id, effect_streams::delayed_turn(wait, Arc::clone(&ports.models), *request));
            }
            Effect::ReadFile { id, request } => self.effect_streams.push_file(id, ports.documents.read_file(request)),
            Effect::CallTool { id, request } => self.next_batch.tools.push((id, request)),
            Effect::SetTimer { id, at } => self.timers.arm(id, at, ports.clock.now()),
            Effect::AnswerTool { id, question, answer } => {
                self.effect_streams.resume_tool(&id, &question);
                if let EffectId::Tool { call, .. } = &id {
                    ports.tools.answer_question(call, &question, answer);
                }
            }
            Effect::Abort(EffectId::Timer(id)) => self.timers.disarm(&id),
            Effect::Abort(id) => {
                self.effect_streams.abort(&id);
                self.next_batch.tools.retain(|(waiting, _)| *waiting != id);
                if let Some(flight) = &mut self.in_flight {
                    flight.tools.retain(|(waiting, _)| *waiting != id);
                }
            }
        }
    }

    fn starts_tools_without_lease(&self) -> bool {
        let has_tools = self.in_flight.as_ref().is_some_and(|flight| !flight.tools.is_empty());
        has_tools && !self.context.shared.ports.cluster.holds_leases()
    }

    /// Starts the tools of an append that is durable.
    pub(crate) fn start_tools(&mut self, tools: Vec<(EffectId, Box<ToolRequest>)>) {
        let ports = &self.context.shared.ports;
        for (id, request) in tools {
            let timeout = request.deadline.saturating_sub(ports.clock.now());
            let events = ports.tools.call_tool(*request);
            self.effect_streams.push_tool(id, events, Duration::from_millis(timeout));
        }
    }

    /// When a paused run has to be woken.
    pub(crate) fn next_wake_at(&self) -> Option<Millis> {
        self.timers.next_due()
    }
}

/// The definitions that a run started with, whatever the configuration is now.
async fn definitions_for_run(context: &ThreadContext, fold: &RunFold) -> Result<Arc<Definitions>, StoreError> {
    let ports = &context.shared.ports;
    let digest = fold.root().and_then(|root| root.definitions_digest.as_deref()).unwrap_or_default();
    let current = ports.definitions.get();
    if digest == current.digest || digest.is_empty() {
        return Ok(current);
    }
    let stored = ports.directory.definitions(digest).await?;
    match stored.and_then(|body| serde_json::from_str::<Definitions>(&body).ok()) {
        Some(definitions) => Ok(Arc::new(Definitions { digest: digest.to_owned(), ..definitions })),
        None => {
            tracing::warn!(thread = %context.thread, digest, "the definitions of a run are missing: it continues with the current ones");
            Ok(current)
        }
    }
}
