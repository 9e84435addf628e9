//! Answers in this protocol: the demo's scenarios chunk by chunk, and the laws over random logs.

use super::accumulator::{Collected, collect, read};
use super::event_lines;
use crate::responses::log::{Log, run};
use crate::responses::scenario_logs;
use crate::resumes::{Place, frames, hold, runs};
use model::event::Event;
use model::ports::{Frames, Projection as _};
use model::{Record, TaskId};
use model_testing::{DEFAULT_SEEDS, test_seeds};
use protocol::chat::{ChatProjection, StreamUsage};
use protocol::stateless::is_client_tool_pause;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn bytes(records: &[Record], run: TaskId, segment: u32) -> Vec<u8> {
    frames(Box::new(ChatProjection::new(run, segment, StreamUsage::Included)), records)
}

fn segment(log: &Log, number: u32) -> Vec<Value> {
    read(&bytes(&log.records, run(), number))
}

fn answer(records: &[Record], run: TaskId, segment: u32) -> ChatProjection {
    let mut answer = ChatProjection::new(run, segment, StreamUsage::Included);
    let mut out = Frames::default();
    records.iter().for_each(|record| answer.project(record, &mut out));
    assert_eq!(answer.is_finished(), out.is_finished());
    answer
}

/// A chunk in short.
fn line(chunk: &Value) -> String {
    match chunk["choices"].get(0) {
        Some(choice) if choice["finish_reason"].is_null() => choice["delta"].to_string(),
        Some(choice) => format!("finish {}", choice["finish_reason"].as_str().unwrap()),
        None => format!("usage {}", chunk["usage"]["total_tokens"]),
    }
}

#[track_caller]
fn assert_lines(log: &Log, number: u32, lines: &[&str]) {
    let chunks = segment(log, number);
    let told: Vec<String> = chunks.iter().map(line).collect();
    assert_eq!(told, lines, "\n{}", told.join("\n"));
    collect(&chunks).unwrap();
}

#[test]
fn reasoning_and_text_are_streamed_and_server_tools_are_not() {
    let cited = r#"{"annotations":[{"type":"url_citation","url_citation":{"end_index":60,"start_index":56,"title":"[1]","url":"headwater:/threads/thr_1/references/1"}}]}"#;
    assert_lines(
        &scenario_logs::weather(),
        1,
        &[
            r#"{"content":null,"role":"assistant"}"#,
            r#"{"reasoning_content":"Let me"}"#,
            r#"{"reasoning_content":" see."}"#,
            r#"{"reasoning_content":"\n\n"}"#,
            r#"{"reasoning_content":"A tool"}"#,
            r#"{"reasoning_content":" knows."}"#,
            r#"{"content":"The weather in Paris is sunny "}"#,
            r#"{"content":"with a temperature of 15C.[^"}"#,
            r#"{"content":"1]"}"#,
            cited,
            "finish stop",
            "usage 30",
        ],
    );
    let chunk = &segment(&scenario_logs::weather(), 1)[0];
    let envelope = json!({"id": "chatcmpl-R", "object": "chat.completion.chunk", "created": 1_710_000_000, "model": "demo",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": null}, "logprobs": null, "finish_reason": null}],
        "usage": null});
    assert_eq!(*chunk, envelope);
    let without =
        read(&frames(Box::new(ChatProjection::new(run(), 1, StreamUsage::Omitted)), &scenario_logs::weather().records));
    assert!(without.iter().all(|chunk| chunk.get("usage").is_none()), "nobody asked what it costs");
    assert_eq!(line(without.last().unwrap()), "finish stop");
}

#[test]
fn the_completion_equals_the_accumulated_chunks() {
    let log = scenario_logs::weather();
    let object = answer(&log.records, run(), 1).object();
    assert_eq!((&object["object"], &object["created"]), (&json!("chat.completion"), &json!(1_710_000_000)));
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 4}});
    assert_eq!(object["usage"], usage);
    assert_eq!(collect(&segment(&log, 1)), Ok(Collected::Completion(object)));
}

