//! Resolves references inside a schema, as the validator does.

use crate::error::SchemaError;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// The root of a schema, and the subschemas that have a name.
pub(crate) struct References<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, (&'a Value, String)>,
}

impl<'a> References<'a> {
    /// Collects the anchors. A nested `$id` would give the references below it another meaning, so there may be none.
    pub(crate) fn collect(root: &'a Value) -> Result<Self, SchemaError> {
        let mut anchors = HashMap::new();
        let is_old = root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-0"));
        let mut waiting = vec![(root, String::new())];
        while let Some((value, at)) = waiting.pop() {
            match value {
                Value::Object(members) => {
                    let has_id = |name: &str| members.get(name).is_some_and(Value::is_string);
                    if !at.is_empty() && (has_id("$id") || (is_old && has_id("id"))) {
                        return Err(SchemaError::NestedId { at });
                    }
                    for keyword in ["$anchor", "$dynamicAnchor"] {
                        if let Some(Value::String(name)) = members.get(keyword)
                            && anchors.insert(name.as_str(), (value, at.clone())).is_some()
                        {
                            return Err(SchemaError::DuplicateAnchor(name.clone()));
                        }
                    }
                    waiting.extend(members.iter().map(|(name, value)| (value, join_pointer(&at, name))));
                }
                Value::Array(list) => {
                    waiting.extend(list.iter().enumerate().map(|(index, value)| (value, format!("{at}/{index}"))));
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(Self { root, anchors })
    }

    /// The subschema that a reference at `at` names, with its own place.
    pub(crate) fn resolve(&self, reference: &str, at: &str) -> Result<(&'a Value, String), SchemaError> {
        let named = || (at.to_owned(), reference.chars().take(crate::limits::ERROR_CHARS_MAX).collect());
        let remote = || {
            let (at, reference) = named();
            SchemaError::RemoteReference { at, reference }
        };
        let dangling = || {
            let (at, reference) = named();
            SchemaError::DanglingReference { at, reference }
        };
        let fragment = reference.strip_prefix('#').ok_or_else(remote)?;
        let Some(pointer) = fragment.strip_prefix('/') else {
            return match fragment {
                "" => Ok((self.root, String::new())),
                name => self.anchors.get(name).cloned().ok_or_else(dangling),
            };
        };
        let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| dangling())?;
        let (mut value, mut place) = (self.root, String::new());
        for segment in pointer.split('/') {
            let next = match value {
                Value::Array(list) => segment.parse::<usize>().ok().and_then(|index| list.get(index)),
                value => value.get(unescape_segment(segment).as_ref()),
            };
            value = next.ok_or_else(dangling)?;
            place = format!("{place}/{segment}");
        }
        Ok((value, place))
    }
}

/// The pointer of a member.
pub(crate) fn join_pointer(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn unescape_segment(segment: &str) -> Cow<'_, str> {
    if segment.contains('~') { segment.replace("~1", "/").replace("~0", "~").into() } else { segment.into() }
}
