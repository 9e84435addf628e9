//! One thread under one term.
//!
//! Inputs (commands, upstreams, timers) go through the machine one by one; what they cause gathers. One append is in
//! flight at a time. When it is durable its records are shown and its tools start; meanwhile the next batch gathers, up to
//! a bound beyond which upstreams are left unread. Any verdict but `Durable` ends the term. A run that waits for people
//! ends it, too: it costs no memory until somebody answers or its time is up.
//!
//! `inbox` has how commands are answered, `batch` how records are gathered and appended, `before` what happens before a
//! run begins, and `compaction` what happens after one has ended.

use crate::actor::{Actor, Birth};
use crate::batch::{Flight, Gathered};
use crate::before::Hooking;
use crate::compaction::Compacting;
use crate::open;
use crate::shared::StopMode;
use crate::timers::Timers;
use crate::upstream::{self, Upstreams};
use machine::{Ctx, Effect, EffectId, Input, Out, RunState, TimerId};
use model::Seq;
use model::definition::Definitions;
use model::fold::RunFold;
use model::ports::{AppendOutcome, Checkpoint, Day, DirectoryChange, InboxRow, Lease, Spend, StoreError};
use model::task::TaskStatus;
use model::thread::ThreadFold;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How a term ended.
pub(crate) enum Ended {
    /// Nothing is left to do, or nothing but to wait for people.
    Idle,
    /// The thread must not be executed by this version.
    Parked,
    /// The process stops.
    Halted,
    /// The log did not take an append: fold it anew.
    Again(String),
}

pub(crate) struct Session<'a> {
    pub(crate) actor: &'a Actor,
    pub(crate) lease: Lease,
    /// What outlives the runs that have ended.
    pub(crate) past: ThreadFold,
    pub(crate) run: Option<RunState>,
    /// Commands that wait.
    pub(crate) rows: VecDeque<InboxRow>,
    pub(crate) gathered: Gathered,
    pub(crate) flight: Option<Flight>,
    /// The last record that was handed to the journal.
    pub(crate) sent: Seq,
    /// Rows that are answered, but whose consumption is not durable yet.
    pub(crate) answered: HashSet<u64>,
    /// Words that their run could not hear when they came: they begin the next one.
    pub(crate) unheard: HashSet<u64>,
    /// A run that is about to begin, when its hook has answered.
    pub(crate) hooking: Option<Hooking>,
    /// The past is being summed up.
    pub(crate) compacting: Option<Compacting>,
    /// What the user had used up today when the term began.
    pub(crate) spent: Spend,
    upstreams: Upstreams,
    /// What upstreams said and nobody has looked at yet.
    heard: Vec<Input>,
    pub(crate) timers: Timers,
}

/// What a session was woken by.
enum Woken {
    Verdict(AppendOutcome),
    Upstream,
    Poked,
    Timer(TimerId),
    Hook,
    Summary,
}

