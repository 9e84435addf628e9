//! Deltas, the most frequent events by far, parsed without a JSON tree.
//!
//! Each dialect has a struct for its usual delta. It lists every member that the dialect looks at in such an event, with the
//! one type that needs no interpretation; the dialect ignores all other members anyway. Whatever differs (another type,
//! a duplicate member, a member that needs more work) is no usual delta, and the event is parsed as a tree. So both ways
//! give the same events, and `delta_tests` compares them.

use crate::Ingest;
use model::model_turn::ModelEvent;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sse::SseEvent;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A dialect that reads its usual deltas without a tree.
pub(crate) trait DeltaIngest: Send {
    /// Reads an event that is a usual delta. Otherwise it returns `false` and changes nothing.
    fn read_delta(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) -> bool;

    /// Reads any event.
    fn read_tree(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>);

    fn read_end(&mut self, out: &mut Vec<ModelEvent>);
}

impl<T: DeltaIngest> Ingest for T {
    fn on_event(&mut self, event: &SseEvent, out: &mut Vec<ModelEvent>) {
        if !self.read_delta(event, out) {
            self.read_tree(event, out);
        }
    }

    fn on_end(&mut self, out: &mut Vec<ModelEvent>) {
        self.read_end(out);
    }
}

/// The parser of trees refuses deep nesting, but not in members that are skipped. With so few brackets nothing is deep.
const BRACKETS_MAX: usize = 100;

/// `None` if the text is not an object of exactly this shape.
pub(crate) fn parse_delta<'a, T: Deserialize<'a>>(data: &'a str) -> Option<T> {
    let brackets = data.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if brackets > BRACKETS_MAX {
        return None;
    }
    serde_json::from_str(data).ok().map(|JsonObjectOf(delta)| delta)
}

/// The last usual delta of a stream, apart from its text: the next one nearly always differs in the text alone, and then
/// two comparisons find it.
#[derive(Debug)]
pub(crate) struct DeltaTemplate<K> {
    kind: K,
    before_text: String,
    after_text: String,
}

impl<K: Copy> DeltaTemplate<K> {
    /// `text` is the delta in `data`. `None` if it is not there as it is, because it has escapes.
    pub(crate) fn new(kind: K, data: &str, text: &str) -> Option<Self> {
        // Parsed texts without escapes are slices of the data; the same characters may occur elsewhere in it.
        let start = text.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
        let before_text = data.get(..start)?.strip_suffix('"')?;
        let after_text = data.get(start..)?.strip_prefix(text)?.strip_prefix('"')?;
        Some(Self { kind, before_text: before_text.to_owned(), after_text: after_text.to_owned() })
    }

    /// The text of a delta that differs from the last one in its text alone.
    pub(crate) fn find_text<'a>(&self, data: &'a str) -> Option<(K, &'a str)> {
        let rest = data.strip_prefix(&*self.before_text)?.strip_prefix('"')?;
        let text = rest.strip_suffix(&*self.after_text)?.strip_suffix('"')?;
        // What has none of these is a JSON string that means itself.
        let is_plain = !text.bytes().any(|byte| matches!(byte, b'"' | b'\\') || byte < b' ');
        is_plain.then_some((self.kind, text))
    }
}

/// A member that is missing or `null`.
pub(crate) type Absent = Option<()>;

/// The wrapper lets serde borrow a string without escapes inside an `Option`.
#[derive(Debug, Deserialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl BorrowedText<'_> {
    /// The text of a member; empty if the member is missing.
    pub(crate) fn into_string(text: Option<Self>) -> String {
        text.map_or_else(String::new, |BorrowedText(text)| text.into_owned())
    }
}

/// A struct from a JSON object. On its own, serde would also accept an array of the members' values.
#[derive(Debug)]
pub(crate) struct JsonObjectOf<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObjectOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(JsonObjectVisitor(PhantomData))
    }
}

struct JsonObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for JsonObjectVisitor<T> {
    type Value = JsonObjectOf<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(JsonObjectOf)
    }
}
