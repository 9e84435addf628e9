//! A run without a world: inputs in, the story of its records out.

use machine::{CancelRun, Ctx, Effect, EffectId, Input, Out, RunState, outstanding, step};
use model::block::{Block, ImageBlock, ImageUrl, Object, Part, TextBlock};
use model::command::Start;
use model::definition::{Agent, Definitions, Tool};
use model::delta::{ModelDelta, ModelEnd, ModelEvent, ModelFailure, ModelItem};
use model::event::{Actor, CancelMode, DisplayMode, ErrorInfo, Event, StopReason};
use model::item::{CallKind, Gate, Item};
use model::record::{Draft, OnCrash};
use model::thread::ThreadFold;
use model::tool::{ToolEvent, ToolOutput, ToolSpec};
use model::usage::Usage;
use model::{Epoch, Record, TaskId, ThreadId, UserId};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

pub(crate) struct Sim {
    pub(crate) run: RunState,
    pub(crate) drafts: Vec<Draft>,
    /// What was asked for and has not ended, kept apart from the machine.
    pub(crate) asked: BTreeSet<EffectId>,
    pub(crate) tools: Vec<EffectId>,
    pub(crate) model: Option<EffectId>,
    now: u64,
}

pub(crate) fn run_id() -> TaskId {
    TaskId::mint(Uuid::from_u128(0xabc))
}

pub(crate) fn definitions() -> Definitions {
    let tool = |name: &str| Tool {
        spec: ToolSpec { name: name.to_owned(), description: String::new(), parameters: serde_json::json!({}) },
        kind: CallKind::Tool,
        display_name: Some("Weather".to_owned()),
        gate: Gate::Never,
        idempotent: false,
        on_crash: OnCrash::Unknown,
        timeout_ms: None,
    };
    let agent = Agent {
        name: "demo".to_owned(),
        models: vec!["scripted/demo".to_owned()],
        tools: vec!["get_weather".to_owned()],
        ..Agent::default()
    };
    Definitions {
        agents: [("demo".to_owned(), agent)].into(),
        tools: [("get_weather".to_owned(), tool("get_weather")), ("other".to_owned(), tool("other"))].into(),
        ..Definitions::default()
    }
}

impl Sim {
    pub(crate) fn new() -> Self {
        Self::with(definitions())
    }

    pub(crate) fn with(definitions: Definitions) -> Self {
        let (user, thread) = (UserId::from("local"), ThreadId::from("thr_1"));
        let run = RunState::new(user, thread, Arc::new(definitions), ThreadFold::default(), None);
        Self { run, drafts: Vec::new(), asked: BTreeSet::new(), tools: Vec::new(), model: None, now: 1_000 }
    }

    pub(crate) fn started() -> Self {
        let mut sim = Self::new();
        sim.start("hello");
        sim
    }

    pub(crate) fn start(&mut self, text: &str) {
        let start = Start {
            task_id: run_id(),
            agent: "demo".to_owned(),
            input: vec![Part::text(text)],
            previous: None,
            tools: Vec::new(),
            metadata: Object::new(),
            display_mode: DisplayMode::Agent,
            client: None,
        };
        self.input(Input::Start(Box::new(start)));
    }

    pub(crate) fn input(&mut self, input: Input) {
        self.now += 1;
        if let Input::Model { id, event: ModelEvent::End(_) | ModelEvent::Failed(_) }
        | Input::Tool { id, event: ToolEvent::End(_) } = &input
        {
            self.asked.remove(id);
        }
        let mut out = Out::default();
        step(&mut self.run, input, Ctx { now: self.now }, &mut out);
        for effect in out.effects {
            match effect {
                Effect::CallModel { id, .. } => {
                    self.asked.insert(id.clone());
                    self.model = Some(id);
                }
                Effect::CallTool { id, .. } => {
                    self.asked.insert(id.clone());
                    self.tools.push(id);
                }
                Effect::Arm { id, .. } => {
                    self.asked.insert(EffectId::Timer(id));
                }
                Effect::Abort(id) => {
                    self.asked.remove(&id);
                }
                Effect::CallHook { .. } => unreachable!("nothing has a hook"),
            }
        }
        self.drafts.extend(out.drafts);
        if self.run.fold.is_over() {
            self.asked.clear();
        }
        let now: BTreeSet<EffectId> = outstanding(&self.run).into_iter().collect();
        assert_eq!(now, self.asked, "outstanding = asked minus ended");
        assert_eq!(self.run.fold.misfits, 0, "the machine's own records fit: {:?}", self.drafts.last());
    }

    pub(crate) fn delta(&mut self, delta: ModelDelta) {
        let id = self.model.clone().expect("a model was asked");
        self.input(Input::Model { id, event: ModelEvent::Delta(delta) });
    }

    pub(crate) fn say(&mut self, slot: u32, pieces: &[&str]) {
        for piece in pieces {
            self.delta(ModelDelta::Text { slot, part: 0, text: (*piece).to_owned(), logprobs: None });
        }
    }

