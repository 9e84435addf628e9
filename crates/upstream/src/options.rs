//! The operator's wishes, in the provider's own words.

use model::json::JsonObject;
use serde_json::Value;

/// What no wish can change: which model is asked, what it is told, and that we listen.
const PROTECTED_FIELDS: [&str; 4] = ["model", "stream", "input", "messages"];
/// Lists of ours that wishes add to.
const APPENDED_LISTS: [&str; 2] = ["tools", "include"];
/// Objects in which a wish has a word of its own beside a caller's.
const MERGED_OBJECTS: [&str; 3] = ["reasoning", "text", "output_config"];

/// Puts the wishes over the body, as the last thing that is done to it. `kept` names what the dialect protects beyond
/// [`FIXED`]. A wish that is `null` takes a field of ours away.
pub(crate) fn merge_options(body: &mut JsonObject, options: &JsonObject, kept: &[&str]) {
    for (name, wish) in options {
        if PROTECTED_FIELDS.contains(&name.as_str()) || kept.contains(&name.as_str()) {
            continue;
        }
        match (body.get_mut(name), wish) {
            (Some(Value::Array(ours)), Value::Array(more)) if APPENDED_LISTS.contains(&name.as_str()) => {
                let new: Vec<Value> = more.iter().filter(|wish| !ours.contains(wish)).cloned().collect();
                ours.extend(new);
            }
            (Some(Value::Object(ours)), Value::Object(more)) if MERGED_OBJECTS.contains(&name.as_str()) => {
                ours.extend(more.clone());
            }
            (_, Value::Null) => {
                body.remove(name);
            }
            _ => {
                body.insert(name.clone(), wish.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wishes_win_but_for_what_is_fixed_and_lists_grow() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let mut body = object(json!({"model": "m", "stream": true, "tools": [1], "include": ["a"], "store": false,
            "ours": 1}));
        let wishes = json!({"model": "x", "stream": false, "messages": [], "tools": [2], "include": ["a", "b"],
            "store": true, "temperature": 0, "mine": 1, "ours": null});
        merge_options(&mut body, &object(wishes), &["mine"]);
        let merged = json!({"model": "m", "stream": true, "tools": [1, 2], "include": ["a", "b"], "store": true,
            "temperature": 0});
        assert_eq!(Value::Object(body), merged);
    }

    #[test]
    fn a_wish_wins_over_a_callers_and_leaves_the_rest_of_it() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let mut body = object(json!({"reasoning": {"effort": "high"}, "text": {"format": 1}, "tool_choice": {"a": 1}}));
        let wishes = json!({"reasoning": {"summary": "auto"}, "text": {"format": 2}, "tool_choice": {"b": 2}});
        merge_options(&mut body, &object(wishes), &[]);
        let merged = json!({"reasoning": {"effort": "high", "summary": "auto"}, "text": {"format": 2},
            "tool_choice": {"b": 2}});
        assert_eq!(Value::Object(body), merged);
    }
}
