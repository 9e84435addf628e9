use schema::SchemaCache;
use serde_json::json;
use std::sync::Arc;

#[test]
fn a_schema_is_compiled_once() {
    let cache = SchemaCache::default();
    let schema = json!({"type": "object", "properties": {"a": {"pattern": "^a+$"}}});
    let first = cache.compile(&schema).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.compile(&schema).unwrap()));
    assert_eq!(cache.validate(&schema, &json!({"a": "aa"})), Ok(()));
    assert_eq!(cache.validate(&schema, &json!({"a": "aa"})), Ok(()));
    assert!(cache.validate(&schema, &json!({"a": "b"})).is_err());
}

#[test]
fn the_cache_does_not_grow_without_end() {
    let cache = SchemaCache::default();
    let schema = |n: usize| json!({"type": "object", "title": n.to_string()});
    let first = cache.compile(&schema(0)).unwrap();
    for n in 0..1_000 {
        cache.compile(&schema(n)).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &cache.compile(&schema(0)).unwrap()), "the oldest was dropped");
}
