//! Law 3, checked by a second hand: the test adds up what the events say with code of its own, on plain JSON, and holds
//! every `done`, and the fold, against that.

use model::fold::RunFold;
use model::testing::{Options, seeds, thread_log};
use model::{Record, TaskId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Items as their events have made them, by task and place.
#[derive(Default)]
struct Sum {
    items: BTreeMap<(String, u64), Value>,
    checked: u32,
}

/// What only a `done` can say: how it ended, and what came with the end.
const NEWS_OF_AN_ITEM: [&str; 6] = ["status", "reason", "error", "summary", "artifact", "ui_hints"];

impl Sum {
    /// Takes in the next event; says which item it touched.
    fn take(&mut self, record: &Record, seed: u64) -> Option<(String, u64)> {
        let event: Value = serde_json::from_slice(&record.public).unwrap();
        let at = format!("SEED={seed}, record {}: {}", record.seq, record.kind());
        let key = (event["task_id"].as_str()?.to_owned(), event["output_index"].as_u64()?);
        if record.kind() == "task.output_item.added" {
            assert!(self.items.insert(key.clone(), event["item"].clone()).is_none(), "{at}: added twice");
            return Some(key);
        }
        let item = self.items.get_mut(&key).unwrap_or_else(|| panic!("{at}: nothing was added there"));
        match record.kind() {
            "task.reasoning_summary_item.added" => put(part(item, "summary"), &event["summary_index"], &event["item"]),
            "task.reasoning_summary_text.delta" => {
                append(&mut part(item, "summary")[place(&event["summary_index"])]["text"], &event["delta"]);
            }
            "task.reasoning_summary_item.done" => {
                self.checked += done(part(item, "summary"), &event["summary_index"], &event["item"], &[], &at);
            }
            "task.tool_call_arguments.delta" => append(&mut item["arguments"], &event["delta"]),
            "task.tool_call_arguments.done" => {
                if let Some(whole) = event.get("arguments") {
                    assert_eq!(*whole, item["arguments"], "{at}");
                    self.checked += 1;
                }
            }
            "task.hosted_call.updated" => copy(item, &event, &["state", "action"]),
            "task.file_processing.updated" => {
                let files = part(item, "files");
                let file = files.iter_mut().find(|file| file["url"] == event["url"]).unwrap();
                *file = json!({"url": event["url"], "status": event["status"]});
                copy(file, &event, &["message"]);
            }
            "task.text.added" | "task.image.added" => {
                put(part(item, "block_list"), &event["block_index"], &event["item"]);
            }
            "task.text.delta" => {
                append(&mut part(item, "block_list")[place(&event["block_index"])]["text"], &event["delta"]);
            }
            "task.text.annotation.added" => {
                let block = &mut part(item, "block_list")[place(&event["block_index"])];
                put(part(block, "annotations"), &event["annotation_index"], &event["annotation"]);
            }
            "task.image.delta" => part(item, "block_list")[place(&event["block_index"])] = event["item"].clone(),
            "task.text.done" => {
                self.checked += done(part(item, "block_list"), &event["block_index"], &event["item"], &[], &at);
            }
            // The last picture is the picture: it need not be one of those before it.
            "task.image.done" => {
                let blocks = part(item, "block_list");
                self.checked += done(blocks, &event["block_index"], &event["item"], &["image_url"], &at);
            }
            "task.output_item.done" => {
                let mut news: Vec<&str> = NEWS_OF_AN_ITEM.into();
                if item["type"] == "reasoning" {
                    news.retain(|news| *news != "summary");
                }
                self.checked += same(item, &event["item"], &news, &at);
            }
            other => panic!("{at}: {other} has a place in the output and none here"),
        }
        Some(key)
    }
}

fn place(index: &Value) -> usize {
    usize::try_from(index.as_u64().unwrap()).unwrap()
}

fn part<'a>(item: &'a mut Value, list: &str) -> &'a mut Vec<Value> {
    let map = item.as_object_mut().unwrap();
    map.entry(list).or_insert_with(|| json!([])).as_array_mut().unwrap()
}

/// Puts the next one at the end, which must be its place.
fn put(list: &mut Vec<Value>, index: &Value, one: &Value) {
    assert_eq!(place(index), list.len());
    list.push(one.clone());
}

fn append(text: &mut Value, delta: &Value) {
    *text = Value::from(format!("{}{}", text.as_str().unwrap(), delta.as_str().unwrap()));
}

fn copy(to: &mut Value, from: &Value, keys: &[&str]) {
    for key in keys {
        if let Some(value) = from.get(key) {
            to[*key] = value.clone();
        }
    }
}

/// A part is done: its fields are what its deltas gave. One that was never added is whole by itself.
fn done(list: &mut Vec<Value>, index: &Value, whole: &Value, news: &[&str], at: &str) -> u32 {
    if place(index) == list.len() {
        list.push(whole.clone());
        return 0;
    }
    same(&mut list[place(index)], whole, news, at)
}

/// Every field of the `done` equals what there is, but for its news, which are kept.
fn same(held: &mut Value, done: &Value, news: &[&str], at: &str) -> u32 {
    let done: &Map<String, Value> = done.as_object().unwrap();
    for (field, value) in done {
        if news.contains(&field.as_str()) {
            held[field.as_str()] = value.clone();
        } else {
            assert_eq!(held.get(field), Some(value), "{at}: `{field}` is not what its deltas gave");
        }
    }
    // What it does not say stays, but how it ended is the done's alone to say.
    if news.contains(&"status") && !done.contains_key("status") {
        held.as_object_mut().unwrap().remove("status");
    }
    u32::try_from(done.len()).unwrap()
}

#[test]
fn law_3_done_repeats() {
    let mut checked = 0;
    for seed in seeds() {
        let (_, log) = thread_log(seed, Options::default());
        let mut sum = Sum::default();
        for record in &log {
            sum.take(record, seed);
        }
        checked += sum.checked;
    }
    assert!(checked > 0);
}

/// The fold adds up to the same, event by event: a lost delta is not made good by the `done` that repeats it.
#[test]
fn the_fold_adds_up_to_the_same() {
    for seed in seeds() {
        let (_, log) = thread_log(seed, Options::default());
        let (mut run, mut sum) = (RunFold::default(), Sum::default());
        for record in &log {
            if run.is_over() && record.event().task_id().is_some() {
                (run, sum) = (RunFold::default(), Sum::default());
            }
            run.apply(record).unwrap();
            let Some((task, index)) = sum.take(record, seed) else { continue };
            // Long texts are looked at when they are whole: their deltas would take minutes.
            if record.size() > 4096 && !record.kind().ends_with(".done") {
                continue;
            }
            let fold = &run.task(&TaskId::from(task.as_str())).unwrap().items[usize::try_from(index).unwrap()];
            let folded = serde_json::to_value(&fold.item).unwrap();
            assert!(
                folded == sum.items[&(task.clone(), index)],
                "SEED={seed}, record {}: {}",
                record.seq,
                record.kind()
            );
        }
    }
}
