//! One thread under one term.
//!
//! Inputs (commands, upstreams, timers) go through the machine one by one; what they cause gathers. One append is in
//! flight at a time. When it is durable its records are shown and its tools start; meanwhile the next batch gathers, up to
//! a bound beyond which upstreams are left unread. Any verdict but `Durable` ends the term.

use crate::actor::Actor;
use crate::open;
use crate::shared::StopMode;
use crate::upstream::Upstreams;
use machine::{CancelRun, Ctx, Effect, EffectId, Input, Out, RunState, TimerId};
use model::block::Object;
use model::command::{Command, Start, Steer};
use model::defects::Defect;
use model::event::{Actor as By, DisplayMode, Event};
use model::limits::{UNDURABLE_BYTES_MAX, UNDURABLE_RECORDS_MAX};
use model::object::TaskStatus;
use model::ports::{Batch, BoxFuture, Change, Checkpoint, InboxRow, Landed, Lease, StoreError, Verdict};
use model::record::Draft;
use model::thread::ThreadFold;
use model::tool::ToolRequest;
use model::{Record, Seq, TaskId};
use std::collections::{HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Sleep;

/// How a term ended.
pub(crate) enum Ended {
    /// Nothing is left to do.
    Idle,
    /// The thread must not be executed by this version.
    Parked,
    /// The process stops.
    Halted,
    /// The log did not take an append: fold it anew.
    Again(String),
}

pub(crate) struct Session<'a> {
    actor: &'a Actor,
    lease: Lease,
    /// What outlives the runs that have ended.
    past: ThreadFold,
    run: Option<RunState>,
    /// Commands that wait.
    rows: VecDeque<InboxRow>,
    gathered: Gathered,
    flight: Option<Flight>,
    /// The last record that was handed to the journal.
    sent: Seq,
    /// Rows that are answered, but whose consumption is not durable yet.
    answered: HashSet<u64>,
    upstreams: Upstreams,
    /// What upstreams said and nobody has looked at yet.
    heard: Vec<Input>,
    deadline: Option<(TimerId, Pin<Box<Sleep>>)>,
}

/// What the next append will hold.
#[derive(Default)]
struct Gathered {
    records: Vec<Record>,
    bytes: usize,
    changes: Vec<Change>,
    tools: Vec<(EffectId, Box<ToolRequest>)>,
}

/// An append on its way.
struct Flight {
    verdict: BoxFuture<'static, Verdict>,
    records: Arc<[Record]>,
    /// Have its records been shown?
    shown: Arc<AtomicBool>,
    bytes: usize,
    /// Rows that it consumes.
    consumed: Vec<u64>,
    /// They may begin when it is durable (law 10).
    tools: Vec<(EffectId, Box<ToolRequest>)>,
}

/// What a session was woken by.
enum Woken {
    Verdict(Verdict),
    Upstream,
    Poked,
    Timer(TimerId),
}