impl<'a> Session<'a> {
    /// Claims the thread and folds its log. `None` when it must not be executed.
    pub(crate) async fn open(actor: &'a Actor, birth: Option<Birth>) -> Result<Option<Session<'a>>, StoreError> {
        let ports = &actor.shared.ports;
        let (lease, first) = match birth {
            Some(Birth { lease, row }) => (lease, Some(row)),
            None => (ports.journal.claim(&actor.owner, &actor.thread, &ports.node).await?, None),
        };
        actor.shared.hub.reach(&actor.thread, lease.head);
        let place = (&actor.owner, &actor.thread);
        let opened = open::fold(&*ports.journal, &*ports.directory, place, lease.head).await?;
        let misfits = opened.replay.thread.fold_errors + opened.replay.run.as_ref().map_or(0, |run| run.fold_errors);
        if opened.newer || misfits > 0 {
            let newer = opened.newer;
            tracing::error!(thread = %actor.thread, misfits, newer, "the thread is parked: its log does not fit");
            metrics::counter!("headwater_threads_parked_total").increment(1);
            return Ok(None);
        }
        let mut session = Self {
            actor,
            lease,
            past: opened.replay.thread,
            run: None,
            rows: VecDeque::new(),
            gathered: Gathered::default(),
            flight: None,
            sent: lease.head,
            answered: HashSet::new(),
            unheard: HashSet::new(),
            hooking: None,
            compacting: None,
            spent: Spend::default(),
            upstreams: Upstreams::default(),
            heard: Vec::new(),
            timers: Timers::default(),
        };
        session.read_spent().await?;
        if let Some(fold) = opened.replay.run {
            session.take_up(fold).await?;
        }
        match first {
            Some(row) => session.rows.push_back(row),
            None => session.read_inbox().await?,
        }
        Ok(Some(session))
    }

    /// Goes on with a run that has not ended.
    async fn take_up(&mut self, fold: RunFold) -> Result<(), StoreError> {
        let definitions = definitions_of(self.actor, &fold).await?;
        let mut run = self.state(definitions, Some(fold));
        // What the run itself used up today is in both sums.
        run.leave_own_out();
        // First of all: should the run pause now, its row says when it has to be looked at again.
        for id in machine::outstanding(&run) {
            if let EffectId::Timer(timer) = id
                && let Some(at) = machine::moment_of(&run, &timer)
            {
                self.timers.arm(timer, at, self.actor.shared.ports.clock.now());
            }
        }
        self.run = Some(run);
        self.step(Input::Recovered);
        Ok(())
    }

    /// Only where somebody's day has a limit is it looked at.
    async fn read_spent(&mut self) -> Result<(), StoreError> {
        let ports = &self.actor.shared.ports;
        let limits = &ports.definitions.limits;
        if limits.user_day_tokens_max.is_some() || limits.user_day_cost_max.is_some() {
            self.spent = ports.directory.daily_spend(&self.actor.owner, Day::from_millis(ports.clock.now())).await?;
        }
        Ok(())
    }

    /// Executes until nothing is left to do.
    pub(crate) async fn run(&mut self) -> Ended {
        loop {
            let mode = self.actor.shared.stop_mode();
            if mode != StopMode::Halted {
                self.answer_rows(mode);
                self.flush();
            }
            if self.flight.is_none() {
                match mode {
                    StopMode::Halted => return Ended::Halted,
                    _ if self.has_nothing_to_do(mode) => return Ended::Idle,
                    _ => {}
                }
            }
            match poll_fn(|cx| self.poll_woken(cx)).await {
                Woken::Verdict(AppendOutcome::Durable) => self.landed(),
                Woken::Verdict(AppendOutcome::Fenced) => {
                    return Ended::Again("another executor has the thread".to_owned());
                }
                Woken::Verdict(AppendOutcome::Rejected(why) | AppendOutcome::Unknown(why)) => return Ended::Again(why),
                Woken::Upstream => {
                    for input in std::mem::take(&mut self.heard) {
                        self.step(input);
                    }
                }
                Woken::Timer(id) => {
                    if let Err(error) = self.time_is_up(id).await {
                        return Ended::Again(error.to_string());
                    }
                }
                Woken::Hook | Woken::Summary => {}
                Woken::Poked => {
                    if let Err(error) = self.read_inbox().await {
                        return Ended::Again(error.to_string());
                    }
                }
            }
        }
    }

    /// A run that waits for people waits without us.
    fn has_nothing_to_do(&self, mode: StopMode) -> bool {
        let waiting = mode == StopMode::Going && !self.rows.is_empty();
        let begun = self.hooking.is_some() || self.compacting.is_some();
        if !self.gathered.is_empty() || (begun && mode == StopMode::Going) {
            return false;
        }
        // Time that is up is an answer, too.
        let due = self.timers.next().is_some_and(|at| at <= self.actor.shared.ports.clock.now());
        (self.is_paused() && !due) || (self.run.is_none() && !waiting)
    }

    pub(crate) fn is_paused(&self) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.status == TaskStatus::Paused)
    }

    /// The next thing. Upstreams are left unread while too much waits for the disk.
    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<Woken> {
        // First of all: whoever hears the verdict may wake us at any moment from now on.
        self.actor.poke.listen(cx);
        if let Poll::Ready(verdict) = self.poll_verdict(cx) {
            return Poll::Ready(Woken::Verdict(verdict));
        }
        if self.actor.poke.poll_raised(cx).is_ready() {
            return Poll::Ready(Woken::Poked);
        }
        if let Poll::Ready(timer) = self.timers.poll_due(cx) {
            return Poll::Ready(Woken::Timer(timer));
        }
        if self.poll_hook(cx).is_ready() {
            return Poll::Ready(Woken::Hook);
        }
        if self.poll_summary(cx).is_ready() {
            return Poll::Ready(Woken::Summary);
        }
        match self.room() {
            0 => Poll::Pending,
            room => self.upstreams.poll_ready(cx, room, &mut self.heard).map(|()| Woken::Upstream),
        }
    }

    /// What became of the append in flight. While nothing waits for that it need not wake anybody: its records are shown
    /// without us ([`Session::flush`]), and we find out when we next look.
    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<AppendOutcome> {
        let going = self.run.is_some() && !self.is_paused() && self.actor.shared.stop_mode() == StopMode::Going;
        let waiting = !going || !self.gathered.is_empty() || self.room() == 0;
        let Some(flight) = &mut self.flight else { return Poll::Pending };
        if waiting || !flight.tools.is_empty() {
            flight.verdict.as_mut().poll(cx)
        } else {
            flight.verdict.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }
    }

    /// A run's state, before its first record or from what the log says.
    pub(crate) fn state(&self, definitions: Arc<Definitions>, fold: Option<RunFold>) -> RunState {
        let actor = self.actor;
        let mut run = RunState::new(actor.owner.clone(), actor.thread.clone(), definitions, self.past.clone(), fold);
        run.spent_before = self.spent;
        run
    }

    /// One input through the machine: what it causes gathers, what it asks for begins.
    pub(crate) fn step(&mut self, input: Input) {
        let now = self.actor.shared.ports.clock.now();
        let Some(run) = &mut self.run else { return };
        let mut out = Out::default();
        machine::step(run, input, Ctx { now }, &mut out);
        for effect in out.effects {
            self.begin_effect(effect);
        }
        let Some(root) = self.run.as_ref().and_then(|run| run.fold.root()).map(|root| root.id.clone()) else { return };
        for draft in out.drafts {
            self.gather(&root, draft);
        }
        if self.run.as_ref().is_some_and(|run| run.fold.has_ended()) {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let status = run.fold.root().map_or(TaskStatus::Failed, |root| root.status);
        metrics::counter!("headwater_runs_ended_total", "status" => status.as_str()).increment(1);
        self.past.add_finished_run(&run.fold);
        self.spent = run.spent_until_now();
        self.timers = Timers::default();
        self.upstreams = Upstreams::default();
        self.put_checkpoint();
        self.begin_compaction(&run.definitions);
    }

    pub(crate) fn put_checkpoint(&mut self) {
        if let Ok(body) = serde_json::to_string(&self.past) {
            self.gathered.changes.push(DirectoryChange::Checkpoint(Checkpoint { seq: self.past.seq, body }));
        }
    }

    fn begin_effect(&mut self, effect: Effect) {
        let ports = &self.actor.shared.ports;
        match effect {
            Effect::CallModel { id, request, not_before: None } => {
                self.upstreams.listen_to_model(id, ports.models.stream_turn(*request));
            }
            Effect::CallModel { id, request, not_before: Some(at) } => {
                let wait = Duration::from_millis(at.saturating_sub(ports.clock.now()));
                self.upstreams.listen_to_model(id, upstream::turn_after(wait, Arc::clone(&ports.models), *request));
            }
            Effect::ReadFile { id, request } => self.upstreams.listen_to_file(id, ports.documents.read_file(request)),
            Effect::CallTool { id, request } => self.gathered.tools.push((id, request)),
            Effect::Arm { id, at } => self.timers.arm(id, at, ports.clock.now()),
            Effect::Abort(EffectId::Timer(id)) => self.timers.disarm(&id),
            Effect::Abort(id) => {
                self.upstreams.abort(&id);
                self.gathered.tools.retain(|(waiting, _)| *waiting != id);
                if let Some(flight) = &mut self.flight {
                    flight.tools.retain(|(waiting, _)| *waiting != id);
                }
            }
        }
    }

    /// The tools of an append that is durable begin.
    pub(crate) fn begin_tools(&mut self, flight: Flight) {
        let ports = &self.actor.shared.ports;
        for (id, request) in flight.tools {
            let within = request.deadline.saturating_sub(ports.clock.now());
            let events = ports.tools.call_tool(*request);
            self.upstreams.listen_to_tool(id, events, Duration::from_millis(within));
        }
    }

    /// When the run that waits for people has to be looked at again.
    pub(crate) fn wakes_at(&self) -> Option<model::Millis> {
        self.timers.next()
    }
}

/// The definitions that a run started with, whatever the file says now.
async fn definitions_of(actor: &Actor, fold: &RunFold) -> Result<Arc<Definitions>, StoreError> {
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