    pub(crate) fn think(&mut self, slot: u32, part: u32, pieces: &[&str]) {
        for piece in pieces {
            self.delta(ModelDelta::Reasoning { slot, part, text: (*piece).to_owned() });
        }
    }

    pub(crate) fn call(&mut self, slot: u32, name: &str, pieces: &[&str]) {
        let item = ModelItem::ToolCall { name: name.to_owned(), provider_call_id: None };
        self.delta(ModelDelta::Started { slot, item });
        for piece in pieces {
            self.delta(ModelDelta::Arguments { slot, text: (*piece).to_owned() });
        }
    }

    pub(crate) fn done(&mut self, slot: u32) {
        self.delta(ModelDelta::Done { slot, raw: None });
    }

    pub(crate) fn end(&mut self, stop: StopReason) {
        let id = self.model.take().expect("a model was asked");
        let usage = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
        let end = ModelEnd { stop, usage, model: None, service_tier: None };
        self.input(Input::Model { id, event: ModelEvent::End(end) });
    }

    pub(crate) fn fail(&mut self) {
        let id = self.model.take().expect("a model was asked");
        let error = ErrorInfo { retryable: Some(true), ..ErrorInfo::new("provider_error", "down") };
        self.input(Input::Model { id, event: ModelEvent::Failed(ModelFailure { error, retry_after_ms: None }) });
    }

    pub(crate) fn weather_result(&mut self) {
        let id = self.tools.remove(0);
        let text = r#"{"temperature":"15C","condition":"Sunny"}"#;
        let image = ImageBlock { image_url: ImageUrl { url: "data:image/png;base64,iV".to_owned() }, id: None };
        let output = ToolOutput {
            block_list: vec![Block::Text(TextBlock::new(text)), Block::Image(image)],
            ..ToolOutput::default()
        };
        self.input(Input::Tool { id, event: ToolEvent::End(output) });
    }

    pub(crate) fn cancel(&mut self) {
        self.input(Input::Cancel(CancelRun { mode: CancelMode::Immediate, by: Actor::User }));
    }

    /// The process dies and another one folds the log.
    pub(crate) fn crash(&mut self) {
        let mut replay = model::thread::Replay::default();
        for record in self.records() {
            replay.push(&record);
        }
        let Some(fold) = replay.run else { return };
        let definitions = Arc::clone(&self.run.definitions);
        let (user, thread) = (self.run.user.clone(), self.run.thread.clone());
        self.run = RunState::new(user, thread, definitions, replay.thread, Some(fold));
        self.asked = outstanding(&self.run).into_iter().collect();
        self.tools.clear();
        self.model = None;
        self.input(Input::Recovered);
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let seal = |draft: &Draft| Record::seal(&self.run.thread, &run_id(), Epoch(1), draft.clone());
        self.drafts.iter().map(seal).collect()
    }

    /// One word or two per record, as the reference sequences write them.
    pub(crate) fn story(&self) -> Vec<String> {
        self.drafts.iter().map(|draft| line(&draft.event)).collect()
    }
}

fn line(event: &Event) -> String {
    let record = serde_json::to_value(event).expect("an event has a JSON text");
    let kind = record["type"].as_str().unwrap_or_default().trim_start_matches("task.").to_owned();
    let suffix = run_id().suffix().to_owned();
    let name = |id: &str| id.replace(&suffix, "R");
    match event {
        Event::StepStarted(e) => format!("step.started {} {}", e.step, e.attempt),
        Event::StepDone(e) => format!("step.done {} {}", e.step, record_str(&record, "stop_reason")),
        Event::ItemAdded(e) => format!("item+ {}", name(e.item.id().as_str())),
        Event::ItemDone(e) => {
            let status = record["item"]["status"].as_str().unwrap_or_default();
            let why = record["item"]["reason"].as_str().map(|why| format!(" {why}")).unwrap_or_default();
            let blocks = if matches!(e.item, Item::ToolResult(_)) {
                e.item.blocks().len().to_string() + " "
            } else {
                String::new()
            };
            format!("item- {} {blocks}{status}{why}", name(e.item.id().as_str()))
        }
        Event::TextDelta(e) => format!("text.delta {:?}", e.delta),
        Event::TextDone(e) => format!("text.done {:?}", e.item.block().text()),
        Event::ToolStarted(e) => format!("tool.started {}", name(e.call_id.as_str())),
        Event::AnnotationAdded(e) => format!("annotation {}", serde_json::to_string(&e.annotation).unwrap_or_default()),
        Event::Failed(e) => format!("failed {}", e.error.code),
        Event::Incomplete(_) => format!("incomplete {}", record_str(&record, "reason")),
        _ => kind,
    }
}

fn record_str(record: &serde_json::Value, key: &str) -> String {
    record[key].as_str().unwrap_or_default().to_owned()
}
