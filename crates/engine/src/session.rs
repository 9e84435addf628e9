//! One thread under one term.
//!
//! Inputs (commands, upstreams, timers) go through the machine one by one; what they cause gathers. One append is in
//! flight at a time. When it is durable its records are shown and its tools start; meanwhile the next batch gathers, up to
//! a bound beyond which upstreams are left unread. Any verdict but `Durable` ends the term. A run that waits for people
//! ends it, too: it costs no memory until somebody answers or its time is up.
//!
//! `inbox` has how commands are answered, `batch` how records are gathered and appended, `before` what happens before a
//! run begins, and `compaction` what happens after one has ended.

use crate::actor::{NewThread, ThreadActor};
use crate::batch::{BatchBuilder, InFlightAppend};
use crate::compaction::RunningCompaction;
use crate::effect_streams::{self, EffectStreams};
use crate::input_hook::PendingHook;
use crate::shared::StopMode;
use crate::thread_state;
use crate::timers::Timers;
use machine::{Effect, EffectId, InputContext, MachineInput, MachineOutput, RunState, TimerId};
use model::Seq;
use model::definition::Definitions;
use model::fold::RunFold;
use model::ports::{AppendOutcome, Checkpoint, ClaimOutcome, Day, DirectoryChange, InboxRow, Lease, Spend, StoreError};
use model::task::TaskStatus;
use model::thread::ThreadFold;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How a term ended.
pub(crate) enum TermEnd {
    /// Nothing is left to do, or nothing but to wait for people.
    Idle,
    /// The thread must not be executed by this version.
    Parked,
    /// The process stops.
    Halted,
    /// Another node holds the thread until then, unless it renews its lease.
    HeldElsewhere { until: model::Millis },
    /// The log did not take an append: fold it anew.
    Retry(String),
}

pub(crate) struct ThreadSession<'a> {
    pub(crate) actor: &'a ThreadActor,
    pub(crate) lease: Lease,
    /// What outlives the runs that have ended.
    pub(crate) thread_fold: ThreadFold,
    pub(crate) run: Option<RunState>,
    /// Commands that wait.
    pub(crate) waiting_rows: VecDeque<InboxRow>,
    pub(crate) next_batch: BatchBuilder,
    pub(crate) in_flight: Option<InFlightAppend>,
    /// The last record that was handed to the journal.
    pub(crate) submitted_seq: Seq,
    /// Rows that are answered, but whose consumption is not durable yet.
    pub(crate) handled_rows: HashSet<u64>,
    /// Words that their run could not hear when they came: they begin the next one.
    pub(crate) late_steers: HashSet<u64>,
    /// A run that is about to begin, when its hook has answered.
    pub(crate) pending_hook: Option<PendingHook>,
    /// The past is being summed up.
    pub(crate) compaction: Option<RunningCompaction>,
    /// What the user had used up today when the term began.
    pub(crate) daily_spend: Spend,
    effect_streams: EffectStreams,
    /// What upstreams said and nobody has looked at yet.
    ready_inputs: Vec<MachineInput>,
    pub(crate) timers: Timers,
}

/// What a session was woken by.
enum SessionEvent {
    AppendDone(AppendOutcome),
    Inputs,
    Wakeup,
    Timer(TimerId),
    Hook,
    Compaction,
}

