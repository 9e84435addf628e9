//! Laws as checks over a log, for everybody who writes one. Independent of the fold on purpose: what they say is counted
//! from the events themselves.

use crate::block::Block;
use crate::event::{Event, SummaryEvent, TextEvent};
use crate::history::Entry;
use crate::id::{CallId, TaskId};
use crate::item::Item;
use crate::record::Record;
use std::collections::{HashMap, HashSet};

/// Law 3: every field that a `*.done` event carries equals what its deltas folded to.
///
/// # Errors
/// Says which record breaks it, and how.
pub fn done_repeats(records: &[Record]) -> Result<(), String> {
    let mut heard = Heard::default();
    for record in records {
        heard.take(record.event()).map_err(|why| format!("record {} ({}): {why}", record.seq, record.kind()))?;
    }
    Ok(())
}

/// Where a piece of text belongs: the task, its item, and the part of the item.
type Place = (TaskId, u32, Part);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Arguments,
    Summary(u32),
    Text(u32),
}

/// What the deltas said so far.
#[derive(Default)]
struct Heard {
    texts: HashMap<Place, String>,
    blocks: HashMap<(TaskId, u32), Vec<Block>>,
}

impl Heard {
    fn take(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::TextDelta(e) => self.add((e.task_id.clone(), e.output_index, Part::Text(e.block_index)), &e.delta),
            Event::SummaryDelta(e) => {
                self.add((e.task_id.clone(), e.output_index, Part::Summary(e.summary_index)), &e.delta);
            }
            Event::ArgumentsDelta(e) => self.add((e.task_id.clone(), e.output_index, Part::Arguments), &e.delta),
            Event::TextAdded(e) => {
                self.texts.entry((e.task_id.clone(), e.output_index, Part::Text(e.block_index))).or_default();
            }
            Event::TextDone(e) => return self.text_done(e),
            Event::SummaryDone(e) => return self.summary_done(e),
            Event::ArgumentsDone(e) => {
                let place = (e.task_id.clone(), e.output_index, Part::Arguments);
                return self.same(&place, e.arguments.as_deref());
            }
            Event::ImageDone(e) => {
                self.blocks.entry((e.task_id.clone(), e.output_index)).or_default().push(e.item.clone().into());
            }
            Event::ItemDone(e) => return self.item_done(&e.task_id, e.output_index, &e.item),
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, place: Place, delta: &str) {
        self.texts.entry(place).or_default().push_str(delta);
    }

    /// What is repeated must be what was heard; what is left out is not claimed.
    fn same(&self, place: &Place, repeated: Option<&str>) -> Result<(), String> {
        let heard = self.texts.get(place).map(String::as_str).unwrap_or_default();
        match repeated {
            Some(repeated) if repeated != heard => Err(format!("repeats {repeated:?}, but the deltas said {heard:?}")),
            _ => Ok(()),
        }
    }

    fn text_done(&mut self, e: &TextEvent) -> Result<(), String> {
        let place = (e.task_id.clone(), e.output_index, Part::Text(e.block_index));
        // Alone, it is a short block in one event and repeats nothing.
        if self.texts.contains_key(&place) {
            self.same(&place, e.item.block().text.as_deref())?;
        }
        self.blocks.entry((e.task_id.clone(), e.output_index)).or_default().push(e.item.clone().into());
        Ok(())
    }

    fn summary_done(&self, e: &SummaryEvent) -> Result<(), String> {
        let place = (e.task_id.clone(), e.output_index, Part::Summary(e.summary_index));
        self.same(&place, Some(e.item.text()).filter(|text| !text.is_empty()))
    }

    fn item_done(&self, task: &TaskId, index: u32, item: &Item) -> Result<(), String> {
        match item {
            Item::ToolCall(call) => self.same(&(task.clone(), index, Part::Arguments), call.arguments.as_deref()),
            Item::Reasoning(reasoning) => {
                let summary = reasoning.summary.as_deref().unwrap_or_default();
                (0..).zip(summary).try_for_each(|(part, text)| {
                    self.same(&(task.clone(), index, Part::Summary(part)), Some(text.text()))
                })
            }
            Item::Message(_) | Item::ToolResult(_) | Item::HostedCall(_) => {
                let heard = self.blocks.get(&(task.clone(), index)).map(Vec::as_slice).unwrap_or_default();
                let texts =
                    |blocks: &[Block]| -> Vec<String> { blocks.iter().map(|block| format!("{block:?}")).collect() };
                let (repeated, heard) = (texts(item.blocks()), texts(heard));
                // A long text is left out of its own `done` as well: only blocks that were told whole can be compared.
                let told = heard.iter().all(|block| !block.contains("text: None"));
                if repeated.is_empty() || !told || repeated == heard {
                    Ok(())
                } else {
                    Err(format!("repeats {repeated:?}, but its blocks were {heard:?}"))
                }
            }
            Item::FileProcessing(_) => Ok(()),
        }
    }
}

/// Law 9: one terminal event, always last, for every task; the root's last of all.
///
/// # Errors
/// Says which task breaks it. The log must be of runs that have ended.
pub fn one_terminal_last(records: &[Record]) -> Result<(), String> {
    let mut ended: HashSet<TaskId> = HashSet::new();
    let mut begun: HashSet<TaskId> = HashSet::new();
    for record in records {
        let event = record.event();
        let Some(task) = event.task_id() else { continue };
        if ended.contains(task) || ended.contains(&record.run) {
            return Err(format!("record {} ({}) comes after the end of {task}", record.seq, record.kind()));
        }
        begun.insert(task.clone());
        if event.is_terminal() {
            ended.insert(task.clone());
        }
    }
    match begun.difference(&ended).next() {
        Some(task) => Err(format!("{task} has no terminal event")),
        None => Ok(()),
    }
}

/// Law 12: in what the model is given no call is without its result, none is answered twice, and nothing is empty.
///
/// # Errors
/// Says what a provider would refuse.
pub fn valid_history(entries: &[Entry]) -> Result<(), String> {
    let mut open: Vec<&CallId> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Call { call_id, .. } => open.push(call_id),
            Entry::Result { call_id, content, .. } => {
                let place = open.iter().position(|open| *open == call_id);
                let place = place.ok_or_else(|| format!("{call_id} is answered but was not asked, or twice"))?;
                open.remove(place);
                if content.is_empty() {
                    return Err(format!("the result of {call_id} is empty"));
                }
            }
            Entry::User { .. } | Entry::Assistant { .. } | Entry::Reasoning { .. } if !open.is_empty() => {
                // Items of the same turn may stand beside a call; a user's word may not.
                if matches!(entry, Entry::User { .. }) {
                    return Err(format!("{open:?} have no result before the next turn"));
                }
            }
            Entry::Assistant { text, .. } if text.is_empty() => return Err("an empty message".to_owned()),
            Entry::User { .. } | Entry::Assistant { .. } | Entry::Reasoning { .. } => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no result")) }
}