#[test]
fn messages_between_tool_calls_form_one_text() {
    let object = answer(&scenario_logs::trade_approved().records, run(), 1).object();
    let message = &object["choices"][0]["message"];
    assert_eq!(message["content"], "I will place the order.\n\nDone: bought VNM.[^1]");
    let place = &message["annotations"][0]["url_citation"];
    let cited: String = message["content"]
        .as_str()
        .unwrap()
        .chars()
        .skip(usize::try_from(place["start_index"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(cited, "[^1]", "places are counted in the whole text");
}

/// The schema of this protocol cites addresses only.
#[test]
fn a_text_that_cites_files_is_whole_and_without_annotations() {
    let log = scenario_logs::cited_files();
    let lines = [r#"{"content":null,"role":"assistant"}"#, r#"{"content":"15C."}"#, "finish stop", "usage 15"];
    assert_lines(&log, 1, &lines);
    let object = answer(&log.records, run(), 1).object();
    let message = &object["choices"][0]["message"];
    assert_eq!((&message["content"], message.get("annotations")), (&json!("15C."), None));
}

#[test]
fn an_answer_stays_open_during_an_approval() {
    let open = segment(&scenario_logs::trade(), 1);
    assert!(matches!(collect(&open), Ok(Collected::Open(_))), "{open:?}");
    assert!(segment(&scenario_logs::trade_approved(), 1).starts_with(&open));
    assert_eq!(segment(&scenario_logs::trade_approved(), 2), [] as [Value; 0], "a decision begins nothing");
}

#[test]
fn a_client_tool_ends_the_answer_and_its_result_starts_the_next() {
    let log = scenario_logs::client();
    assert_lines(
        &log,
        1,
        &[
            r#"{"content":null,"role":"assistant"}"#,
            r#"{"tool_calls":[{"function":{"arguments":"","name":"pick"},"id":"call_R1","index":0,"type":"function"}]}"#,
            r#"{"tool_calls":[{"function":{"arguments":"{}"},"index":0}]}"#,
            "finish tool_calls",
            "usage 15",
        ],
    );
    let object = answer(&log.records, run(), 1).object();
    let call = json!({"id": "call_R1", "type": "function", "function": {"name": "pick", "arguments": "{}"}});
    let message = &object["choices"][0]["message"];
    assert_eq!((&message["tool_calls"], &message["content"]), (&json!([call]), &Value::Null));
    let second = answer(&log.records, run(), 2).object();
    assert_eq!(
        (&second["id"], &second["choices"][0]["message"]["content"]),
        (&json!("chatcmpl-R_2"), &json!("Red, then."))
    );
}

#[test]
fn limits_have_a_finish_reason_and_failures_are_errors() {
    let finish = |log: &Log| answer(&log.records, run(), 1).object()["choices"][0]["finish_reason"].clone();
    assert_eq!(finish(&scenario_logs::limit()), "length");
    let mut filtered = Log::new();
    filtered.step().cut_message("msg_R1", &["Here is"], "limit").step_done("content_filter");
    filtered.ended("incomplete", json!({"reason": "content_filter"}));
    assert_eq!(finish(&filtered), "content_filter");
    let error = |log: &Log| match collect(&segment(log, 1)) {
        Ok(Collected::Error(error)) => {
            format!("{} {}", error["type"].as_str().unwrap(), error["code"].as_str().unwrap())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(error(&scenario_logs::fail("provider_error")), "server_error run_failed");
    assert_eq!(error(&scenario_logs::fail("overloaded")), "server_error overloaded");
    assert_eq!(error(&scenario_logs::fail("rate_limited")), "rate_limit_error rate_limited");
    assert_eq!(error(&scenario_logs::cancel()), "server_error cancelled");
}

#[test]
fn a_refusal_is_separate_from_the_text() {
    let mut log = Log::new();
    log.step();
    let item =
        json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": [], "status": "in_progress"});
    log.add(json!({"type": "task.output_item.added", "output_index": 0, "item": item}));
    let block = json!({"type": "text", "text": "I will not.", "refusal": true});
    log.add(json!({"type": "task.text.done", "item_id": "msg_R1", "output_index": 0, "block_index": 0, "item": block}));
    let item =
        json!({"type": "message", "id": "msg_R1", "role": "assistant", "block_list": [block], "status": "completed"});
    log.add(json!({"type": "task.output_item.done", "output_index": 0, "item": item})).step_done("stop").completed();
    let object = answer(&log.records, run(), 1).object();
    let choice = &object["choices"][0];
    assert_eq!(
        (&choice["message"]["refusal"], &choice["message"]["content"], &choice["finish_reason"]),
        (&json!("I will not."), &Value::Null, &json!("stop"))
    );
    assert_eq!(collect(&segment(&log, 1)), Ok(Collected::Completion(object)));
}

#[test]
fn our_own_ingest_accepts_the_stream() {
    let story = |log: &Log| {
        let mut bytes = bytes(&log.records, run(), 1);
        bytes.extend_from_slice(b"data: [DONE]\n\n");
        event_lines::tell(&event_lines::read([bytes.as_slice()]))
    };
    let told = story(&scenario_logs::weather());
    assert!(told.starts_with("0 reasoning\n0.0 thinks Let me see.\n\nA tool knows."), "{told}");
    assert!(told.contains("says The weather in Paris is sunny with a temperature of 15C.[^1]"), "{told}");
    assert!(told.contains("end Stop 20/8/0/10/4 demo"), "{told}");
    let told = story(&scenario_logs::client());
    assert!(told.contains("0 call pick call_R1\n0 with {}"), "{told}");
    assert!(told.contains("end ToolCalls 10/4/0/5/2 demo"), "{told}");
    assert!(story(&scenario_logs::fail("rate_limited")).contains("failed rate_limited true"));
}

#[test]
fn laws_4_and_5_hold() {
    for segment in 1..=3 {
        hold(Place::Count, |_, records| {
            Box::new(ChatProjection::new(records[0].run.clone(), segment, (segment == 1).into()))
        });
    }
}

#[test]
fn law_6_the_client_agrees() {
    let mut reasons = BTreeSet::new();
    for seed in test_seeds() {
        for (_, records) in runs(seed) {
            let run = records[0].run.clone();
            let pauses =
                u32::try_from(records.iter().filter(|record| is_client_tool_pause(record.event())).count()).unwrap();
            let cut = records.iter().any(|record| matches!(record.event(), Event::Recovered(_)));
            for segment in 1..=pauses + 2 {
                let at = format!("SEED={seed}, {run}, segment {segment}");
                let answer = answer(&records, run.clone(), segment);
                match collect(&read(&bytes(&records, run.clone(), segment))).unwrap_or_else(|why| panic!("{at}: {why}"))
                {
                    Collected::Nothing => assert!(segment > pauses, "{at}: nothing is told"),
                    Collected::Open(_) => panic!("{at}: no end"),
                    Collected::Error(error) => {
                        assert_eq!(error["message"], answer.failure().unwrap().message, "{at}");
                        reasons.insert("error".to_owned());
                    }
                    Collected::Completion(told) => {
                        reasons.insert(told["choices"][0]["finish_reason"].as_str().unwrap().to_owned());
                        assert!(cut || told == answer.object(), "{at}: {told}\n{}", answer.object());
                    }
                }
            }
        }
    }
    let all = ["content_filter", "error", "length", "stop", "tool_calls"];
    // A seed given by the user need not cover them all.
    if test_seeds().count() >= DEFAULT_SEEDS.count() {
        assert_eq!(reasons, all.map(str::to_owned).into(), "every end was met");
    }
}
