//! Every JSON example of requirement 000: its events read and write unchanged, and fold to the objects that it shows.
//!
//! A fixture is the document's JSON with our comments: lines that begin with `//` say what applies where the document
//! contradicts itself, and are skipped here. The document shows neither the start nor the end of a task, so the start
//! is prepended; and it shows `content`, which no client receives, so the fixtures omit it.

use model::content::ContentPart;
use model::event::{Event, TaskCreated, TaskSpec, TaskStarted};
use model::fold::RunFold;
use model::json::ExactObject;
use model::record::PrivatePayload;
use model::tool::ToolOutput;
use model::{TaskId, reference};

const REASONING: &str = include_str!("fixtures/reasoning.jsonl");
const TOOL_CALL: &str = include_str!("fixtures/tool_call.jsonl");
const TOOL_RESULT: &str = include_str!("fixtures/tool_result.jsonl");
const TOOL_RESULT_PARTIAL: &str = include_str!("fixtures/tool_result_partial.jsonl");
const TOOL_RESULT_AT_ONCE: &str = include_str!("fixtures/tool_result_at_once.jsonl");
const MESSAGE: &str = include_str!("fixtures/message.jsonl");
const SUB_AGENT: &str = include_str!("fixtures/sub_agent.jsonl");
const EMBEDDING: &str = include_str!("fixtures/embedding.jsonl");

const STREAMS: [(&str, &str); 8] = [
    ("reasoning", REASONING),
    ("tool_call", TOOL_CALL),
    ("tool_result", TOOL_RESULT),
    ("tool_result_partial", TOOL_RESULT_PARTIAL),
    ("tool_result_at_once", TOOL_RESULT_AT_ONCE),
    ("message", MESSAGE),
    ("sub_agent", SUB_AGENT),
    ("embedding", EMBEDDING),
];

/// The lines of the document.
fn lines(fixture: &str) -> impl Iterator<Item = &str> {
    fixture.lines().filter(|line| !line.starts_with("//"))
}

/// The same JSON without white space, with its keys in order.
fn compact(fixture: &str) -> String {
    let mut out = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for character in lines(fixture).flat_map(|line| line.chars()) {
        if quoted || !character.is_whitespace() {
            out.push(character);
        }
        quoted = if character == '"' && !escaped { !quoted } else { quoted };
        escaped = character == '\\' && !escaped;
    }
    out
}

