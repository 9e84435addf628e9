//! A second implementation of the fold of item events, on plain JSON without the types of `model`.
//!
//! [`crate::invariants::check_done_matches_deltas`] checks every `done` against it; tests compare it with the fold.

use model::record::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The task's id and the item's index in the output.
pub type ItemKey = (String, u64);

#[derive(Clone, Debug, Default)]
pub struct JsonFold {
    items: BTreeMap<ItemKey, Value>,
}

/// Fields that only the `done` of an item carries.
const ITEM_DONE_FIELDS: &[&str] = &["status", "reason", "error", "summary", "artifact", "ui_hints"];
/// The same for reasoning, whose summary is content.
const REASONING_DONE_FIELDS: &[&str] = &["status", "reason"];
/// The final image need not be one of the previews.
const IMAGE_DONE_FIELDS: &[&str] = &["image_url"];

impl JsonFold {
    #[must_use]
    pub fn item(&self, key: &ItemKey) -> Option<&Value> {
        self.items.get(key)
    }

    /// Applies the next record and returns the item that it changed. Fails when a `done` contradicts the events before
    /// it, or when an event addresses nothing.
    pub fn apply(&mut self, record: &Record) -> Result<Option<ItemKey>, String> {
        self.apply_event(record).map_err(|why| format!("record {} ({}): {why}", record.seq, record.event_type()))
    }

    fn apply_event(&mut self, record: &Record) -> Result<Option<ItemKey>, String> {
        let event: Value = serde_json::from_slice(&record.public).map_err(|error| error.to_string())?;
        let field = |name: &str| event.get(name).unwrap_or(&Value::Null);
        let (Some(task), Some(index)) = (field("task_id").as_str(), field("output_index").as_u64()) else {
            return Ok(None);
        };
        let key = (task.to_owned(), index);
        if record.event_type() == "task.output_item.added" {
            let before = self.items.insert(key.clone(), field("item").clone());
            return before.map_or(Ok(Some(key)), |_| Err("is added twice".to_owned()));
        }
        let item = self.items.get_mut(&key).ok_or("nothing was added there")?;
        let (summary, block) = (field("summary_index"), field("block_index"));
        match record.event_type() {
            "task.reasoning_summary_item.added" => push_at(list_field(item, "summary")?, summary, field("item")),
            "task.reasoning_summary_text.delta" => {
                append_text(element_at(list_field(item, "summary")?, summary)?, "text", field("delta"))
            }
            "task.reasoning_summary_item.done" => {
                apply_part_done(list_field(item, "summary")?, summary, field("item"), &[])
            }
            "task.tool_call_arguments.delta" => append_text(item, "arguments", field("delta")),
            "task.tool_call_arguments.done" => match event.get("arguments") {
                Some(arguments) => check_repeated_fields(item, &json!({"arguments": arguments}), &[]),
                None => Ok(()),
            },
            "task.hosted_call.updated" => copy_fields(item, &event, &["state", "action"]),
            "task.file_processing.updated" => apply_file_update(list_field(item, "files")?, &event),
            "task.text.added" | "task.image.added" => push_at(list_field(item, "block_list")?, block, field("item")),
            "task.text.delta" => {
                append_text(element_at(list_field(item, "block_list")?, block)?, "text", field("delta"))
            }
            "task.text.annotation.added" => {
                let block = element_at(list_field(item, "block_list")?, block)?;
                if let (Some(group), None) = (field("annotation").get("reference_id"), block.get("id")) {
                    block.as_object_mut().ok_or("not an object")?.insert("id".to_owned(), group.clone());
                }
                push_at(list_field(block, "annotations")?, field("annotation_index"), field("annotation"))
            }
            "task.text.done" => apply_part_done(list_field(item, "block_list")?, block, field("item"), &[]),
            "task.image.delta" => {
                let done_fields = IMAGE_DONE_FIELDS;
                check_repeated_fields(element_at(list_field(item, "block_list")?, block)?, field("item"), done_fields)
            }
            "task.image.done" => {
                apply_part_done(list_field(item, "block_list")?, block, field("item"), IMAGE_DONE_FIELDS)
            }
            "task.output_item.done" => apply_item_done(item, field("item")),
            _ => Err("is not an event of an item".to_owned()),
        }?;
        Ok(Some(key))
    }
}

