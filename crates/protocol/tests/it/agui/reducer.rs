//! What clients make of the events: a port of the reducer of their package, over JSON.

use serde_json::{Value, json};

/// The messages, the state and the interrupts of a client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Client {
    pub(super) messages: Vec<Value>,
    pub(super) state: Value,
    pub(super) interrupts: Vec<Value>,
}

pub(super) fn reduce(events: &[Value]) -> Client {
    let mut client = Client { state: json!({}), ..Client::default() };
    events.iter().for_each(|event| client.apply(event));
    client
}

fn has_call(message: &Value, id: &Value) -> bool {
    message["toolCalls"].as_array().into_iter().flatten().any(|call| call["id"] == *id)
}

/// A message with the members that the event has.
fn with_members(mut message: Value, event: &Value, names: &[&str]) -> Value {
    for name in names {
        if let Some(value) = event.get(*name) {
            message[*name] = value.clone();
        }
    }
    message
}

fn append(target: &mut Value, delta: &Value) {
    let text = target.as_str().unwrap_or_default().to_owned() + delta.as_str().unwrap();
    *target = text.into();
}

fn merge_metadata(target: &mut Value, event: &Value) {
    for (name, value) in event["metadata"].as_object().into_iter().flatten() {
        target["metadata"][name.as_str()] = value.clone();
    }
}

impl Client {
    fn find(&mut self, id: &Value) -> Option<&mut Value> {
        self.messages.iter_mut().find(|message| message["id"] == *id)
    }

    fn find_call(&mut self, id: &Value) -> Option<&mut Value> {
        let owner = self.messages.iter_mut().find(|message| has_call(message, id))?;
        owner["toolCalls"].as_array_mut()?.iter_mut().find(|call| call["id"] == *id)
    }

    pub(super) fn apply(&mut self, event: &Value) {
        match event["type"].as_str().unwrap() {
            "RUN_STARTED" => {
                for message in event["input"]["messages"].as_array().into_iter().flatten() {
                    if self.find(&message["id"]).is_none() {
                        self.messages.push(message.clone());
                    }
                }
            }
            "RUN_FINISHED" => {
                self.interrupts = event["outcome"]["interrupts"].as_array().cloned().unwrap_or_default();
            }
            "TEXT_MESSAGE_START" => self.start_text(event, event["role"].as_str().unwrap()),
            "REASONING_MESSAGE_START" => self.start_text(event, "reasoning"),
            "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
                let message = self.find(&event["messageId"]).expect("a message");
                append(&mut message["content"], &event["delta"]);
            }
            "TEXT_MESSAGE_END" => merge_metadata(self.find(&event["messageId"]).expect("a message"), event),
            "TOOL_CALL_START" => self.start_call(event),
            "TOOL_CALL_ARGS" => {
                let call = self.find_call(&event["toolCallId"]).expect("a call");
                append(&mut call["function"]["arguments"], &event["delta"]);
            }
            "TOOL_CALL_RESULT" => self.add_result(event),
            "STATE_SNAPSHOT" => self.state = event["snapshot"].clone(),
            "STATE_DELTA" => patch(&mut self.state, &event["delta"]),
            "ACTIVITY_SNAPSHOT" => self.set_activity(event),
            "ACTIVITY_DELTA" => {
                if let Some(message) = self.find(&event["messageId"]) {
                    message["activityType"] = event["activityType"].clone();
                    patch(&mut message["content"], &event["patch"]);
                }
            }
            "MESSAGES_SNAPSHOT" => self.apply_snapshot(event["messages"].as_array().expect("a list")),
            _ => {}
        }
    }

    fn start_text(&mut self, event: &Value, role: &str) {
        if self.find(&event["messageId"]).is_none() {
            let message = json!({"id": event["messageId"], "role": role, "content": ""});
            self.messages.push(with_members(message, event, &["name", "subagentRunId"]));
        }
    }

    fn start_call(&mut self, event: &Value) {
        if let Some(call) = self.find_call(&event["toolCallId"]) {
            return merge_metadata(call, event);
        }
        let id = event.get("parentMessageId").unwrap_or(&event["toolCallId"]).clone();
        if self.find(&id).is_none() {
            let message = json!({"id": id, "role": "assistant"});
            self.messages.push(with_members(message, event, &["subagentRunId"]));
        }
        let function = json!({"name": event["toolCallName"], "arguments": ""});
        let mut call = json!({"id": event["toolCallId"], "type": "function", "function": function});
        merge_metadata(&mut call, event);
        let message = self.find(&id).unwrap();
        assert_eq!(message["role"], "assistant");
        if message.get("toolCalls").is_none() {
            message["toolCalls"] = json!([]);
        }
        message["toolCalls"].as_array_mut().unwrap().push(call);
    }

    fn add_result(&mut self, event: &Value) {
        let message = json!({
            "id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"],
        });
        let message = with_members(message, event, &["subagentRunId", "metadata"]);
        assert!(self.find(&event["messageId"]).is_none(), "ids of messages are unique: {event}");
        let owner = self.messages.iter().position(|message| has_call(message, &event["toolCallId"]));
        let owner = owner.expect("a result has a call");
        let results = self.messages[owner + 1..].iter().take_while(|message| message["role"] == "tool").count();
        self.messages.insert(owner + 1 + results, message);
    }

    fn set_activity(&mut self, event: &Value) {
        let message = json!({
            "id": event["messageId"], "role": "activity", "activityType": event["activityType"],
            "content": event["content"],
        });
        let message = with_members(message, event, &["subagentRunId"]);
        match self.find(&event["messageId"]) {
            None => self.messages.push(message),
            Some(known) => {
                assert_eq!(known["role"], "activity", "ids of messages are unique: {event}");
                if event["replace"] == true {
                    *known = message;
                }
            }
        }
    }

    /// Messages keep their order; those that the snapshot lacks are dropped, new ones follow. Activities and reasoning are
    /// kept if the snapshot has none of them.
    fn apply_snapshot(&mut self, snapshot: &[Value]) {
        let has_role = |role: &str| snapshot.iter().any(|message| message["role"] == role);
        let keeps_role =
            |role: &Value| (role == "activity" || role == "reasoning") && !has_role(role.as_str().unwrap());
        let before = std::mem::take(&mut self.messages);
        for message in before {
            match snapshot.iter().find(|new| new["id"] == message["id"]) {
                Some(new) => self.messages.push(new.clone()),
                None if keeps_role(&message["role"]) => self.messages.push(message),
                None => {}
            }
        }
        for new in snapshot {
            if self.find(&new["id"]).is_none() {
                self.messages.push(new.clone());
            }
        }
    }
}

fn patch(target: &mut Value, operations: &Value) {
    let patch: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
    json_patch::patch(target, &patch).unwrap_or_else(|error| panic!("{error}: {operations} on {target}"));
}
