use super::*;
use serde_json::json;
use std::cmp::Ordering;

/// Each of them changes in a `Value`.
const NUMBERS: [&str; 12] = [
    "18446744073709551617",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "-0",
    "-0.0",
    "1e2",
    "1E2",
    "1e+2",
    "1.50",
    "100.0e-2",
    "3.14159265358979323846264338327950288",
    "1e-400",
];

#[test]
fn numbers_keep_their_text_at_any_depth() {
    for number in NUMBERS {
        let text = format!(r#"{{"a":[{number},{{"b\"1":{number},"c":"2 \\"}}],"n":{number}}}"#);
        let spaced = text.replace(',', " ,\n\t").replace(':', " : ");
        assert_eq!(ExactValue::parse(&text).unwrap().to_string(), text);
        assert_eq!(ExactValue::parse(&spaced).unwrap().to_string(), text);
        let read: ExactValue = serde_json::from_str(&spaced).unwrap();
        assert_eq!(read.to_string(), text);
        let members: ExactObject = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&members).unwrap(), text);
    }
}

#[test]
fn other_values_are_what_a_value_is() {
    for text in [r#"{"b":[1,-2,0.5,"é\n",null,true],"a":{}}"#, "null", "[]", "\"x\"", "1e300", "[18446744073709551615]"]
    {
        let value: Value = serde_json::from_str(text).unwrap();
        let exact = ExactValue::parse(text).unwrap();
        assert_eq!(exact.to_value(), value);
        assert_eq!(serde_json::to_value(&exact).unwrap(), value);
        assert_eq!(ExactValue::from(value.clone()).to_value(), value);
        assert_eq!(serde_json::from_value::<ExactValue>(value.clone()).unwrap(), value.into());
    }
    for text in ["", "{", "1 2", "01", "1e999", r#"{"a":1,"a":1}"#, r#"{"a":"\ud800"}"#] {
        assert!(ExactValue::parse(text).is_err(), "{text}");
    }
}

/// `serde_json` gives a meaning of its own to such a key. Here it is a key.
#[test]
fn no_key_is_special() {
    for key in ["$serde_json::private::RawValue", "$serde_json::private::Number", EXACT_VALUE_TOKEN] {
        let text = format!(r#"{{"{key}":"[1,2]"}}"#);
        let ExactValue::Object(members) = ExactValue::parse(&text).unwrap() else { panic!("{text}") };
        assert_eq!(members.get(key), Some(&ExactValue::String("[1,2]".to_owned())));
        assert!(ExactValue::Object(members).to_value()[key].is_string());
    }
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Shape {
    kind: Kind,
    count: u32,
    rate: Option<f64>,
    args: Option<ExactValue>,
    #[serde(default)]
    metadata: ExactObject,
    other: Value,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    Of(u8),
}

#[test]
fn a_struct_is_read_from_an_exact_value_as_from_text() {
    for text in [
        r#"{"kind":"plain","count":1,"rate":1e2,"args":{"n":1e2},"metadata":{"z":-0},"other":[1,"x",null]}"#,
        r#"{"kind":{"of":7},"count":4294967295,"rate":null,"args":null,"other":{"a":{"b":1.5}}}"#,
    ] {
        let read = Shape::deserialize(ExactValue::parse(text).unwrap()).unwrap();
        assert_eq!(read, serde_json::from_str(text).unwrap());
    }
    let args = r#"{"kind":"plain","count":1,"args":[18446744073709551617],"other":0}"#;
    let args = Shape::deserialize(ExactValue::parse(args).unwrap()).unwrap().args.unwrap();
    assert_eq!(args.to_string(), "[18446744073709551617]");
}

/// Clients read these messages.
#[test]
fn errors_are_those_of_a_value() {
    let whole = json!({"kind": "plain", "count": 1, "other": 0});
    for (name, value) in [
        ("kind", json!("odd")),
        ("kind", json!({"a": 1, "b": 2})),
        ("kind", json!(true)),
        ("count", json!(-1)),
        ("count", json!(1.5)),
        ("count", json!("1")),
        ("count", json!(null)),
        ("rate", json!([])),
        ("metadata", json!([1])),
    ] {
        let mut bad = whole.clone();
        bad[name] = value;
        let expected = Shape::deserialize(bad.clone()).unwrap_err().to_string();
        assert_eq!(Shape::deserialize(ExactValue::from(bad)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn numbers_compare_by_what_they_are() {
    let ascending = [
        "-1e300",
        "-18446744073709551617",
        "-18446744073709551616",
        "-1.01",
        "-1.0",
        "-1e-400",
        "0",
        "1e-99999999999999999999",
        "1e-400",
        "0.001",
        "0.0010000000000000000000000001",
        "9.99",
        "100",
        "100.00000000000000000001",
        "18446744073709551616",
        "18446744073709551617",
        "1e300",
    ];
    let number = |text: &str| NumberText::from_checked(text);
    for (at, one) in ascending.iter().enumerate() {
        for (other_at, other) in ascending.iter().enumerate() {
            assert_eq!(number(one).compare(&number(other)), at.cmp(&other_at), "{one} {other}");
        }
    }
    for same in [["0", "-0.0e5"], ["100", "1e2"], ["100", "1E+2"], ["0.0120", "12e-3"], ["-1.0", "-0.1e1"]] {
        assert_eq!(number(same[0]).compare(&number(same[1])), Ordering::Equal, "{same:?}");
    }
}