fn parse_index(index: &Value) -> Result<usize, String> {
    index.as_u64().and_then(|index| usize::try_from(index).ok()).ok_or_else(|| format!("{index} is not an index"))
}

fn list_field<'a>(value: &'a mut Value, name: &str) -> Result<&'a mut Vec<Value>, String> {
    let map = value.as_object_mut().ok_or("not an object")?;
    map.entry(name).or_insert_with(|| json!([])).as_array_mut().ok_or_else(|| format!("`{name}` is not a list"))
}

fn element_at<'a>(list: &'a mut [Value], index: &Value) -> Result<&'a mut Value, String> {
    list.get_mut(parse_index(index)?).ok_or_else(|| format!("there is nothing at {index}"))
}

/// Appends an element, whose index must be the next.
fn push_at(list: &mut Vec<Value>, index: &Value, one: &Value) -> Result<(), String> {
    if parse_index(index)? != list.len() {
        return Err(format!("{index} is not the next index: the list has {} elements", list.len()));
    }
    list.push(one.clone());
    Ok(())
}

fn append_text(value: &mut Value, name: &str, delta: &Value) -> Result<(), String> {
    let text = value.get_mut(name).ok_or_else(|| format!("there is no `{name}`"))?;
    let joined = [text.as_str(), delta.as_str()].into_iter().collect::<Option<String>>().ok_or("not a text")?;
    *text = Value::String(joined);
    Ok(())
}

fn copy_fields(to: &mut Value, from: &Value, names: &[&str]) -> Result<(), String> {
    let map = to.as_object_mut().ok_or("not an object")?;
    for name in names {
        if let Some(value) = from.get(name) {
            map.insert((*name).to_owned(), value.clone());
        }
    }
    Ok(())
}

fn apply_file_update(files: &mut Vec<Value>, event: &Value) -> Result<(), String> {
    let mut now = json!({});
    copy_fields(&mut now, event, &["url", "status", "message"])?;
    match files.iter_mut().find(|file| file.get("url") == event.get("url")) {
        Some(file) => *file = now,
        None => files.push(now),
    }
    Ok(())
}

/// Compares a `done` with its deltas. A part that was never added is complete in itself.
fn apply_part_done(list: &mut Vec<Value>, index: &Value, done: &Value, done_fields: &[&str]) -> Result<(), String> {
    if parse_index(index)? == list.len() {
        push_at(list, index, done)
    } else {
        check_repeated_fields(element_at(list, index)?, done, done_fields)
    }
}

fn apply_item_done(item: &mut Value, done: &Value) -> Result<(), String> {
    let is_reasoning = item.get("type") == Some(&json!("reasoning"));
    check_repeated_fields(item, done, if is_reasoning { REASONING_DONE_FIELDS } else { ITEM_DONE_FIELDS })?;
    // A `done` without a status resets it.
    if done.get("status").is_none() {
        item.as_object_mut().ok_or("not an object")?.remove("status");
    }
    Ok(())
}

/// Compares every field of the `done` except those in `done_fields`, which are stored.
fn check_repeated_fields(held: &mut Value, done: &Value, done_fields: &[&str]) -> Result<(), String> {
    let held = held.as_object_mut().ok_or("not an object")?;
    for (name, value) in done.as_object().ok_or("not an object")? {
        if done_fields.contains(&name.as_str()) {
            held.insert(name.clone(), value.clone());
        } else if held.get(name) != Some(value) {
            let folded = held.get(name).unwrap_or(&Value::Null);
            return Err(format!("repeats `{name}` as {value}, but its deltas give {folded}"));
        }
    }
    Ok(())
}
