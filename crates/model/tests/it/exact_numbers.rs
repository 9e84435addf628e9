//! Numbers of arguments and metadata are stored and read as they were written.

use model::command::{AnswerBody, AnswerCommand, Command, StartCommand};
use model::event::{
    ActionRequest, ApprovalDecision, ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Event, Initiator,
    ReviewConfig, TaskCreated,
};
use model::fold::RunFold;
use model::json::{ExactObject, ExactValue};
use model::record::{Record, RecordDraft, RecordHeader};
use model::{ApprovalKey, CallId, Epoch, Seq, TaskId, ThreadId};
use model_testing::{Rng, test_seeds};
use serde_json::Value;

fn random_digits(rng: &mut Rng) -> String {
    (0..=rng.below(30)).map(|_| char::from(b'0' + u8::try_from(rng.below(10)).unwrap())).collect()
}

/// Any text of the grammar that is finite.
fn random_number(rng: &mut Rng) -> String {
    let whole = random_digits(rng).trim_start_matches('0').to_owned();
    let mut text = format!("{}{}", ["", "-"][rng.below(2)], if whole.is_empty() { "0" } else { &whole });
    if rng.chance(40) {
        text += &format!(".{}", random_digits(rng));
    }
    if rng.chance(40) {
        text += &format!("{}{}{}", ["e", "E"][rng.below(2)], ["", "+", "-"][rng.below(3)], rng.below(200));
    }
    text
}

fn events(args: &ExactValue, metadata: &ExactObject, created: &Event) -> [Event; 3] {
    let (task_id, key, call_id) = (TaskId::from("task_1"), ApprovalKey::from("apr_1"), CallId::from("call_1"));
    let Event::Created(TaskCreated { task, .. }) = created else { panic!("{created:?}") };
    let decision =
        ApprovalDecision { kind: ApprovalDecisionKind::Edit, always: false, message: None, args: Some(args.clone()) };
    let mut task = task.clone();
    task.metadata = metadata.clone();
    [
        Event::Created(TaskCreated { task_id: task_id.clone(), task }),
        Event::ApprovalRequested(Box::new(ApprovalRequested {
            task_id: task_id.clone(),
            key: key.clone(),
            call_id,
            action_requests: vec![ActionRequest {
                name: "pay".to_owned(),
                args: args.clone(),
                ..ActionRequest::default()
            }],
            review_configs: vec![ReviewConfig { require_approval: true }],
            timeout_seconds: 1,
            expires_at: 2,
            question: None,
        })),
        Event::ApprovalResolved(ApprovalResolved { task_id, key, decisions: vec![decision], by: Initiator::User }),
    ]
}

fn created() -> Event {
    Event::decode(
        br#"{"type":"task.created","task_id":"task_1","task":{"thread_id":"thr_1","agent":"a","model":"m","input":[]}}"#,
    )
}

#[test]
fn any_number_is_read_from_the_log_as_it_was_written() {
    let thread = ThreadId::from("thr_1");
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        for _ in 0..50 {
            let text =
                format!(r#"{{"a":[{},"{}"],"n":{}}}"#, random_number(&mut rng), "1e2\\\\\\\"", random_number(&mut rng));
            let args = ExactValue::parse(&text).unwrap();
            let ExactValue::Object(metadata) = args.clone() else { panic!("{text}") };
            for event in events(&args, &metadata, &created()) {
                let draft = RecordDraft { seq: Seq(1), at: 5, event: event.clone(), private: None };
                let record = Record::seal(&thread, &TaskId::from("task_1"), Epoch(1), draft);
                assert!(std::str::from_utf8(&record.public).unwrap().contains(&text), "SEED={seed}");
                let Record { seq, at, run, epoch, format, checksum, public, private, .. } = record;
                let header = RecordHeader { seq, at, run, epoch, format, checksum };
                let read = Record::from_stored(header, public.clone(), private);
                assert_eq!(*read.event(), event, "SEED={seed}");
                assert_eq!(serde_json::from_slice::<Event>(&public).unwrap(), event, "SEED={seed}");
                if matches!(event, Event::Created(_)) {
                    let mut run = RunFold::default();
                    run.apply(&read).unwrap();
                    let object = run.task_object(&TaskId::from("task_1")).unwrap();
                    assert!(serde_json::to_string(&object).unwrap().contains(&text), "SEED={seed}");
                }
            }
            check_command(&args, metadata, &text);
        }
    }
}

fn check_command(args: &ExactValue, metadata: ExactObject, text: &str) {
    let task_id = TaskId::from("task_1");
    let decision =
        ApprovalDecision { kind: ApprovalDecisionKind::Edit, always: false, message: None, args: Some(args.clone()) };
    let body = AnswerBody::Approval { key: ApprovalKey::from("apr_1"), decision, by: Initiator::User };
    let start = r#"{"task_id":"task_1","agent":"a","input":[],"previous":null,"tools":[],"metadata":{},
        "display_mode":"agent","client":null}"#;
    let start = StartCommand { metadata, ..serde_json::from_str(start).unwrap() };
    let answer = AnswerCommand { task_id, body, request_echo: None, update: None, client: None };
    for command in [Command::Start(Box::new(start)), Command::Answer(answer)] {
        let stored = serde_json::to_string(&command).unwrap();
        assert!(stored.contains(text), "{stored}");
        assert_eq!(serde_json::from_str::<Command>(&stored).unwrap(), command);
    }
}

/// Records of earlier versions have floats, and serve them as they are.
#[test]
fn a_float_of_an_earlier_version_stays_as_it_is() {
    let old = r#"{"type":"task.approval.requested","task_id":"task_1","key":"apr_1","call_id":"call_1","action_requests":[{"name":"pay","args":{"a":1.8446744073709552e19,"b":-0.0,"c":100.0}}],"review_configs":[{"require_approval":true}],"timeout_seconds":1,"expires_at":2}"#;
    let event = Event::decode(old.as_bytes());
    assert!(matches!(event, Event::ApprovalRequested(_)));
    assert_eq!(serde_json::to_string(&event).unwrap(), old);
}

/// The reader has a line for each variant, and the derived writer a name.
#[test]
fn the_reader_knows_every_event_that_is_written() {
    let schema = serde_json::to_value(schemars::schema_for!(Event)).unwrap();
    let names: Vec<&str> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["properties"]["type"]["const"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 41);
    for name in names {
        let error = serde_json::from_str::<Event>(&format!(r#"{{"x":1,"type":"{name}"}}"#)).unwrap_err().to_string();
        assert!(error.starts_with("missing field"), "{name}: {error}");
    }
    let error = serde_json::from_str::<Event>(r#"{"type":"task.telepathy"}"#).unwrap_err().to_string();
    assert!(error.starts_with("unknown variant `task.telepathy`"), "{error}");
}

/// Members may come in any order, and the tag may be written with escapes.
#[test]
fn the_tag_is_found_anywhere() {
    let usual = Event::decode(br#"{"type":"task.started","task_id":"task_1"}"#);
    assert!(matches!(usual, Event::Started(_)));
    for text in [
        r#"{"task_id":"task_1","type":"task.started"}"#,
        r#" { "type" : "task.started" , "task_id" : "task_1" } "#,
        r#"{"type":"task\u002estarted","task_id":"task_1"}"#,
    ] {
        assert_eq!(Event::decode(text.as_bytes()), usual, "{text}");
    }
    let value: Value = serde_json::from_str(r#"{"type":"task.started","task_id":"task_1"}"#).unwrap();
    assert_eq!(serde_json::from_value::<Event>(value).unwrap(), usual);
}
