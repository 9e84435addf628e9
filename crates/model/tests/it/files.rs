//! Files that are read before the model is called: what the fold keeps of them, and what the model receives.

use crate::fold::{ROOT, event, item};
use model::content::{ContentPart, FileRef};
use model::event::Event;
use model::fold::RunFold;
use model::history::{HistoryEntry, PriorHistory};
use model::item::FileStatus;
use model::limits::TASK_FILES_MAX;
use model::record::PrivatePayload;
use model::thread::{ThreadReplay, history_entries};
use model_testing::{LogOptions, generate_thread_log, test_seeds};
use serde_json::{Value, json};

fn web(url: &str) -> ContentPart {
    ContentPart::File { file: FileRef { url: Some(url.to_owned()), ..FileRef::default() } }
}

/// Folds one event, with the file's content where the event has it.
fn push(run: &mut RunFold, value: Value, content: Option<&str>) {
    let private = content
        .map(|text| PrivatePayload { content: Some(vec![ContentPart::text(text)]), ..PrivatePayload::default() });
    let text = value.to_string();
    assert_eq!(run.apply_event(run.seq.next(), 5, &event(value), private.as_ref()), Ok(()), "{text}");
}

/// A run with this input.
fn run_with_input(content: &[ContentPart]) -> RunFold {
    let mut run = RunFold::default();
    let input = json!([{"id": "msg_0", "role": "user", "content": content}]);
    let spec = json!({"thread_id": "thr_1", "agent": "demo", "model": "m", "input": input});
    push(&mut run, json!({"type": "task.created", "task_id": ROOT, "task": spec}), None);
    push(&mut run, json!({"type": "task.started", "task_id": ROOT}), None);
    run
}

fn files(status: &str, urls: &[(&str, &str)]) -> Value {
    let files: Vec<Value> = urls.iter().map(|(url, status)| json!({"url": url, "status": status})).collect();
    json!({"type": "file_processing", "id": "fp_1", "files": files, "status": status})
}

fn file_updated(url: &str, status: &str, message: Option<&str>) -> Value {
    let mut event = json!({"type": "task.file_processing.updated", "task_id": ROOT, "output_index": 0, "url": url, "status": status});
    if let Some(message) = message {
        event["message"] = message.into();
    }
    event
}

fn first_user_content(run: &RunFold) -> Vec<ContentPart> {
    let Some(HistoryEntry::User { content }) = history_entries(run.root().unwrap()).into_iter().next() else {
        panic!("a user spoke")
    };
    content
}

#[test]
fn a_file_is_replaced_by_its_content_or_its_error() {
    let (a, b, c) = ("https://a.example/", "https://b.example/", "https://c.example/");
    let blob = web("/v1/blobs/ab12");
    let said = [ContentPart::text("compare"), web(a), web(b), blob.clone(), web(a), web(c)];
    let mut run = run_with_input(&said);
    assert_eq!(run.root().unwrap().unread_files(), [a, b, c]);
    assert_eq!(first_user_content(&run), said, "nothing was read so far");
    push(&mut run, item("added", 0, files("in_progress", &[(a, "processing"), (b, "processing")])), None);
    assert_eq!(run.root().unwrap().unread_files(), [c]);
    push(&mut run, file_updated(a, "completed", Some("one page")), Some("A is here."));
    push(&mut run, file_updated(b, "failed", Some("Nobody is there.")), None);
    let note = ContentPart::text(format!("[The file {b} could not be read: Nobody is there.]"));
    let read = ContentPart::text("A is here.");
    let expected = [ContentPart::text("compare"), read.clone(), note.clone(), blob.clone(), read.clone(), web(c)];
    assert_eq!(first_user_content(&run), expected, "what may yet be read stays as it is");
    let mut done = files("completed", &[(a, "completed"), (b, "failed")]);
    done["files"][1]["message"] = json!("Nobody is there.");
    push(&mut run, item("done", 0, done), None);
    assert_eq!(first_user_content(&run), expected);
    let end = json!({"type": "task.cancelled", "task_id": ROOT, "mode": "immediate", "by": "user", "usage": {}, "duration_ms": 0});
    push(&mut run, end, None);
    let never = ContentPart::text(format!("[The file {c} could not be read: The run ended before that.]"));
    assert_eq!(first_user_content(&run), [ContentPart::text("compare"), read.clone(), note, blob, read, never]);
}

