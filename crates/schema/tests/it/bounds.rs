//! What is refused, what is not, and why.

use schema::limits::{PATTERNS_MAX, REFERENCES_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX};
use schema::{ArgumentsError, SchemaError, ToolSchema};
use serde_json::{Map, Value, json};

/// `levels` definitions, each of which applies the next one twice to the same value.
pub(crate) fn doubling_references(levels: usize) -> Value {
    let mut definitions = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        definitions.insert(format!("a{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert(format!("a{levels}"), json!({"type": "object"}));
    json!({"type": "object", "$ref": "#/$defs/a0", "$defs": definitions})
}

fn refusal(schema: &Value) -> SchemaError {
    match ToolSchema::compile(schema) {
        Ok(_) => panic!("accepted: {schema}"),
        Err(error) => error,
    }
}

fn validate(schema: &Value, arguments: &Value) -> Result<(), ArgumentsError> {
    ToolSchema::compile(schema).unwrap().validate(arguments)
}

#[test]
fn references_are_counted_as_expanded() {
    assert!(matches!(refusal(&doubling_references(45)), SchemaError::NestsTooFar { .. }));
    assert!(matches!(refusal(&doubling_references(14)), SchemaError::ExpandsTooFar { .. }));
    assert_eq!(validate(&doubling_references(8), &json!({})), Ok(()));
    let anchored = json!({"$defs": {"a": {"$anchor": "x", "type": "object"}}, "allOf": [{"$ref": "#x"}]});
    assert_eq!(validate(&anchored, &json!({})), Ok(()));
}

#[test]
fn recursion_has_to_consume_the_arguments() {
    for endless in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"type": "object"}, {"not": {"$ref": "#"}}]}),
        json!({"if": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"properties": {"a": {"$dynamicRef": "#x"}}, "$defs": {"x": {"$dynamicAnchor": "x", "oneOf": [{"$ref": "#x"}]}}}),
    ] {
        assert!(matches!(refusal(&endless), SchemaError::Endless { .. }), "{endless}");
    }
    let tree = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    });
    let mut value = json!({"name": "leaf"});
    for _ in 0..30 {
        value = json!({"name": "n", "children": [value, {"name": "other"}]});
    }
    assert_eq!(validate(&tree, &value), Ok(()));
    let error = validate(&tree, &json!({"name": "n", "children": [{"name": 1}]})).unwrap_err();
    assert!(error.to_string().starts_with("/children/0/name "), "{error}");
}

/// Each level of the arguments doubles the work, which no look at the schema alone can refuse.
#[test]
fn recursion_that_doubles_with_the_arguments_ends() {
    let twice = json!({"properties": {"a": {"$ref": "#"}}});
    let schema = json!({"type": "object", "allOf": [twice, twice]});
    let nested = |depth: usize| (0..depth).fold(json!({}), |value, _| json!({"a": value}));
    assert_eq!(validate(&schema, &nested(8)), Ok(()));
    assert_eq!(validate(&schema, &nested(60)), Err(ArgumentsError::TooExpensive));
}

#[test]
fn size_depth_and_counts_are_bounded() {
    let long = json!({"type": "object", "description": "x".repeat(SCHEMA_BYTES_MAX)});
    assert!(matches!(refusal(&long), SchemaError::TooLarge { .. }));
    let deep = (0..SCHEMA_DEPTH_MAX / 2 + 1).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    assert!(matches!(refusal(&deep), SchemaError::TooDeep { .. }));
    let references: Vec<Value> = (0..=REFERENCES_MAX).map(|_| json!({"$ref": "#/$defs/a"})).collect();
    let many = json!({"properties": {"a": {"anyOf": references}}, "$defs": {"a": true}});
    assert_eq!(refusal(&many), SchemaError::TooManyReferences);
    let chain = (0..400).map(|n| (format!("a{n}"), json!({"items": {"$ref": format!("#/$defs/a{}", n + 1)}})));
    let mut chain: Map<String, Value> = chain.collect();
    chain.insert("a400".to_owned(), json!(true));
    assert!(matches!(refusal(&json!({"$ref": "#/$defs/a0", "$defs": chain})), SchemaError::ReferencesTooHigh { .. }));
}

