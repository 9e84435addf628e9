//! The operator's options, in the provider's own field names.

use model::json::JsonObject;
use serde_json::Value;

/// Options cannot change these.
const PROTECTED_FIELDS: [&str; 4] = ["model", "stream", "input", "messages"];
/// Options add to these arrays.
const APPENDED_LISTS: [&str; 2] = ["tools", "include"];
/// Options replace single members of these objects.
const MERGED_OBJECTS: [&str; 3] = ["reasoning", "text", "output_config"];

/// Merges the options over a complete body. The dialect adds `protected` to [`PROTECTED_FIELDS`]. An option that is `null`
/// removes the field.
pub(crate) fn merge_options(body: &mut JsonObject, options: &JsonObject, protected: &[&str]) {
    for (name, option) in options {
        if PROTECTED_FIELDS.contains(&name.as_str()) || protected.contains(&name.as_str()) {
            continue;
        }
        match (body.get_mut(name), option) {
            (Some(Value::Array(ours)), Value::Array(more)) if APPENDED_LISTS.contains(&name.as_str()) => {
                let new: Vec<Value> = more.iter().filter(|value| !ours.contains(value)).cloned().collect();
                ours.extend(new);
            }
            (Some(Value::Object(ours)), Value::Object(more)) if MERGED_OBJECTS.contains(&name.as_str()) => {
                ours.extend(more.clone());
            }
            (_, Value::Null) => {
                body.remove(name);
            }
            _ => {
                body.insert(name.clone(), option.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_override_all_but_fixed_fields_and_lists_are_extended() {
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
    fn an_operator_option_overrides_a_callers_setting_and_keeps_the_rest() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let mut body = object(json!({"reasoning": {"effort": "high"}, "text": {"format": 1}, "tool_choice": {"a": 1}}));
        let wishes = json!({"reasoning": {"summary": "auto"}, "text": {"format": 2}, "tool_choice": {"b": 2}});
        merge_options(&mut body, &object(wishes), &[]);
        let merged = json!({"reasoning": {"effort": "high", "summary": "auto"}, "text": {"format": 2},
            "tool_choice": {"b": 2}});
        assert_eq!(Value::Object(body), merged);
    }
}
