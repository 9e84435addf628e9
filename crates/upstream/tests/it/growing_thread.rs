//! A thread that grows turn by turn. Its requests are the same, whether it keeps the text of the turns before or not.

use model::content::ContentPart;
use model::history::{HistoryCache, HistoryEntry, SharedHistory};
use model::item::ResultStatus;
use model::{CallId, ItemId};
use proptest::prelude::*;
use std::sync::Arc;

/// What a request has more than the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadStep {
    /// Entries that follow.
    more: usize,
    /// The last entries that are the run's and not the thread's.
    own: usize,
    /// The first entries that a window leaves out.
    omitted: usize,
}

pub(crate) fn thread_steps() -> impl Strategy<Value = Vec<ThreadStep>> {
    let omitted = prop_oneof![9 => Just(0_usize), 1 => 1..3_usize];
    let step = (0..6_usize, 0..4_usize, omitted).prop_map(|(more, own, omitted)| ThreadStep { more, own, omitted });
    prop::collection::vec(step, 1..20)
}

fn user(text: &str) -> HistoryEntry {
    HistoryEntry::User { content: vec![ContentPart::text(text)] }
}

fn assistant(text: &str) -> HistoryEntry {
    HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: text.to_owned(), raw: None }
}

fn tool_turn(call: u32, provider_call_id: Option<&str>) -> Vec<HistoryEntry> {
    let call_id = CallId::numbered("R", call);
    let (name, arguments, raw) = ("look".to_owned(), "{}".to_owned(), None);
    let provider_call_id = provider_call_id.map(str::to_owned);
    let (status, content) = (ResultStatus::Completed, vec![ContentPart::text("found")]);
    let result = HistoryEntry::Result { call_id: call_id.clone(), status, content, acknowledged_checks: None };
    vec![
        user("look"),
        HistoryEntry::Call { call_id, name, arguments, provider_call_id, raw },
        result,
        assistant("done"),
    ]
}

/// Plain turns, turns with a tool, and anything.
pub(crate) fn thread_entries(odd: impl Strategy<Value = HistoryEntry>) -> impl Strategy<Value = Vec<HistoryEntry>> {
    let turn = prop_oneof![
        4 => "[a-z\"]{1,8}".prop_map(|text| vec![user(&text), assistant(&text)]),
        2 => (10..1000_u32).prop_map(|call| tool_turn(call, None)),
        1 => (10..1000_u32).prop_map(|call| tool_turn(call, Some("p"))),
        2 => prop::collection::vec(odd, 0..4),
    ];
    prop::collection::vec(turn, 0..12).prop_map(|turns| turns.concat())
}

/// Checks the history of each request.
pub(crate) fn for_each_request(entries: Vec<HistoryEntry>, steps: &[ThreadStep], mut check: impl FnMut(SharedHistory)) {
    let entries: Vec<Arc<HistoryEntry>> = entries.into_iter().map(Arc::new).collect();
    let (cache, mut length) = (HistoryCache::default(), 0);
    for step in steps {
        length = (length + step.more).min(entries.len());
        let history = entries[step.omitted.min(length)..length].to_vec();
        let past_count = history.len().saturating_sub(step.own);
        check(SharedHistory::in_thread(history, past_count, cache.clone()));
    }
}

/// Checks how many entries a request writes: those of the turn before, which the thread has got since, and the new message.
/// `write` writes a request and returns that number.
pub(crate) fn check_unwritten_entries(write: impl Fn(SharedHistory) -> usize) {
    let plain = || vec![user("a"), assistant("b")];
    assert_eq!(unwritten_counts(vec![plain(); 6], &write), [1, 3, 3, 3, 3, 3]);
    let tools: Vec<_> = (0..4).map(|call| tool_turn(call, None)).collect();
    assert_eq!(unwritten_counts(tools, &write), [1, 5, 5, 5]);
    // The instructions have it.
    let system = vec![user("a"), HistoryEntry::System { text: "Be brief.".to_owned() }, assistant("b")];
    assert_eq!(unwritten_counts(vec![plain(), system, plain(), plain()], &write), [1, 3, 4, 6]);
    // Another image may follow in the next message of the user.
    let images = HistoryEntry::GeneratedImages { content: vec![ContentPart::image("https://x/y")] };
    let drawing = vec![user("a"), images, assistant("b")];
    assert_eq!(unwritten_counts(vec![plain(), drawing, plain(), plain()], &write), [1, 3, 4, 6]);
}

/// The entries that each request of a thread has to write, when each of its turns is added in turn.
fn unwritten_counts(turns: Vec<Vec<HistoryEntry>>, write: impl Fn(SharedHistory) -> usize) -> Vec<usize> {
    let (cache, mut past) = (HistoryCache::default(), Vec::new());
    let mut counts = Vec::new();
    for turn in turns {
        let entries: Vec<Arc<HistoryEntry>> = turn.into_iter().map(Arc::new).collect();
        let history = [&past[..], &entries[..1]].concat();
        counts.push(write(SharedHistory::in_thread(history, past.len(), cache.clone())));
        past.extend(entries);
    }
    counts
}
