//! The slowest schemas and arguments that the bounds let through. `docs/tools.md` promises a second for each on one core of
//! an ordinary machine; a test allows five times that, because it is neither optimised nor alone.

use crate::bounds::doubling_references;
use schema::limits::{PATTERNS_MAX, SCHEMA_BYTES_MAX};
use schema::{ArgumentsError, ToolSchema};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

const PROMISED: Duration = Duration::from_secs(1);

fn measure<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let took = start.elapsed();
    eprintln!("{name}: {took:?}");
    assert!(took < PROMISED * 5, "{name} took {took:?}");
    result
}

/// Grows the arguments until they are refused, and measures the largest that are not.
fn measure_largest(name: &str, schema: &Value, arguments: impl Fn(usize) -> Value) {
    let schema = measure(&format!("compile {name}"), || ToolSchema::compile(schema).unwrap());
    let fits = |size: usize| schema.validate(&arguments(size)) != Err(ArgumentsError::TooExpensive);
    let (mut low, mut high) = (1, 2);
    while high < 400_000 && fits(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > low / 16 + 1 && high < 400_000 {
        let middle = usize::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    let largest = arguments(low);
    let result = measure(&format!("{name} of {low}"), || schema.validate(&largest));
    assert_ne!(result, Err(ArgumentsError::TooExpensive));
}

#[test]
fn no_schema_takes_long_to_compile() {
    let patterns = |pattern: &str| -> Value {
        let list = |count: usize| (0..count).map(|n| json!({"pattern": format!("{pattern}{n}")})).collect::<Vec<_>>();
        let schema = |count: usize| json!({"anyOf": list(count)});
        schema([64, 32, 16, 8, 4, 2, 1].into_iter().find(|count| ToolSchema::compile(&schema(*count)).is_ok()).unwrap())
    };
    for (name, schema) in [
        ("unicode classes", patterns(r"[\p{L}\p{N}]")),
        ("many unicode classes", patterns(&format!("[{}]", r"\p{L}\p{N}\p{S}".repeat(30)))),
        ("repeated patterns", patterns("([ab]{1,30}){1,30}")),
        ("many properties", many_properties()),
        ("expansion", doubling_references(11)),
        ("chain of references", reference_chain(100)),
    ] {
        let compiled = measure(name, || ToolSchema::compile(&schema));
        assert!(compiled.is_ok(), "{name}: {:?}", compiled.err());
    }
}

fn many_properties() -> Value {
    let mut properties = Map::new();
    let mut bytes = 0;
    while bytes < SCHEMA_BYTES_MAX - 2_000 {
        let name = format!("p{}", properties.len());
        bytes += name.len() + 5 + 27;
        properties.insert(name, json!({"items": {"type": "string"}}));
    }
    json!({"type": "object", "properties": properties})
}

fn reference_chain(length: usize) -> Value {
    let definitions = (0..length).map(|n| {
        let schema = json!({"items": {"items": {"$ref": format!("#/$defs/a{}", n + 1)}}});
        (format!("a{n}"), if n + 1 == length { json!({"type": "integer"}) } else { schema })
    });
    json!({"items": {"$ref": "#/$defs/a0"}, "$defs": definitions.collect::<Map<String, Value>>()})
}

#[test]
fn no_arguments_take_long_to_validate() {
    let list = |value: Value| move |size: usize| json!({"list": vec![value.clone(); size]});
    let each = |schema: Value| json!({"type": "object", "properties": {"list": {"items": schema}}});
    let mut expansion = doubling_references(11);
    expansion["$defs"]["a11"] =
        json!({"type": ["array", "object"], "properties": {"list": {"items": {"type": "integer"}}}});
    measure_largest("expanded references", &expansion, list(json!(1)));
    let words: Vec<String> = (0..4_000).map(|n| format!("word{n}")).collect();
    measure_largest("enum", &each(json!({"enum": words})), list(json!("word4000")));
    measure_largest("wrong items", &each(json!({"type": "integer"})), list(json!("x")));
    let alternatives: Vec<Value> = (0..1_000).map(|n| json!({"properties": {"a": {"const": n}}})).collect();
    measure_largest("alternatives", &each(json!({"anyOf": alternatives})), list(json!({"a": 1_000})));
    measure_largest(
        "unique items",
        &json!({"properties": {"list": {"uniqueItems": true}}}),
        |size| json!({"list": (0..size).map(|n| json!([n, {"a": n}])).collect::<Vec<_>>()}),
    );
    let twice = json!({"properties": {"a": {"$ref": "#"}}});
    measure_largest("doubling recursion", &json!({"allOf": [twice, twice], "type": "object"}), |size| {
        (0..size).fold(json!({}), |value, _| json!({"a": value}))
    });
    let nested = json!({"anyOf": [{"type": "integer"}, {"items": {"$ref": "#/$defs/a"}, "type": "array"}]});
    measure_largest(
        "deep recursion",
        &json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": nested}}),
        |size| json!({"a": (0..size.min(120)).fold(json!("wrong"), |value, _| json!([value]))}),
    );
    let unevaluated = (0..6).fold(
        json!({"properties": {"a": true}}),
        |inner, _| json!({"anyOf": [inner], "unevaluatedProperties": {"type": "integer"}}),
    );
    measure_largest("unevaluated properties", &unevaluated, |size| {
        Value::Object((0..size).map(|n| (format!("k{n}"), json!(1))).collect())
    });
}

#[test]
fn no_text_takes_long_to_match() {
    // The automaton of the first pattern is too large to be built, so that all of its states are followed for each byte.
    for pattern in ["^[ab]*a[ab]{500}c$", r"([\p{L}\p{N}]*a)*[\p{L}\p{N}]b$", "(a?){300}a{300}$"] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        measure_largest(pattern, &schema, |size| {
            let noise = |n: usize| if n.wrapping_mul(2_654_435_761) >> 7 & 1 == 0 { 'a' } else { 'b' };
            json!({"a": (0..size).map(noise).collect::<String>()})
        });
    }
    let names: Map<String, Value> =
        (0..PATTERNS_MAX).map(|n| (format!("[ab]*a[ab]{{50}}c{n}"), json!({"type": "integer"}))).collect();
    measure_largest("pattern properties", &json!({"patternProperties": names}), |size| {
        Value::Object((0..size).map(|n| (format!("{n:b}").replace('0', "a").replace('1', "b"), json!(1))).collect())
    });
}
