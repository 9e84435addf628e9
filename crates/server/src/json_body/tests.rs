use super::*;
use axum::response::IntoResponse as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Shape {
    name: String,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    inner: Vec<Inner>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Inner {
    flag: bool,
}

fn code(problem: Problem) -> (u16, String) {
    let response = problem.into_response();
    let status = response.status().as_u16();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bytes = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    (status, format!("{}: {}", body["code"].as_str().unwrap(), body["detail"].as_str().unwrap()))
}

fn parsed(text: &[u8]) -> Result<Value, (u16, String)> {
    strict_json::parse_strict_json(text).map(|value| value.to_value()).map_err(code)
}

#[test]
fn unambiguous_json_is_accepted() {
    let text = r#"{"a":[1,-2,3.5,true,null,"é\n"],"b":{"a":{}}}"#;
    assert_eq!(parsed(text.as_bytes()).unwrap(), json!({"a":[1,-2,3.5,true,null,"é\n"],"b":{"a":{}}}));
    assert_eq!(parsed(b" {} \n").unwrap(), json!({}));
    assert_eq!(parsed(b"[]").unwrap(), json!([]));
}

#[test]
fn invalid_json_is_refused() {
    let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
    let abyss = "[".repeat(100_000);
    let bad: [&[u8]; 14] = [
        b"",
        b"{} x",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":NaN}",
        b"{\"a\":1e999}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\\ud83d\"}",
        b"{\"a\":1,\"a\":1}",
        b"{\"x\":{\"b\":1,\"b\":2}}",
        b"{'a':1}",
        b"{\"a\":01}",
        deep.as_bytes(),
        abyss.as_bytes(),
    ];
    for text in bad {
        let (status, what) = parsed(text).unwrap_err();
        assert_eq!(status, 400, "{text:.40?}: {what}");
        assert!(what.starts_with("invalid_json: "), "{what}");
    }
    let fits = format!("{}{}", "[".repeat(32), "]".repeat(32));
    assert!(parsed(fits.as_bytes()).is_ok());
}

#[test]
fn nul_is_refused_at_any_position() {
    for text in [r#"{"a":"x\u0000y"}"#, r#"{"a\u0000":1}"#, r#"[{"a":["\u0000"]}]"#] {
        let (status, what) = parsed(text.as_bytes()).unwrap_err();
        assert_eq!((status, what.starts_with("nul_character")), (422, true), "{text}: {what}");
    }
}

#[test]
fn a_json_error_names_the_field() {
    let refused = |value: Value| code(JsonBody::from(ExactValue::from(value)).into_object::<Shape>().unwrap_err());
    let cases = [
        (json!({"name": 5}), "`name`"),
        (json!({"name": "x", "count": -1}), "`count`"),
        (json!({"name": "x", "inner": [{"flag": 1}]}), "`inner`"),
        (json!({"name": "x", "inner": [{"flag": true, "flog": 1}]}), "`flog`"),
        (json!({"name": "x", "__proto__": {}}), "`__proto__`"),
        (json!({}), "`name`"),
    ];
    for (value, field) in cases {
        let (status, what) = refused(value);
        assert_eq!(status, 422);
        assert!(what.starts_with("invalid_body: ") && what.contains(field), "{what}");
    }
    for value in [json!([]), json!(["x"]), json!("x"), json!(123), json!(null)] {
        assert_eq!(refused(value).0, 422);
    }
    let fits = JsonBody::from(ExactValue::from(json!({"name": "x", "count": null, "inner": [{"flag": true}]})));
    let shape = Shape { name: "x".to_owned(), count: None, inner: vec![Inner { flag: true }] };
    assert_eq!(fits.into_object::<Shape>().unwrap(), shape);
}

#[test]
fn the_digest_depends_on_the_value_not_on_its_formatting() {
    let digest = |text: &str| JsonBody::from(strict_json::parse_strict_json(text.as_bytes()).unwrap()).digest();
    assert_eq!(digest(r#"{"a":1,"b":{"c":2,"d":3}}"#), digest(r#"{ "b" : {"d":3, "c":2}, "a":1 }"#));
    assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":2}"#));
}

#[test]
fn a_large_body_is_parsed_in_linear_time_without_many_allocations() {
    let long = format!("[{:?}]", "A".repeat(32 * 1024 * 1024));
    let many = format!("[{}0]", "0,".repeat(16 * 1024 * 1024));
    let escaped = format!("[\"{}\"]", "\\n".repeat(16 * 1024 * 1024));
    let began = std::time::Instant::now();
    assert_eq!(parsed(long.as_bytes()).unwrap()[0].as_str().unwrap().len(), 32 * 1024 * 1024);
    assert_eq!(parsed(escaped.as_bytes()).unwrap()[0].as_str().unwrap().len(), 16 * 1024 * 1024);
    assert_eq!(parsed(many.as_bytes()).unwrap_err().0, 400);
    // Takes seconds where a quadratic parser would take hours; this is not a measurement.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    let fits = format!("[{}0]", "0,".repeat(512 * 1024 - 2));
    assert!(parsed(fits.as_bytes()).is_ok());
}

/// What is parsed at once is ready at the first poll; a long body leaves its worker to others.
#[tokio::test]
async fn a_long_body_is_parsed_beside_the_workers() {
    use futures_util::FutureExt as _;
    let keys = |count: usize| -> Bytes {
        let members: Map<String, Value> = (0..count).map(|n| (format!("k{n}"), Value::Null)).collect();
        Value::Object(members).to_string().into()
    };
    let user = UserId::from("ann");
    assert!(JsonBody::parse_text(keys(100), &user).now_or_never().is_some());
    let mut long = Box::pin(JsonBody::parse_text(keys(20_000), &user));
    assert!((&mut long).now_or_never().is_none());
    assert!(long.await.is_ok_and(|body| body.into_object::<Map<String, Value>>().is_ok_and(|map| map.len() == 20_000)));
}
