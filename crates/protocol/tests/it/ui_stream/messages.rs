//! Messages that are read later, and runs that have no record.

use super::{VERSIONS, parse_frames};
use crate::responses::log::run;
use crate::responses::scenario_logs as scenarios;
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