#[test]
fn references_stay_inside_the_schema() {
    for remote in ["https://example.org/a.json", "other.json#/a", "http://json-schema.org/draft-07/schema#"] {
        let error = refusal(&json!({"properties": {"a": {"$ref": remote}}}));
        assert!(matches!(&error, SchemaError::RemoteReference { at, .. } if at == "/properties/a/$ref"), "{error}");
    }
    assert!(matches!(refusal(&json!({"$ref": "#/$defs/none"})), SchemaError::DanglingReference { .. }));
    let nested = json!({"$defs": {"a": {"$id": "https://example.org/a", "$ref": "#/$defs/b"}}, "$ref": "#/$defs/a"});
    assert!(matches!(refusal(&nested), SchemaError::NestedId { .. }));
    let named = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.org/tool.json",
        "type": "object", "properties": {"$id": {"type": "string"}, "id": {"$ref": "#/definitions/a%20b"}},
        "definitions": {"a b": {"type": "string"}},
    });
    assert_eq!(validate(&named, &json!({"$id": "a", "id": "b"})), Ok(()));
    assert!(validate(&named, &json!({"id": 1})).is_err());
}

#[test]
fn patterns_are_bounded_and_do_not_backtrack() {
    let with = |pattern: &str| json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
    for (pattern, allowed) in [
        ("^[a-z]{2,64}$", true),
        (r"^\p{L}[\p{L}\p{N} ._-]*$", true),
        (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$", true),
        (r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$", true),
        (r"[\p{L}\p{N}]{150}", false),
        (r"((a{100}){100}){100}", false),
        (r"^(?=.*a)b", false),
        (r"(a)\1", false),
        ("(", false),
    ] {
        let compiled = ToolSchema::compile(&with(pattern));
        assert_eq!(compiled.is_ok(), allowed, "{pattern}: {:?}", compiled.err());
    }
    let error = refusal(&with("^(?=.*a)b"));
    assert!(
        error.to_string().contains("/properties/a/pattern") && error.to_string().contains("look-around"),
        "{error}"
    );
    assert!(matches!(refusal(&with(&"a".repeat(2_000))), SchemaError::PatternTooLong { .. }));
    let many: Map<String, Value> = (0..=PATTERNS_MAX).map(|n| (format!("^a{n}"), json!(true))).collect();
    assert_eq!(refusal(&json!({"patternProperties": many})), SchemaError::TooManyPatterns);
    // A backtracking engine takes exponential time here.
    let text = json!({"a": "a".repeat(50_000) + "!"});
    assert!(matches!(validate(&with("^(a+)+$"), &text), Err(ArgumentsError::Mismatch(_))));
}

/// `"format": "regex"` would compile what the model wrote.
#[test]
fn formats_describe_and_do_not_validate() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"a": {"type": "string", "format": "regex"}},
    });
    assert_eq!(validate(&schema, &json!({"a": "("})), Ok(()));
}

#[test]
fn errors_are_few_and_short() {
    let schema = json!({"type": "object", "additionalProperties": {"type": "integer"}, "required": ["n"]});
    assert_eq!(validate(&schema, &json!({"n": 1})), Ok(()));
    assert!(validate(&schema, &json!({})).unwrap_err().to_string().contains("\"n\""));
    let long = validate(&schema, &json!({"n": "x".repeat(10_000)})).unwrap_err().to_string();
    assert!(long.starts_with("/n ") && long.len() < 1_000, "{long}");
    let many: Map<String, Value> = (0..100).map(|n| (format!("k{n}"), json!("wrong"))).collect();
    assert_eq!(validate(&schema, &Value::Object(many)).unwrap_err().to_string().matches("; ").count(), 4);
}
