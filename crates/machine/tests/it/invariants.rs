//! What must hold after every input, derived only from the machine's effects and records.

use crate::provider_rules;
use machine::{Effect, EffectId, MachineInput, MachineOutput, RunState, outstanding_effects, timer_deadline};
use model::definition::ApprovalPolicy;
use model::event::{ApprovalDecisionKind, Event};
use model::fold::ItemFold;
use model::item::{FileStatus, Item};
use model::model_turn::ModelEvent;
use model::record::RecordDraft;
use model::tool::{ToolEvent, ToolRequest};
use model::{ApprovalKey, CallId, Millis, TaskId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Default)]
pub(crate) struct InvariantChecker {
    /// Effects that have started and not ended.
    pub(crate) outstanding: BTreeSet<EffectId>,
    /// The number of executions of each call.
    pub(crate) starts: BTreeMap<CallId, u32>,
    /// Calls approved since they were last started.
    approved: BTreeSet<CallId>,
    /// Tools that need no further approval.
    always_approved: BTreeSet<String>,
    open_approvals: BTreeMap<ApprovalKey, (CallId, String)>,
    /// Questions of tools.
    open_questions: BTreeMap<ApprovalKey, CallId>,
    /// Calls whose questions have been decided since they were last started, and their attempts.
    answered: BTreeMap<CallId, u32>,
    attempts: BTreeMap<CallId, u32>,
    /// Tasks whose current turn has shown something.
    tasks_with_output: BTreeSet<TaskId>,
    paused: bool,
    at: Millis,
}

impl InvariantChecker {
    pub(crate) fn before_input(&mut self, input: &MachineInput) {
        match input {
            MachineInput::Model { id, event: ModelEvent::End(_) | ModelEvent::Failed(_) }
            | MachineInput::Tool { id, event: ToolEvent::End(_) | ToolEvent::InputRequired(_) | ToolEvent::Lost(_) }
            | MachineInput::File { id, .. } => {
                self.outstanding.remove(id);
            }
            MachineInput::Timer(id) => {
                self.outstanding.remove(&EffectId::Timer(id.clone()));
            }
            _ => {}
        }
    }

    /// Models, tools and files of the crashed process are gone, timers are armed again.
    pub(crate) fn on_crash(&mut self, run: &RunState) {
        self.outstanding = outstanding_effects(run).into_iter().filter(|id| matches!(id, EffectId::Timer(_))).collect();
    }

    /// Checks everything that one input caused.
    pub(crate) fn after_step(&mut self, run: &RunState, out: &MachineOutput) -> Result<(), String> {
        for draft in &out.drafts {
            self.check_record(draft)?;
        }
        check_effects_match_events(out)?;
        for effect in &out.effects {
            self.check_effect(run, effect)?;
        }
        if run.fold.has_ended() {
            self.outstanding.clear();
            if !self.open_approvals.is_empty() || !self.open_questions.is_empty() {
                let open = (&self.open_approvals, &self.open_questions);
                return Err(format!("the run is over, and {open:?} were never decided"));
            }
        }
        let now: BTreeSet<EffectId> = outstanding_effects(run).into_iter().collect();
        if now != self.outstanding {
            return Err(format!("outstanding is {now:?}, asked minus ended is {:?}", self.outstanding));
        }
        let is_asking = |call: &CallId| self.open_questions.values().any(|asking| asking == call);
        let busy = |id: &EffectId| match id {
            EffectId::Timer(_) => false,
            EffectId::Tool { call, .. } => !is_asking(call),
            _ => true,
        };
        let begun = run.fold.root().is_some() && !run.fold.has_ended();
        if begun && now.iter().any(busy) == self.paused {
            return Err(format!("paused: {}, and outstanding is {now:?}", self.paused));
        }
        match run.fold.fold_errors {
            0 => Ok(()),
            _ => Err(format!("a record of the machine's own does not fit: {:?}", out.drafts)),
        }
    }