fn events(fixture: &str) -> impl Iterator<Item = Event> {
    lines(fixture).map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

/// `task.created` and `task.started`, which the document leaves out.
fn start_events(task_id: &TaskId, parent: Option<TaskId>) -> [Event; 2] {
    let task = TaskSpec {
        thread_id: "thr_1".into(),
        agent: "demo".to_owned(),
        model: "scripted/demo".to_owned(),
        input: Vec::new(),
        parent_task_id: parent,
        previous: None,
        tools: Vec::new(),
        metadata: ExactObject::new(),
        display_mode: Default::default(),
        origin: None,
        client: None,
    };
    let created = TaskCreated { task_id: task_id.clone(), task: Box::new(task) };
    [Event::Created(created), Event::Started(TaskStarted { task_id: task_id.clone() })]
}

/// Folds the streams one after the other; each task starts before its first event.
fn fold(streams: &[&str]) -> RunFold {
    let mut run = RunFold::default();
    let push = |run: &mut RunFold, event: Event| {
        let fit = run.apply_event(run.seq.next(), 5, &event, None);
        assert!(fit.is_ok(), "record {} does not fit: {event:?}", run.seq);
    };
    for event in streams.iter().flat_map(|stream| events(stream)) {
        let task = event.task_id().cloned().expect("an event of a task");
        if run.task(&task).is_none() {
            let parent = run.root().map(|root| root.id.clone());
            for event in start_events(&task, parent) {
                push(&mut run, event);
            }
        }
        push(&mut run, event);
    }
    run
}

/// What requirement 000 shows of an object: the task's name and its output, as JSON in our key order.
fn object_json(run: &RunFold, task: &str) -> String {
    let object = run.task_object(&TaskId::from(task)).expect("the task is there");
    assert_eq!(run.clone().into_task_object(&TaskId::from(task)).as_ref(), Some(&object), "the fold may be used up");
    let output = serde_json::to_string(&object.output).unwrap();
    format!(r#"{{"task_id":"{}","output":{output}}}"#, object.task_id)
}

#[test]
fn every_event_round_trips() {
    for (name, stream) in STREAMS {
        for line in lines(stream) {
            let event: Event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
            assert_eq!(serde_json::to_string(&event).unwrap(), compact(line), "{name}");
        }
    }
}

#[test]
fn the_four_items_fold_to_the_final_state() {
    let run = fold(&[REASONING, TOOL_CALL, TOOL_RESULT, MESSAGE]);
    assert_eq!(object_json(&run, "task_1234xyz"), compact(include_str!("fixtures/task.json")));
    let items = [
        include_str!("fixtures/reasoning.json"),
        include_str!("fixtures/tool_call.json"),
        include_str!("fixtures/tool_result.json"),
        include_str!("fixtures/message.json"),
    ];
    let output = run.task_object(&TaskId::from("task_1234xyz")).unwrap().output;
    assert_eq!(output.len(), items.len());
    for (item, fixture) in output.iter().zip(items) {
        assert_eq!(serde_json::to_string(item).unwrap(), compact(fixture));
        assert_eq!(serde_json::from_str::<model::item::Item>(&compact(fixture)).unwrap(), *item);
    }
}

#[test]
fn a_block_has_three_encodings() {
    let ways = [TOOL_RESULT, TOOL_RESULT_PARTIAL, TOOL_RESULT_AT_ONCE];
    let folded = ways.map(|way| object_json(&fold(&[REASONING, TOOL_CALL, way, MESSAGE]), "task_1234xyz"));
    for folded in folded {
        assert_eq!(folded, compact(include_str!("fixtures/task.json")));
    }
}

#[test]
fn a_sub_agent_is_an_ordinary_task() {
    assert_eq!(object_json(&fold(&[SUB_AGENT]), "call_1234xyz"), compact(include_str!("fixtures/sub_agent.json")));
}

#[test]
fn the_sub_agents_items_are_the_blocks_of_its_result() {
    let run = fold(&[EMBEDDING]);
    assert_eq!(object_json(&run, "task_1234xyz"), compact(include_str!("fixtures/embedding.json")));
    // The child's own stream folds to the same.
    assert_eq!(object_json(&run, "call_1234xyz"), compact(include_str!("fixtures/sub_agent.json")));
}

/// The last event of the embedding has no block_list, and no block is lost.
#[test]
fn a_done_with_only_a_status_keeps_the_blocks() {
    let is_short = |line: &&str| line.contains("task.output_item.done") && line.ends_with(r#""status":"completed"}}"#);
    assert_eq!(lines(EMBEDDING).filter(is_short).filter(|line| !line.contains("block_list")).count(), 1);
    let result = &fold(&[EMBEDDING]).task_object(&TaskId::from("task_1234xyz")).unwrap().output[2];
    assert_eq!(result.blocks().len(), 4);
}

#[test]
fn the_models_content_is_wrapped_and_never_shown() {
    let output: ToolOutput = serde_json::from_str(&compact(include_str!("fixtures/tool_output.json"))).unwrap();
    let content = compact(include_str!("fixtures/content.json"));
    let wrapped = reference::wrap_reference_groups(output.message_content.clone());
    assert_eq!(serde_json::to_string(&wrapped).unwrap(), content);
    assert_eq!(reference::wrap_reference_groups(reference::blocks_to_parts(&output.block_list)), wrapped);

    // With `content` in the private part of its `done`, the model receives it and the object is the same.
    let mut with = fold(&[REASONING, TOOL_CALL]);
    for event in events(TOOL_RESULT) {
        let private = PrivatePayload { content: Some(wrapped.clone()), ..PrivatePayload::default() };
        with.apply_event(with.seq.next(), 5, &event, Some(&private)).unwrap();
    }
    let folded: Vec<ContentPart> = with.root().unwrap().items[2].content.clone().unwrap();
    assert_eq!(serde_json::to_string(&folded).unwrap(), content);
    assert_eq!(
        object_json(&with, "task_1234xyz"),
        object_json(&fold(&[REASONING, TOOL_CALL, TOOL_RESULT]), "task_1234xyz")
    );
}

/// A text of megabytes grows in larger steps than a short one.
#[test]
fn a_long_text_is_all_of_its_deltas() {
    let place = r#""task_id":"task_1","item_id":"msg_1","output_index":0,"block_index":0"#;
    let added = r#"{"type":"task.output_item.added","task_id":"task_1","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant"}}"#;
    let begun = format!(r#"{{"type":"task.text.added",{place},"item":{{"type":"text","text":""}}}}"#);
    let delta = |number: usize| "abcdefghijk".repeat(50_000 + number);
    let deltas = (0..9).map(|number| format!(r#"{{"type":"task.text.delta",{place},"delta":"{}"}}"#, delta(number)));
    let stream = [added.to_owned(), begun].into_iter().chain(deltas).collect::<Vec<_>>().join("\n");
    let run = fold(&[&stream]);
    let whole: String = (0..9).map(delta).collect();
    let texts: Vec<&str> = run.root().unwrap().items[0].item.long_texts().map(|text| &**text).collect();
    assert!(texts == [whole.as_str()]);
    assert!(object_json(&run, "task_1").contains(&format!(r#""text":"{whole}""#)));
}
