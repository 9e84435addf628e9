//! Messages that are read later, and runs that have no record.

use super::{VERSIONS, parse_frames};
use crate::responses::log::{Log, run, thread};
use crate::responses::scenario_logs as scenarios;
use model::record::RecordDraft;
use model::{Epoch, Record, Seq};
use protocol::ui_stream::{UiRunMessages, UiVersion, ui_cancelled_frames};
use serde_json::{Value, json};

#[test]
fn a_run_is_the_users_message_and_the_answer() {
    let mut messages = UiRunMessages::new(run(), UiVersion::Six);
    scenarios::trade().records.iter().for_each(|record| messages.read_record(record));
    let messages = serde_json::to_value(messages.into_messages()).unwrap();
    let answer = messages.as_array().unwrap().last().unwrap();
    assert_eq!((&answer["id"], &answer["role"]), (&json!("task_R"), &json!("assistant")));
    let parts = answer["parts"].as_array().unwrap();
    let kinds: Vec<&Value> = parts.iter().map(|part| &part["type"]).collect();
    assert_eq!(kinds, ["step-start", "text", "dynamic-tool"]);
    let order = json!({"symbol": "VNM", "quantity": 100});
    let waiting = (&json!("approval-requested"), &json!({"id": "apr_R2"}), &order);
    assert_eq!((&parts[2]["state"], &parts[2]["approval"], &parts[2]["input"]), waiting);
}

#[test]
fn a_decided_approval_is_what_the_sdk_accepts() {
    let approval = |log: &Log, version: UiVersion| {
        let mut messages = UiRunMessages::new(run(), version);
        log.records.iter().for_each(|record| messages.read_record(record));
        let answer = serde_json::to_value(messages.into_messages().pop()).unwrap();
        let part = answer["parts"].as_array().unwrap().iter().find(|part| part["toolCallId"] == "call_R2").cloned();
        let part = part.unwrap();
        (part["state"].as_str().unwrap().to_owned(), part["approval"].clone())
    };
    let mut running = scenarios::trade();
    running.resume("user").decide(2, json!({"type": "approve"}), "user").started(2, scenarios::ORDER);
    for version in VERSIONS {
        for (log, state, expected) in [
            (scenarios::trade_approved(), "output-available", json!({"id": "apr_R2", "approved": true})),
            (
                scenarios::trade_refused("user"),
                "output-denied",
                json!({"id": "apr_R2", "approved": false, "reason": "too risky"}),
            ),
            (scenarios::trade_refused("timeout"), "output-error", Value::Null),
            (scenarios::trade_cancelled(), "output-error", Value::Null),
            (running.clone(), "input-available", Value::Null),
        ] {
            assert_eq!(approval(&log, version), (state.to_owned(), expected), "{version:?}");
        }
    }
}

/// The messages of a run that has one message of the user's, with the ids that a client gave.
fn messages_of(client: &Value) -> Vec<Value> {
    let said =
        json!([{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "/v1/blobs/ab12"}}]);
    let input = json!([{"id": "msg_R0", "role": "user", "content": said}]);
    let mut task = json!({"thread_id": "thr_1", "agent": "demo", "model": "scripted/demo", "input": input});
    task["client"] = client.clone();
    let created = json!({"type": "task.created", "task_id": "task_R", "task": task});
    let event = serde_json::from_value(created).unwrap();
    let draft = RecordDraft { seq: Seq(1), at: 1, event, private: None };
    let mut messages = UiRunMessages::new(run(), UiVersion::Six);
    messages.read_record(&Record::seal(&thread(), &run(), Epoch(1), draft));
    messages.into_messages().iter().map(|message| serde_json::to_value(message).unwrap()).collect()
}

#[test]
fn the_users_message_has_the_id_that_the_client_gave() {
    let parts = json!([
        {"type": "text", "text": "Look."}, {"type": "file", "mediaType": "image/*", "url": "/v1/blobs/ab12"},
    ]);
    for (client, id) in [
        (json!({"protocol": "ui-stream", "thread_id": "c1", "message_ids": ["u1", "u2"]}), "u2"),
        (json!({"protocol": "ag-ui", "thread_id": "c1", "message_ids": ["u1"]}), "msg_R0"),
        (Value::Null, "msg_R0"),
    ] {
        let messages = messages_of(&client);
        assert_eq!((messages.len(), &messages[0]["id"], &messages[0]["parts"]), (2, &json!(id), &parts));
    }
}

#[test]
fn a_run_without_a_record_has_no_message() {
    assert_eq!(UiRunMessages::new(run(), UiVersion::Six).into_messages(), []);
}

#[test]
fn a_run_that_was_cancelled_before_it_started_ends_like_any_other() {
    for version in VERSIONS {
        let chunks = parse_frames(&ui_cancelled_frames(version, &run()));
        let kinds: Vec<&str> = chunks.iter().filter_map(|chunk| chunk["type"].as_str()).collect();
        let expected = ["start", "message-metadata", "abort", "finish"];
        assert_eq!(kinds, expected[..if version == UiVersion::Seven { 4 } else { 3 }]);
    }
}