#[test]
fn reading_a_file_again_restarts_it() {
    let url = "https://a.example/";
    let mut run = run_with_input(&[web(url)]);
    push(&mut run, item("added", 0, files("in_progress", &[(url, "processing")])), None);
    let tries = |run: &RunFold| run.root().unwrap().items[0].files[url].attempts;
    assert_eq!(tries(&run), 1);
    push(&mut run, file_updated(url, "processing", None), None);
    push(&mut run, file_updated(url, "processing", None), None);
    assert_eq!(tries(&run), 3);
    push(&mut run, file_updated(url, "failed", None), None);
    assert_eq!(tries(&run), 3);
    assert_eq!(
        first_user_content(&run),
        [ContentPart::text(format!("[The file {url} could not be read: There is nothing in it to read.]"))]
    );
}

#[test]
fn files_belong_to_no_turn() {
    let mut run = run_with_input(&[]);
    push(&mut run, json!({"type": "task.step.started", "task_id": ROOT, "step": 1, "attempt": 1}), None);
    push(&mut run, item("added", 0, files("in_progress", &[("https://a.example/", "processing")])), None);
    let (place, fold, _) = run.root().unwrap().open_file_processing().expect("it is open");
    assert_eq!((place, fold.step_index), (0, None));
}

#[test]
fn files_beyond_the_limit_are_replaced_by_a_note() {
    let urls: Vec<String> = (0..=TASK_FILES_MAX).map(|n| format!("https://a.example/{n}")).collect();
    let mut run = run_with_input(&urls.iter().map(|url| web(url)).collect::<Vec<_>>());
    assert_eq!(run.root().unwrap().unread_files(), urls[..TASK_FILES_MAX]);
    let listed: Vec<(&str, &str)> = urls[..TASK_FILES_MAX].iter().map(|url| (url.as_str(), "processing")).collect();
    push(&mut run, item("added", 0, files("in_progress", &listed)), None);
    assert!(run.root().unwrap().unread_files().is_empty());
    let last = &urls[TASK_FILES_MAX];
    let told = ContentPart::text(format!("[The file {last} could not be read: There were too many files.]"));
    assert_eq!(first_user_content(&run).last(), Some(&told));
}

#[test]
fn the_newest_files_of_a_long_history_are_read() {
    let urls: Vec<String> = (0..TASK_FILES_MAX + 5).map(|n| format!("https://a.example/{n}")).collect();
    let said = |url: &String| HistoryEntry::User { content: vec![ContentPart::text("look"), web(url)] };
    let entries = urls.iter().chain(&urls[..1]).map(said).collect();
    let private = PrivatePayload {
        prior_history: Some(PriorHistory { entries, ..PriorHistory::default() }),
        ..PrivatePayload::default()
    };
    let input = json!([{"id": "msg_0", "role": "user", "content": [web("https://now.example/")]}]);
    let spec = json!({"thread_id": "thr_1", "agent": "demo", "model": "m", "input": input});
    let created = event(json!({"type": "task.created", "task_id": ROOT, "task": spec}));
    let mut run = RunFold::default();
    run.apply_event(run.seq.next(), 5, &created, Some(&private)).unwrap();
    let newest = urls[urls.len() - (TASK_FILES_MAX - 2)..].iter().chain(&urls[..1]).map(String::as_str);
    let wanted: Vec<&str> = std::iter::once("https://now.example/").chain(newest).collect();
    assert_eq!(run.root().unwrap().unread_files(), wanted);
}

/// Whatever happened to a run, later runs get the content of its files and no URL that would have to be fetched again.
#[test]
fn later_runs_get_the_file_content_and_no_url() {
    let mut read = 0;
    for seed in test_seeds() {
        let (_, log) = generate_thread_log(seed, LogOptions::default());
        let mut replay = ThreadReplay::default();
        for record in &log {
            replay.push(record);
        }
        for past in &replay.thread.runs {
            let mut parts: Vec<&ContentPart> = Vec::new();
            for entry in &past.entries {
                if let HistoryEntry::User { content } = &**entry {
                    parts.extend(content);
                }
            }
            let to_read = |part: &&&ContentPart| matches!(part, ContentPart::File { file } if file.web_url().is_some());
            assert_eq!(parts.iter().find(to_read), None, "SEED={seed}: {}", past.run);
            for record in log.iter().filter(|record| record.run == past.run) {
                let Event::FileProcessingUpdated(e) = record.event() else { continue };
                if e.status == FileStatus::Completed {
                    let content = record.private().and_then(|private| private.content).expect("it was read");
                    assert!(content.iter().all(|part| parts.contains(&part)), "SEED={seed}: {} is missing", e.url);
                    read += 1;
                }
            }
        }
    }
    assert!(read > 0, "no file was ever read");
}