impl<'a> Session<'a> {
    /// Claims the thread and folds its log. `None` when it must not be executed.
    pub(crate) async fn open(actor: &'a Actor) -> Result<Option<Session<'a>>, StoreError> {
        let ports = &actor.shared.ports;
        let lease = ports.journal.claim(&actor.owner, &actor.thread, &ports.node).await?;
        let place = (&actor.owner, &actor.thread);
        let opened = open::fold(&*ports.journal, &*ports.directory, place, lease.head).await?;
        let misfits = opened.replay.thread.misfits + opened.replay.run.as_ref().map_or(0, |run| run.misfits);
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
            upstreams: Upstreams::default(),
            heard: Vec::new(),
            deadline: None,
        };
        if let Some(fold) = opened.replay.run {
            session.run = Some(session.state(Some(fold)));
            session.step(Input::Recovered);
        }
        session.read_inbox().await?;
        Ok(Some(session))
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
                let waiting = mode == StopMode::Going && !self.rows.is_empty();
                match mode {
                    StopMode::Halted => return Ended::Halted,
                    _ if self.run.is_none() && !waiting && self.gathered.is_empty() => return Ended::Idle,
                    _ => {}
                }
            }
            match poll_fn(|cx| self.poll_woken(cx)).await {
                Woken::Verdict(Verdict::Durable) => self.landed(),
                Woken::Verdict(Verdict::Fenced) => return Ended::Again("another executor has the thread".to_owned()),
                Woken::Verdict(Verdict::Refused(why) | Verdict::Unknown(why)) => return Ended::Again(why),
                Woken::Upstream => {
                    for input in std::mem::take(&mut self.heard) {
                        self.step(input);
                    }
                }
                Woken::Timer(id) => self.step(Input::Timer(id)),
                Woken::Poked => {
                    if let Err(error) = self.read_inbox().await {
                        return Ended::Again(error.to_string());
                    }
                }
            }
        }
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
        if let Some((_, moment)) = &mut self.deadline
            && moment.as_mut().poll(cx).is_ready()
            && let Some((id, _)) = self.deadline.take()
        {
            return Poll::Ready(Woken::Timer(id));
        }
        match self.room() {
            0 => Poll::Pending,
            room => self.upstreams.poll_ready(cx, room, &mut self.heard).map(|()| Woken::Upstream),
        }
    }

    /// What became of the append in flight. While nothing waits for that it need not wake anybody: its records are shown
    /// without us ([`Session::flush`]), and we find out when we next look.
    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let going = self.run.is_some() && self.actor.shared.stop_mode() == StopMode::Going;
        let waiting = !going || !self.gathered.is_empty() || self.room() == 0;
        let Some(flight) = &mut self.flight else { return Poll::Pending };
        if waiting || !flight.tools.is_empty() {
            flight.verdict.as_mut().poll(cx)
        } else {
            flight.verdict.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }
    }

    /// How many inputs may be taken before something must become durable first.
    fn room(&self) -> usize {
        let (records, bytes) = self.flight.as_ref().map_or((0, 0), |flight| (flight.records.len(), flight.bytes));
        if bytes + self.gathered.bytes >= UNDURABLE_BYTES_MAX {
            return 0;
        }
        UNDURABLE_RECORDS_MAX.saturating_sub(records + self.gathered.records.len())
    }

    async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let actor = self.actor;
        let rows = actor.shared.ports.directory.inbox(&actor.owner, &actor.thread).await?;
        self.rows = rows.into_iter().filter(|row| !self.answered.contains(&row.id)).collect();
        Ok(())
    }

    /// Answers every row that can be answered now. A start waits for the run before it; what is about that run does not.
    fn answer_rows(&mut self, mode: StopMode) {
        let mut waiting = VecDeque::new();
        while let Some(row) = self.rows.pop_front() {
            match row.command {
                Command::Start(ref start) if self.run.is_none() && waiting.is_empty() && mode == StopMode::Going => {
                    let start = start.clone();
                    self.consume(row.id);
                    self.begin(*start);
                }
                Command::Start(_) => waiting.push_back(row),
                Command::Cancel(ref cancel) => {
                    let (task, mode) = (cancel.task_id.clone(), cancel.mode);
                    self.consume(row.id);
                    if self.is_running(&task) {
                        self.step(Input::Cancel(CancelRun { mode, by: By::User }));
                    } else {
                        self.drop_queued(&task, &mut waiting, row.at);
                    }
                }
                // Too late for its run and too early for the next: it waits like a start.
                Command::Steer(ref steer) if self.run.is_some() && !self.is_running(&steer.task_id) => {
                    waiting.push_back(row);
                }
                Command::Steer(ref steer) => {
                    let steer = steer.clone();
                    self.consume(row.id);
                    self.steer(steer);
                }
                Command::Answer(ref answer) => {
                    let answer = answer.clone();
                    self.consume(row.id);
                    self.step(Input::Answers(vec![answer]));
                }
            }
        }
        self.rows = waiting;
    }

    fn begin(&mut self, start: Start) {
        let (run, agent, at) = (start.task_id.clone(), start.agent.clone(), self.actor.shared.ports.clock.now());
        self.run = Some(self.state(None));
        self.gathered.changes.push(Change::RunStarted { run, agent, first: self.past.seq.next(), at });
        metrics::counter!("headwater_runs_started_total").increment(1);
        self.step(Input::Start(Box::new(start)));
    }

    fn state(&self, fold: Option<model::fold::RunFold>) -> RunState {
        let actor = self.actor;
        let definitions = Arc::clone(&actor.shared.ports.definitions);
        RunState::new(actor.owner.clone(), actor.thread.clone(), definitions, self.past.clone(), fold)
    }

    fn is_running(&self, task: &TaskId) -> bool {
        let root = self.run.as_ref().and_then(|run| run.fold.root());
        root.is_some_and(|root| root.id == *task)
    }

    /// A run that has not begun is given up: it leaves no records, only its row.
    fn drop_queued(&mut self, task: &TaskId, waiting: &mut VecDeque<InboxRow>, at: model::Millis) {
        let queued = |row: &InboxRow| matches!(&row.command, Command::Start(start) if start.task_id == *task);
        let Some(place) = waiting.iter().position(queued) else { return };
        if let Some(row) = waiting.remove(place) {
            self.consume(row.id);
            self.gathered.changes.push(Change::RunDropped { run: task.clone(), at });
        }
    }

    /// Said to a run that goes on it is heard there; said too late, it begins the next one.
    fn steer(&mut self, steer: Steer) {
        if self.is_running(&steer.task_id) {
            self.step(Input::Steer(steer));
            return;
        }
        let start = Start {
            task_id: steer.otherwise,
            agent: self.past.agent.clone().unwrap_or_default(),
            input: steer.input,
            previous: None,
            tools: Vec::new(),
            metadata: Object::new(),
            display_mode: DisplayMode::default(),
            client: None,
        };
        self.begin(start);
    }

    fn consume(&mut self, row: u64) {
        self.answered.insert(row);
        self.gathered.changes.push(Change::Consume { row });
    }

    /// One input through the machine: what it causes gathers, what it asks for begins.
    fn step(&mut self, input: Input) {
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
        if self.run.as_ref().is_some_and(|run| run.fold.is_over()) {
            self.end_run();
        }
    }

    fn gather(&mut self, root: &TaskId, draft: Draft) {
        let (seq, at) = (draft.seq, draft.at);
        let status = if draft.event.task_id() == Some(root) { status_after(&draft.event) } else { None };
        let record = Record::seal(&self.actor.thread, root, self.lease.epoch, draft);
        self.gathered.bytes += record.size();
        self.gathered.records.push(record);
        if let Some(status) = status {
            self.gathered.changes.push(Change::RunStatus { run: root.clone(), status, last: seq, at });
        }
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let status = run.fold.root().map_or(TaskStatus::Failed, |root| root.status);
        metrics::counter!("headwater_runs_ended_total", "status" => status.as_str()).increment(1);
        self.past.absorb(&run.fold);
        self.deadline = None;
        self.upstreams = Upstreams::default();
        if let Ok(body) = serde_json::to_string(&self.past) {
            self.gathered.changes.push(Change::Checkpoint(Checkpoint { seq: self.past.seq, body }));
        }
    }

    fn begin_effect(&mut self, effect: Effect) {
        let ports = &self.actor.shared.ports;
        match effect {
            Effect::CallModel { id, request, .. } => {
                self.upstreams.listen_to_model(id, ports.models.turn(*request));
            }
            Effect::CallTool { id, request } => self.gathered.tools.push((id, request)),
            Effect::Arm { id, at } => {
                let within = Duration::from_millis(at.saturating_sub(ports.clock.now()));
                self.deadline = Some((id, Box::pin(tokio::time::sleep(within))));
            }
            Effect::Abort(id) => {
                self.upstreams.abort(&id);
                self.gathered.tools.retain(|(waiting, _)| *waiting != id);
                if let Some(flight) = &mut self.flight {
                    flight.tools.retain(|(waiting, _)| *waiting != id);
                }
            }
            // No agent has a hook yet.
            Effect::CallHook { .. } => {}
        }
    }

    /// Hands what has gathered to the journal, when nothing is in flight.
    fn flush(&mut self) {
        if self.flight.is_some() || self.gathered.is_empty() {
            return;
        }
        let Gathered { records, bytes, changes, tools } = std::mem::take(&mut self.gathered);
        let row_of = |change: &Change| if let Change::Consume { row } = change { Some(*row) } else { None };
        let consumed = changes.iter().filter_map(row_of).collect();
        let actor = self.actor;
        let shown = Arc::new(AtomicBool::new(false));
        if Defect::PublishBeforeCommit.planted() {
            actor.shared.hub.publish(&actor.thread, &records);
            shown.store(true, Relaxed);
        }
        let batch = Batch {
            owner: actor.owner.clone(),
            thread: actor.thread.clone(),
            epoch: self.lease.epoch,
            head: self.sent,
            records: records.clone(),
            changes,
        };
        self.sent = records.last().map_or(self.sent, |last| last.seq);
        let records: Arc<[Record]> = records.into();
        let landed = self.show_when_durable(&records, &shown);
        let journal = Arc::clone(&actor.shared.ports.journal);
        let verdict = Box::pin(async move { journal.append_then(batch, landed).await });
        self.flight = Some(Flight { verdict, records, shown, bytes, consumed, tools });
    }

    /// Whoever learns first that the records are durable shows them. The actor is woken when it has to do that itself, and
    /// when they are not.
    fn show_when_durable(&self, records: &Arc<[Record]>, shown: &Arc<AtomicBool>) -> Landed {
        let (hub, thread) = (Arc::clone(&self.actor.shared.hub), self.actor.thread.clone());
        let (poke, records, shown) = (Arc::clone(&self.actor.poke), Arc::clone(records), Arc::clone(shown));
        Landed::new(move |verdict| {
            let durable = *verdict == Verdict::Durable;
            if durable && (shown.load(Relaxed) || hub.publish_to_few(&thread, &records)) {
                shown.store(true, Relaxed);
            } else {
                poke.wake();
            }
        })
    }

    /// The append in flight is durable: it is shown, and its tools begin.
    fn landed(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let actor = self.actor;
        flight.consumed.iter().for_each(|row| {
            self.answered.remove(row);
        });
        metrics::counter!("headwater_records_total").increment(flight.records.len() as u64);
        if !flight.shown.load(Relaxed) {
            actor.shared.hub.publish(&actor.thread, &flight.records);
        }
        for (id, request) in flight.tools {
            let within = request.deadline.saturating_sub(actor.shared.ports.clock.now());
            let events = actor.shared.ports.tools.call(*request);
            self.upstreams.listen_to_tool(id, events, Duration::from_millis(within));
        }
    }
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.changes.is_empty()
    }
}

/// The state that an event of the root task puts the run into.
const fn status_after(event: &Event) -> Option<TaskStatus> {
    match event {
        Event::Resumed(_) => Some(TaskStatus::Running),
        Event::Paused(_) => Some(TaskStatus::Paused),
        Event::Completed(_) => Some(TaskStatus::Completed),
        Event::Incomplete(_) => Some(TaskStatus::Incomplete),
        Event::Failed(_) => Some(TaskStatus::Failed),
        Event::Cancelled(_) => Some(TaskStatus::Cancelled),
        _ => None,
    }
}
