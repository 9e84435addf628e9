//! 0.0.59 differs from 1.0 in six ways, and in nothing else.

use super::{random_log, thread_events};
use crate::responses::scenario_logs;
use model::Record;
use model_testing::{LogOptions, test_seeds};
use protocol::agui::AgUiVersion;
use serde_json::{Value, json};

/// An event of 1.0 as clients of 0.0.59 get it. Those that have interrupts get an end before an error.
fn in_old_dialect(mut event: Value, has_interrupts: &mut bool) -> Vec<Value> {
    let had_interrupts = *has_interrupts;
    if event["type"] == "RUN_FINISHED" {
        *has_interrupts = event["outcome"]["type"] == "interrupt";
    }
    let members = event.as_object_mut().unwrap();
    members.remove("protocolVersion");
    if let Some(Value::Array(parts)) = members.get("content") {
        let lines = parts.iter().map(|part| match part["text"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("[image {}]", part["source"]["value"].as_str().unwrap()),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        members.insert("content".to_owned(), text.into());
    }
    match event["outcome"]["type"].as_str() {
        Some("cancelled") => {
            let mut error = json!({"type": "RUN_ERROR", "message": "The run was cancelled.", "code": "abort"});
            error["timestamp"] = event["timestamp"].clone();
            if let Some(usage) = event.get("usage") {
                error["usage"] = usage.clone();
            }
            let ids = ["timestamp", "threadId", "runId"];
            event.as_object_mut().unwrap().retain(|name, _| ids.contains(&name.as_str()));
            event["type"] = "RUN_FINISHED".into();
            event["result"] = json!({"status": "cancelled"});
            if had_interrupts { vec![event, error] } else { vec![error] }
        }
        Some("success") => {
            event["outcome"].as_object_mut().unwrap().remove("pendingToolCallIds");
            vec![event]
        }
        Some("interrupt") => {
            let interrupts = event["outcome"]["interrupts"].as_array_mut().unwrap();
            for interrupt in interrupts.iter_mut() {
                assert!(interrupt.as_object_mut().unwrap().remove("expiresAt").is_some());
            }
            let value = match interrupts.as_slice() {
                [only] => only.clone(),
                several => json!({ "interrupts": several }),
            };
            let at = event["timestamp"].clone();
            vec![json!({"type": "CUSTOM", "timestamp": at, "name": "on_interrupt", "value": value}), event]
        }
        _ => vec![event],
    }
}

fn check(name: &str, records: &[Record]) {
    let new = thread_events(AgUiVersion::V1, records);
    let mut has_interrupts = false;
    let expected = new.into_iter().flat_map(|event| in_old_dialect(event, &mut has_interrupts));
    let expected: Vec<Value> = expected.collect();
    let old = thread_events(AgUiVersion::V0_0_59, records);
    for (old, expected) in old.iter().zip(&expected) {
        assert_eq!(old, expected, "{name}");
    }
    assert_eq!(old.len(), expected.len(), "{name}");
}

#[test]
fn the_old_dialect_differs_as_described() {
    for seed in test_seeds() {
        check(&format!("SEED={seed}"), &random_log(seed, LogOptions::default()));
    }
    check("weather", &scenario_logs::weather().records);
    check("client", &scenario_logs::client().records);
    check("nested", &scenario_logs::nested().records);
    check("cancel", &scenario_logs::cancel().records);
    check("trade, cancelled", &scenario_logs::trade_cancelled().records);
}
