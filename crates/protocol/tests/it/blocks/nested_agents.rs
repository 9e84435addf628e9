//! Nested agents: the owner of each block under interleaving.

use super::log::{Log, text};
use super::{bare, story};
use serde_json::{Value, json};

/// The owner of each block: its type, `subagent` and `parent_tool_use_id`. An approval has the call that it is about.
fn block_owners(log: &Log) -> Vec<(String, Value, Value)> {
    let starts = bare(log).into_iter().filter(|frame| frame["type"] == "content_block_start");
    starts
        .map(|start| {
            let block = &start["content_block"];
            let kind = block["type"].as_str().unwrap().to_owned();
            (kind, block["subagent"].clone(), block["parent_tool_use_id"].clone())
        })
        .collect()
}

/// The root calls `mid` twice; each calls `leaf`, and their deltas interleave.
fn deep() -> Log {
    let agent = || json!({"kind": "agent"});
    let asked = Log::new().step(1).call("mid", "{}", agent()).call("mid", "{}", agent()).calls(1);
    let asked = asked.result_begins("call_R1").child("call_R1", "mid").step(1).call("leaf", "{}", agent());
    let asked = asked.of("task_R").result_begins("call_R2").child("call_R2", "mid").step(1);
    let asked = asked.call("leaf", "{}", agent()).calls(1).result_begins("call_R4").child("call_R4", "leaf").step(1);
    let asked = asked.of("call_R1").calls(1).result_begins("call_R3").child("call_R3", "leaf").step(1);
    asked.think(&[&["first"]]).of("call_R4").say(&["second"]).of("call_R3").say(&["first"])
}

#[test]
fn every_block_names_its_agent_and_its_parent_call() {
    let mid = |call: &str| (json!("mid"), json!(call));
    let leaf = |call: &str| (json!("leaf"), json!(call));
    let root = (Value::Null, Value::Null);
    let of = |kind: &str, (agent, call): (Value, Value)| (kind.to_owned(), agent, call);
    assert_eq!(
        block_owners(&deep()),
        [
            of("tool_use", root.clone()),
            of("tool_use", root),
            of("tool_use", mid("call_R1")),
            of("tool_use", mid("call_R2")),
            of("thinking", leaf("call_R3")),
            of("text", leaf("call_R4")),
            of("text", leaf("call_R3")),
        ]
    );
    let ended = deep().of("call_R3").done(1).completed().of("call_R1").result_ends("call_R3", 1, json!({}));
    assert_eq!(block_owners(&ended)[7..], [of("tool_result", mid("call_R1"))]);
    let last = bare(&ended).into_iter().rfind(|frame| frame["type"] == "content_block_start").unwrap();
    assert_eq!((&last["content_block"]["content"], &last["content_block"]["name"]), (&json!("first"), &json!("leaf")));
    let finals = bare(&ended).iter().filter(|frame| frame["is_final"] == true).count();
    assert_eq!(finals, 0, "only the root's last word is the answer");
}

#[test]
fn a_nested_approval_names_the_nested_call_and_its_result_belongs_to_the_leaf() {
    let log = deep().of("call_R3").call("execute_trade", "{}", json!({"gate": "always"})).calls(1);
    let number = 8;
    let call = format!("call_R{number}");
    let log = log.ask(&call).result(&call, &[text("done")], json!({}));
    let told = story(&log);
    let asked = told.iter().position(|line| line.contains("approval_request")).unwrap();
    assert!(told[asked].ends_with(&format!("tool_use_id={call} approval_key=apr_R{number}")), "{}", told[asked]);
    assert!(told[asked + 1].starts_with("delta") && told[asked + 2].starts_with("stop"), "{told:#?}");
    assert_eq!(
        block_owners(&log).last(),
        Some(&("tool_result".to_owned(), json!("leaf"), json!("call_R3"))),
        "{told:#?}"
    );
}

#[test]
fn a_handoff_inside_a_sub_agent_changes_the_agent_name() {
    let log = Log::new().step(1).call("mid", "{}", json!({"kind": "agent"})).calls(1).result_begins("call_R1");
    let log = log.child("call_R1", "mid").step(1).say(&["I hand over."]).done(1);
    let log = log.event(json!({"type": "task.agent.updated", "agent": "heir", "from": "mid"})).step(2).say(&["Mine."]);
    let texts: Vec<Value> = block_owners(&log).into_iter().skip(1).map(|(_, agent, _)| agent).collect();
    assert_eq!(texts, ["mid", "heir"]);
}
