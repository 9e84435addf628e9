//! Which arguments a tool's schema declares.

use serde_json::Value;
use std::collections::BTreeSet;

/// Schemas within schemas are looked at to this depth.
const NESTING_MAX: usize = 64;
/// Keywords whose schemas describe the same object.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_SCHEMAS: [&str; 3] = ["if", "then", "else"];

/// The arguments that a schema declares by name. A model may write others: most schemas do not forbid them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredParameters {
    names: BTreeSet<String>,
    /// The schema explicitly accepts other arguments.
    takes_others: bool,
}

impl DeclaredParameters {
    pub fn from_schema(schema: &Value) -> Self {
        let mut declared = Self::default();
        declared.collect(schema, schema, &mut BTreeSet::new(), NESTING_MAX);
        declared
    }

    pub fn declares(&self, name: &str) -> bool {
        self.takes_others || self.names.contains(name)
    }

    /// Each reference is followed once, so that a schema takes no longer than its size.
    fn collect<'a>(&mut self, schema: &'a Value, root: &'a Value, followed: &mut BTreeSet<&'a str>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if let Some(Value::Object(properties)) = schema.get("properties") {
            self.names.extend(properties.keys().cloned());
        }
        // Without the keyword others are valid too, but nobody has asked for them.
        self.takes_others |= match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => false,
            Some(_) => true,
        };
        self.takes_others |= schema.get("patternProperties").is_some();
        let reference = schema.get("$ref").and_then(Value::as_str).filter(|reference| followed.insert(reference));
        let target = reference.and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        let lists = IN_PLACE_LISTS.iter().filter_map(|keyword| schema.get(keyword)?.as_array()).flatten();
        let single = IN_PLACE_SCHEMAS.iter().filter_map(|keyword| schema.get(keyword));
        for inner in lists.chain(single).chain(target) {
            self.collect(inner, root, followed, depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declared(schema: &Value) -> DeclaredParameters {
        DeclaredParameters::from_schema(schema)
    }

    #[test]
    fn properties_are_declared_wherever_they_describe_the_same_object() {
        let schema = json!({
            "properties": {"a": {"properties": {"nested": {}}}},
            "allOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/more"}],
            "if": {"properties": {"c": {}}},
            "$defs": {"more": {"properties": {"d": {}}}, "unused": {"properties": {"e": {}}}},
        });
        let found = declared(&schema);
        assert_eq!(
            ["a", "b", "c", "d", "e", "nested"].map(|name| found.declares(name)),
            [true, true, true, true, false, false]
        );
    }

    #[test]
    fn other_arguments_are_declared_by_name_of_their_keyword_alone() {
        for schema in [json!({}), json!(true), json!({"type": "object"}), json!({"additionalProperties": false})] {
            assert!(!declared(&schema).declares("x"), "{schema}");
        }
        for schema in [
            json!({"additionalProperties": true}),
            json!({"additionalProperties": {"type": "string"}}),
            json!({"patternProperties": {"^x": {}}}),
        ] {
            assert!(declared(&schema).declares("x"), "{schema}");
        }
    }

    #[test]
    fn references_that_double_or_repeat_end() {
        let levels = (0..45).map(|level| {
            let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
            (format!("a{level}"), json!({"allOf": [next, next]}))
        });
        let defs: serde_json::Map<String, Value> = levels.collect();
        assert!(!declared(&json!({"$ref": "#/$defs/a0", "$defs": defs})).declares("x"));
        assert!(declared(&json!({"$ref": "#", "properties": {"x": {}}})).declares("x"));
    }
}