impl<'a> ThreadSession<'a> {
    /// Claims the thread and folds its log. The inner error says why the thread cannot be executed now.
    pub(crate) async fn open(
        actor: &'a ThreadActor,
        birth: Option<NewThread>,
    ) -> Result<Result<ThreadSession<'a>, TermEnd>, StoreError> {
        let ports = &actor.shared.ports;
        let (lease, first) = match birth {
            Some(NewThread { lease, first_row: row }) => (lease, Some(row)),
            None => match ports.journal.claim(&actor.owner, &actor.thread, &ports.node).await? {
                ClaimOutcome::Granted(lease) => (lease, None),
                ClaimOutcome::Held { node, until } => {
                    tracing::debug!(thread = %actor.thread, %node, until, "another node holds the thread");
                    return Ok(Err(TermEnd::HeldElsewhere { until }));
                }
            },
        };
        actor.shared.hub.advance_head(&actor.thread, lease.head);
        let place = (&actor.owner, &actor.thread);
        let opened = thread_state::load_thread_state(&*ports.journal, &*ports.directory, place, lease.head).await?;
        let misfits = opened.replay.thread.fold_errors + opened.replay.run.as_ref().map_or(0, |run| run.fold_errors);
        if opened.has_newer_format || misfits > 0 {
            let newer = opened.has_newer_format;
            tracing::error!(thread = %actor.thread, misfits, newer, "the thread is parked: its log does not fit");
            metrics::counter!("headwater_threads_parked_total").increment(1);
            return Ok(Err(TermEnd::Parked));
        }
        let mut session = Self {
            actor,
            lease,
            thread_fold: opened.replay.thread,
            run: None,
            waiting_rows: VecDeque::new(),
            next_batch: BatchBuilder::default(),
            in_flight: None,
            submitted_seq: lease.head,
            handled_rows: HashSet::new(),
            late_steers: HashSet::new(),
            pending_hook: None,
            compaction: None,
            daily_spend: Spend::default(),
            effect_streams: EffectStreams::default(),
            ready_inputs: Vec::new(),
            timers: Timers::default(),
        };
        session.load_daily_spend().await?;
        if let Some(fold) = opened.replay.run {
            session.resume_run(fold).await?;
        }
        match first {
            Some(row) => session.waiting_rows.push_back(row),
            None => session.read_inbox().await?,
        }
        Ok(Ok(session))
    }

    /// Goes on with a run that has not ended.
    async fn resume_run(&mut self, fold: RunFold) -> Result<(), StoreError> {
        let definitions = definitions_for_run(self.actor, &fold).await?;
        let mut run = self.new_run_state(definitions, Some(fold));
        // What the run itself used up today is in both sums.
        run.exclude_own_spend();
        // First of all: should the run pause now, its row says when it has to be looked at again.
        for id in machine::outstanding_effects(&run) {
            if let EffectId::Timer(timer) = id
                && let Some(at) = machine::timer_deadline(&run, &timer)
            {
                self.timers.arm(timer, at, self.actor.shared.ports.clock.now());
            }
        }
        self.run = Some(run);
        self.step(MachineInput::Recovered);
        Ok(())
    }

    /// Only where somebody's day has a limit is it looked at.
    async fn load_daily_spend(&mut self) -> Result<(), StoreError> {
        let ports = &self.actor.shared.ports;
        let limits = &ports.definitions.limits;
        if limits.user_day_tokens_max.is_some() || limits.user_day_cost_max.is_some() {
            self.daily_spend =
                ports.directory.daily_spend(&self.actor.owner, Day::from_millis(ports.clock.now())).await?;
        }
        Ok(())
    }

    /// Executes until nothing is left to do.
    pub(crate) async fn run(&mut self) -> TermEnd {
        loop {
            let mode = self.actor.shared.stop_mode();
            if mode != StopMode::Halted {
                self.handle_rows(mode);
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
                SessionEvent::AppendDone(AppendOutcome::Durable) => self.on_durable(),
                SessionEvent::AppendDone(AppendOutcome::Fenced) => {
                    return TermEnd::Retry("another executor has the thread".to_owned());
                }
                SessionEvent::AppendDone(AppendOutcome::Rejected(why) | AppendOutcome::Unknown(why)) => {
                    return TermEnd::Retry(why);
                }
                SessionEvent::Inputs => {
                    for input in std::mem::take(&mut self.ready_inputs) {
                        self.step(input);
                    }
                }
                SessionEvent::Timer(id) => {
                    if let Err(error) = self.on_timer(id).await {
                        return TermEnd::Retry(error.to_string());
                    }
                }
                SessionEvent::Hook | SessionEvent::Compaction => {}
                SessionEvent::Wakeup => {
                    if let Err(error) = self.read_inbox().await {
                        return TermEnd::Retry(error.to_string());
                    }
                }
            }
        }
    }

    /// A run that waits for people waits without us.
    fn is_idle(&self, mode: StopMode) -> bool {
        let waiting = mode == StopMode::Running && !self.waiting_rows.is_empty();
        let begun = self.pending_hook.is_some() || self.compaction.is_some();
        if !self.next_batch.is_empty() || (begun && mode == StopMode::Running) {
            return false;
        }
        // Time that is up is an answer, too.
        let due = self.timers.next_due().is_some_and(|at| at <= self.actor.shared.ports.clock.now());
        (self.is_paused() && !due) || (self.run.is_none() && !waiting)
    }

    pub(crate) fn is_paused(&self) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.status == TaskStatus::Paused)
    }

    /// The next thing. Upstreams are left unread while too much waits for the disk.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        // First of all: whoever hears the verdict may wake us at any moment from now on.
        self.actor.wakeup.register_waker(cx);
        if let Poll::Ready(verdict) = self.poll_append(cx) {
            return Poll::Ready(SessionEvent::AppendDone(verdict));
        }
        if self.actor.wakeup.poll_notified(cx).is_ready() {
            return Poll::Ready(SessionEvent::Wakeup);
        }
        if let Poll::Ready(timer) = self.timers.poll_due(cx) {
            return Poll::Ready(SessionEvent::Timer(timer));
        }
        if self.poll_hook(cx).is_ready() {
            return Poll::Ready(SessionEvent::Hook);
        }
        if self.poll_compaction(cx).is_ready() {
            return Poll::Ready(SessionEvent::Compaction);
        }
        match self.input_capacity() {
            0 => Poll::Pending,
            room => self.effect_streams.poll_ready(cx, room, &mut self.ready_inputs).map(|()| SessionEvent::Inputs),
        }
    }

    /// What became of the append in flight. While nothing waits for that it need not wake anybody: its records are shown
    /// without us ([`Session::flush`]), and we find out when we next look.
    fn poll_append(&mut self, cx: &mut Context<'_>) -> Poll<AppendOutcome> {
        let going = self.run.is_some() && !self.is_paused() && self.actor.shared.stop_mode() == StopMode::Running;
        let waiting = !going || !self.next_batch.is_empty() || self.input_capacity() == 0;
        let Some(flight) = &mut self.in_flight else { return Poll::Pending };
        if waiting || !flight.tools.is_empty() {
            flight.verdict.as_mut().poll(cx)
        } else {
            flight.verdict.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }
    }

    /// A run's state, before its first record or from what the log says.
    pub(crate) fn new_run_state(&self, definitions: Arc<Definitions>, fold: Option<RunFold>) -> RunState {
        let actor = self.actor;
        let mut run =
            RunState::new(actor.owner.clone(), actor.thread.clone(), definitions, self.thread_fold.clone(), fold);
        run.prior_spend = self.daily_spend;
        run
    }

    /// One input through the machine: what it causes gathers, what it asks for begins.
    pub(crate) fn step(&mut self, input: MachineInput) {
        let now = self.actor.shared.ports.clock.now();
        let Some(run) = &mut self.run else { return };
        let mut out = MachineOutput::default();
        machine::apply_input(run, input, InputContext { now }, &mut out);
        for effect in out.effects {
            self.start_effect(effect);
        }
        let Some(root) = self.run.as_ref().and_then(|run| run.fold.root()).map(|root| root.id.clone()) else { return };
        for draft in out.drafts {
            self.push_record(&root, draft);
        }
        if self.run.as_ref().is_some_and(|run| run.fold.has_ended()) {
            self.finish_run();
        }
    }

    fn finish_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let status = run.fold.root().map_or(TaskStatus::Failed, |root| root.status);
        metrics::counter!("headwater_runs_ended_total", "status" => status.as_str()).increment(1);
        self.thread_fold.add_finished_run(&run.fold);
        self.daily_spend = run.user_spend_today();
        self.timers = Timers::default();
        self.effect_streams = EffectStreams::default();
        self.push_checkpoint();
        self.start_compaction(&run.definitions);
    }

    pub(crate) fn push_checkpoint(&mut self) {
        if let Ok(body) = serde_json::to_string(&self.thread_fold) {
            self.next_batch.changes.push(DirectoryChange::Checkpoint(Checkpoint { seq: self.thread_fold.seq, body }));
        }
    }

    fn start_effect(&mut self, effect: Effect) {
        let ports = &self.actor.shared.ports;
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

    /// The tools of an append that is durable begin.
    pub(crate) fn start_tools(&mut self, flight: InFlightAppend) {
        let ports = &self.actor.shared.ports;
        for (id, request) in flight.tools {
            let within = request.deadline.saturating_sub(ports.clock.now());
            let events = ports.tools.call_tool(*request);
            self.effect_streams.push_tool(id, events, Duration::from_millis(within));
        }
    }

    /// When the run that waits for people has to be looked at again.
    pub(crate) fn next_wake_at(&self) -> Option<model::Millis> {
        self.timers.next_due()
    }
}

/// The definitions that a run started with, whatever the file says now.
async fn definitions_for_run(actor: &ThreadActor, fold: &RunFold) -> Result<Arc<Definitions>, StoreError> {
    let ports = &actor.shared.ports;
    let digest = fold.root().and_then(|root| root.definitions_digest.as_deref()).unwrap_or_default();
    if digest == ports.definitions.digest || digest.is_empty() {
        return Ok(Arc::clone(&ports.definitions));
    }
    let kept = ports.directory.definitions(digest).await?;
    match kept.and_then(|body| serde_json::from_str::<Definitions>(&body).ok()) {
        Some(definitions) => Ok(Arc::new(Definitions { digest: digest.to_owned(), ..definitions })),
        None => {
            tracing::warn!(thread = %actor.thread, digest, "a run's definitions are gone: it goes on with today's");
            Ok(Arc::clone(&ports.definitions))
        }
    }
}