    fn check_record(&mut self, draft: &RecordDraft) -> Result<(), String> {
        if self.paused && !matches!(draft.event, Event::Resumed(_)) {
            return Err(format!("{draft:?} follows a pause"));
        }
        self.paused = matches!(draft.event, Event::Paused(_));
        if draft.at < self.at {
            return Err(format!("{draft:?} is before {}", self.at));
        }
        self.at = draft.at;
        match &draft.event {
            Event::ApprovalRequested(e) if e.question.is_some() => {
                if self.open_questions.values().any(|asking| *asking == e.call_id) {
                    return Err(format!("{} asks two questions at once", e.call_id));
                }
                self.open_questions.insert(e.key.clone(), e.call_id.clone());
            }
            Event::ApprovalResolved(e) if self.open_questions.contains_key(&e.key) => {
                let call = self.open_questions.remove(&e.key).unwrap_or_else(|| CallId::from(""));
                let attempt = self.attempts.get(&call).copied().unwrap_or_default();
                self.answered.insert(call, attempt);
            }
            Event::ApprovalRequested(e) => {
                let name = e.action_requests.first().map(|action| action.name.clone()).unwrap_or_default();
                self.open_approvals.insert(e.key.clone(), (e.call_id.clone(), name));
            }
            Event::ApprovalResolved(e) => {
                let (call, name) =
                    self.open_approvals.remove(&e.key).ok_or_else(|| format!("{} was not asked", e.key))?;
                for decision in e.decisions.iter().filter(|decision| decision.kind != ApprovalDecisionKind::Reject) {
                    self.approved.insert(call.clone());
                    if decision.always {
                        self.always_approved.insert(name.clone());
                    }
                }
            }
            Event::StepStarted(e) => _ = self.tasks_with_output.remove(&e.task_id),
            Event::ItemAdded(e) if !matches!(e.item, Item::ToolResult(_) | Item::FileProcessing(_)) => {
                self.tasks_with_output.insert(e.task_id.clone());
            }
            Event::Retrying(e) if self.tasks_with_output.contains(&e.task_id) || e.not_before < draft.at => {
                return Err(format!("{e:?} at {} follows what was shown, or is in the past", draft.at));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_effect(&mut self, run: &RunState, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::CallModel { id, request, .. } => {
                self.outstanding.insert(id.clone());
                self.check_model_call(run, id)?;
                provider_rules::check_history(&request.history).map_err(|why| format!("{why}\n{:#?}", request.history))
            }
            Effect::CallTool { id, request } => {
                self.outstanding.insert(id.clone());
                self.check_tool_call(run, request)
            }
            Effect::ReadFile { id, .. } => {
                self.outstanding.insert(id.clone());
                Ok(())
            }
            Effect::SetTimer { id, at } => {
                self.outstanding.insert(EffectId::Timer(id.clone()));
                // After a restart the engine arms the timer from the state.
                let armed = timer_deadline(run, id);
                if armed == Some(*at) { Ok(()) } else { Err(format!("{id:?} fires at {at}, and at {armed:?}")) }
            }
            Effect::AnswerTool { id, .. } => match id {
                // The tool may have ended just now, which is why its question was withdrawn.
                EffectId::Tool { call, .. } if self.starts.contains_key(call) => Ok(()),
                _ => Err(format!("{id:?} is answered and never ran")),
            },
            Effect::Abort(id) => {
                self.outstanding.remove(id);
                Ok(())
            }
        }
    }

    /// No model is called while a file of its task is being read.
    fn check_model_call(&self, run: &RunState, id: &EffectId) -> Result<(), String> {
        let EffectId::Model { task, .. } = id else { return Ok(()) };
        match run.fold.task(task).and_then(|task| task.open_file_processing()) {
            Some((_, fold, _)) => Err(format!("{id:?} is asked while {:?} are read", fold.files.keys())),
            None => Ok(()),
        }
    }

    /// A tool runs at most once, unless it is idempotent, was approved again, or asked: then the same attempt goes on with the
    /// answers. A gated one never runs without approval.
    fn check_tool_call(&mut self, run: &RunState, request: &ToolRequest) -> Result<(), String> {
        let (call, name) = (&request.call_id, request.name.as_str());
        let before = self.attempts.insert(call.clone(), request.attempt);
        let answered = self.answered.remove(call);
        if before == Some(request.attempt) {
            let is_continued = answered == before && request.answers.is_some();
            return if is_continued { Ok(()) } else { Err(format!("{call} starts the same attempt again")) };
        }
        let tool = run.definitions.tools.get(name).ok_or_else(|| format!("there is no tool {name}"))?;
        if is_repeated(run, call) {
            return Err(format!("{call} runs, and the provider had named it before"));
        }
        let before = self.starts.entry(call.clone()).or_default();
        *before += 1;
        let yes = self.approved.remove(call);
        let again = *before > 1;
        if again && !tool.idempotent && !yes {
            return Err(format!("{call} runs again, and nobody said so"));
        }
        let free = again || yes || self.always_approved.contains(name) || tool.approval != ApprovalPolicy::Always;
        if free { Ok(()) } else { Err(format!("{call} runs, and nobody allowed it")) }
    }
}

/// Whether the provider sent this very call before.
fn is_repeated(run: &RunState, call: &CallId) -> bool {
    let Some(task) = run.fold.tasks.iter().find(|task| task.call(call).is_some()) else { return false };
    let Some((fold, held)) = task.call(call) else { return false };
    let named = fold.provider_call_id.as_ref().filter(|id| !id.is_empty());
    let mut before =
        task.calls().take_while(|(_, before)| before.call_id != *call).filter(|(fold, _)| !fold.superseded);
    let same = |fold: &ItemFold| fold.provider_call_id.as_ref() == named;
    named.is_some()
        && before.any(|(fold, before)| same(fold) && before.name == held.name && before.arguments == held.arguments)
}

/// Each start is caused by exactly one event.
fn check_effects_match_events(out: &MachineOutput) -> Result<(), String> {
    let events = |is: fn(&RecordDraft) -> bool| out.drafts.iter().filter(|draft| is(draft)).count();
    let effects = |is: fn(&Effect) -> bool| out.effects.iter().filter(|effect| is(effect)).count();
    let turns = events(|draft| matches!(draft.event, Event::StepStarted(_) | Event::Retrying(_)));
    let tools = events(|draft| matches!(draft.event, Event::ToolStarted(_)) && draft.private.is_some());
    let moments = events(|draft| match &draft.event {
        Event::ApprovalRequested(_) => true,
        Event::Created(e) => e.task.parent_task_id.is_none(),
        _ => false,
    });
    let files = out.drafts.iter().map(|draft| match &draft.event {
        Event::ItemAdded(e) => match &e.item {
            Item::FileProcessing(item) => item.files.len(),
            _ => 0,
        },
        Event::FileProcessingUpdated(e) => usize::from(e.status == FileStatus::Processing),
        _ => 0,
    });
    let caused = (turns, tools, moments, files.sum::<usize>());
    let asked = (
        effects(|effect| matches!(effect, Effect::CallModel { .. })),
        effects(|effect| matches!(effect, Effect::CallTool { .. })),
        effects(|effect| matches!(effect, Effect::SetTimer { .. })),
        effects(|effect| matches!(effect, Effect::ReadFile { .. })),
    );
    if caused == asked { Ok(()) } else { Err(format!("{caused:?} events and {asked:?} effects")) }
}
