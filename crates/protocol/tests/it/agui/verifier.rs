//! The rules about the order of events, as the client of 1.0 checks them. What only its draft checks is checked, too.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Verifier {
    /// The thread and the id of the run that is active.
    active: Option<(String, String)>,
    thread: Option<String>,
    /// Whether the last run finished: one error may follow.
    may_fail: bool,
    run: RunRules,
    is_started: bool,
}

/// What is open in a run. The state of a run ends with it.
#[derive(Default)]
struct RunRules {
    open: BTreeSet<(&'static str, String)>,
    steps: BTreeSet<(Option<String>, String)>,
    subagents: BTreeSet<String>,
    known_subagents: BTreeSet<String>,
    /// Who opened a message, a call or a reasoning: the sub-agent, or the root.
    owners: BTreeMap<(&'static str, String), Option<String>>,
}

fn text(event: &Value, name: &str) -> Option<String> {
    let value = event.get(name)?;
    Some(value.as_str().unwrap_or_else(|| panic!("{name} of {event}")).to_owned())
}

fn needed(event: &Value, name: &str) -> String {
    text(event, name).unwrap_or_else(|| panic!("{event} has no {name}"))
}

/// Checks all events of a stream that ends with a run.
pub(super) fn verify(events: &[Value]) {
    let mut verifier = Verifier::default();
    events.iter().for_each(|event| verifier.check(event));
    verifier.check_end();
}

impl Verifier {
    pub(super) fn check_end(&self) {
        assert!(self.active.is_none(), "the stream ends in a run");
    }

    pub(super) fn check(&mut self, event: &Value) {
        let kind = needed(event, "type");
        assert!(self.is_started || kind == "RUN_STARTED" || kind == "RUN_ERROR", "the first event is {event}");
        self.is_started = true;
        match kind.as_str() {
            "RUN_STARTED" => self.start(event),
            "RUN_FINISHED" => self.finish(event),
            "RUN_ERROR" => {
                assert!(self.active.is_some() || self.may_fail, "an error outside a run: {event}");
                needed(event, "message");
                (self.active, self.may_fail) = (None, false);
            }
            _ => {
                assert!(self.active.is_some(), "outside a run: {event}");
                self.run.check(&kind, event);
            }
        }
    }

    fn start(&mut self, event: &Value) {
        assert!(self.active.is_none(), "a run in a run: {event}");
        let (thread, run) = (needed(event, "threadId"), needed(event, "runId"));
        assert_eq!(self.thread.get_or_insert_with(|| thread.clone()), &thread);
        assert_ne!(text(event, "parentRunId").as_ref(), Some(&run), "a run is no parent of itself");
        (self.active, self.run, self.may_fail) = (Some((thread, run)), RunRules::default(), false);
        let messages = event["input"]["messages"].as_array().into_iter().flatten();
        self.run.seed_owners(messages);
    }

    fn finish(&mut self, event: &Value) {
        let ids = (needed(event, "threadId"), needed(event, "runId"));
        assert_eq!(self.active.take(), Some(ids), "another run: {event}");
        self.may_fail = true;
        let RunRules { open, steps, subagents, .. } = &self.run;
        assert!(open.is_empty() && steps.is_empty() && subagents.is_empty(), "{open:?} {steps:?} {subagents:?} open");
        let mut interrupts = BTreeSet::new();
        for interrupt in event["outcome"]["interrupts"].as_array().into_iter().flatten() {
            assert!(interrupts.insert(needed(interrupt, "id")), "twice: {interrupt}");
        }
        assert_eq!(event["outcome"]["type"] == "interrupt", !interrupts.is_empty(), "{event}");
    }
}

impl RunRules {
    fn check(&mut self, kind: &str, event: &Value) {
        let owner = text(event, "subagentRunId");
        let owner = owner.as_deref();
        match kind {
            "TEXT_MESSAGE_START" => self.open("message", &needed(event, "messageId"), owner),
            "TEXT_MESSAGE_CONTENT" => self.continues("message", &needed(event, "messageId"), owner),
            "TEXT_MESSAGE_END" => self.close("message", &needed(event, "messageId"), owner),
            "TOOL_CALL_START" => {
                if let Some(parent) = text(event, "parentMessageId") {
                    self.check_owner("message", &parent, owner);
                }
                self.open("call", &needed(event, "toolCallId"), owner);
            }
            "TOOL_CALL_ARGS" => self.continues("call", &needed(event, "toolCallId"), owner),
            "TOOL_CALL_END" => self.close("call", &needed(event, "toolCallId"), owner),
            "REASONING_START" => self.open("span", &needed(event, "messageId"), owner),
            "REASONING_END" => self.close("span", &needed(event, "messageId"), owner),
            "REASONING_MESSAGE_START" => self.open("reasoning", &needed(event, "messageId"), owner),
            "REASONING_MESSAGE_CONTENT" => self.continues("reasoning", &needed(event, "messageId"), owner),
            "REASONING_MESSAGE_END" => self.close("reasoning", &needed(event, "messageId"), owner),
            "STEP_STARTED" => {
                assert!(self.steps.insert((owner.map(str::to_owned), needed(event, "stepName"))), "open: {event}");
            }
            "STEP_FINISHED" => {
                assert!(self.steps.remove(&(owner.map(str::to_owned), needed(event, "stepName"))), "not open: {event}");
            }
            "SUBAGENT_STARTED" => self.start_subagent(event, owner.expect("an id")),
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                assert!(self.subagents.remove(owner.expect("an id")), "not active: {event}");
            }
            "MESSAGES_SNAPSHOT" => self.seed_owners(event["messages"].as_array().expect("a list").iter()),
            "ACTIVITY_SNAPSHOT" => {
                let activity = ("activity", needed(event, "messageId"));
                if event["replace"] != false || !self.owners.contains_key(&activity) {
                    self.owners.insert(activity, owner.map(str::to_owned));
                }
            }
            "ACTIVITY_DELTA" => self.check_owner("activity", &needed(event, "messageId"), owner),
            "TOOL_CALL_RESULT" | "STATE_SNAPSHOT" | "STATE_DELTA" | "RAW" | "CUSTOM" => {}
            other => panic!("{other} is no event of ours"),
        }
    }

    fn start_subagent(&mut self, event: &Value, id: &str) {
        needed(event, "name");
        assert!(self.known_subagents.insert(id.to_owned()), "started twice: {event}");
        if let Some(parent) = text(event, "parentSubagentRunId") {
            assert!(self.known_subagents.contains(&parent), "unknown parent: {event}");
        }
        self.subagents.insert(id.to_owned());
    }

    fn open(&mut self, kind: &'static str, id: &str, owner: Option<&str>) {
        self.check_owner(kind, id, owner);
        self.owners.insert((kind, id.to_owned()), owner.map(str::to_owned));
        assert!(self.open.insert((kind, id.to_owned())), "the {kind} {id} is open");
    }

    fn continues(&self, kind: &'static str, id: &str, owner: Option<&str>) {
        assert!(self.open.contains(&(kind, id.to_owned())), "the {kind} {id} is not open");
        self.check_owner(kind, id, owner);
    }

    fn close(&mut self, kind: &'static str, id: &str, owner: Option<&str>) {
        self.check_owner(kind, id, owner);
        assert!(self.open.remove(&(kind, id.to_owned())), "the {kind} {id} is not open");
    }

    fn check_owner(&self, kind: &'static str, id: &str, owner: Option<&str>) {
        let known = self.owners.get(&(kind, id.to_owned()));
        assert!(
            owner.is_none() || known.is_none_or(|known| known.as_deref() == owner),
            "the {kind} {id} is not of {owner:?}"
        );
    }

    fn seed_owners<'a>(&mut self, messages: impl Iterator<Item = &'a Value>) {
        for message in messages {
            let (id, owner) = (needed(message, "id"), text(message, "subagentRunId"));
            let kind = match message["role"].as_str() {
                Some("reasoning") => "reasoning",
                Some("activity") => "activity",
                _ => "message",
            };
            self.owners.insert((kind, id), owner.clone());
            for call in message["toolCalls"].as_array().into_iter().flatten() {
                self.owners.insert(("call", needed(call, "id")), owner.clone());
            }
        }
    }
}
