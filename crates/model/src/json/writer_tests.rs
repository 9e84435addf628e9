use super::write_json;
use model_testing::{Rng, test_seeds};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn written(value: &impl Serialize) -> Result<String, String> {
    let mut out = Vec::new();
    write_json(&mut out, value).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

#[track_caller]
fn assert_like_serde_json(value: &impl Serialize) {
    assert_eq!(written(value), serde_json::to_string(value).map_err(|error| error.to_string()));
}

#[derive(Serialize)]
enum Shape {
    Unit,
    Newtype(&'static str),
    Tuple(u8, Option<char>),
    Struct { a: (), b: Vec<i64> },
}

#[derive(Serialize)]
struct Newtype(f64);

#[derive(Serialize)]
struct Everything<'a> {
    texts: [&'a str; 3],
    raw: &'a RawValue,
    shapes: Vec<Shape>,
    map: BTreeMap<u32, bool>,
    tuple: (i128, f32, Newtype),
    empty: BTreeMap<String, ()>,
    none: Option<u8>,
    bytes: &'a [u8],
    #[serde(flatten)]
    more: BTreeMap<char, u64>,
}

#[test]
fn every_kind_of_value_is_written_as_by_serde_json() {
    let raw: Box<RawValue> = serde_json::from_str(r#"{ "as" : [1.50, "it\\u0041 is"] }"#).unwrap();
    assert_like_serde_json(&Everything {
        texts: ["plain", "a \"quote\", a \\, a line\nand \u{1}", "Grüße 🌊 \u{7f}"],
        raw: &raw,
        shapes: vec![
            Shape::Unit,
            Shape::Newtype("x"),
            Shape::Tuple(1, Some('"')),
            Shape::Struct { a: (), b: vec![i64::MIN, 0] },
        ],
        map: BTreeMap::from([(1, true), (20, false)]),
        tuple: (i128::MIN, 1.5, Newtype(1e300)),
        empty: BTreeMap::new(),
        none: None,
        bytes: b"ab",
        more: BTreeMap::from([('k', 7), ('"', 8)]),
    });
    assert_like_serde_json(&[f64::NAN, f64::INFINITY, -0.0, 0.1]);
    assert_like_serde_json(&BTreeMap::from([((1, 2), 3)]));
    assert_like_serde_json(&BTreeMap::from([(Shape::Unit.to_key(), 3)]));
}

impl Shape {
    const fn to_key(&self) -> &'static str {
        match self {
            Self::Unit => "unit",
            _ => "other",
        }
    }
}

/// Every byte that needs an escape, at every place of the eight that are searched together, next to every other byte.
#[test]
fn no_character_hides_from_the_search() {
    for c in (0..=0x100).filter_map(char::from_u32) {
        for place in 0..17 {
            for filler in ['a', '!', '#', '[', ']', '\u{7f}', 'é', '\u{10FFFF}'] {
                let mut text: Vec<char> = vec![filler; 17];
                text[place] = c;
                assert_like_serde_json(&text.into_iter().collect::<String>());
            }
        }
    }
}

#[test]
fn random_values_are_written_as_by_serde_json() {
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        for _ in 0..200 {
            let value = random_value(&mut rng, 0);
            assert_eq!(written(&value), Ok(value.to_string()), "SEED={seed}");
        }
    }
}

fn random_value(rng: &mut Rng, depth: u32) -> Value {
    let text = |rng: &mut Rng| -> String {
        (0..rng.below(20)).map(|_| char::from_u32(rng.between(0, 0x180)).unwrap_or('x')).collect()
    };
    match rng.below(if depth > 3 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(rng.chance(50)),
        2 => json!(i64::from(rng.between(0, u32::MAX)) - i64::from(rng.between(0, u32::MAX))),
        3 => json!(f64::from(rng.between(0, u32::MAX)) / 1024.0),
        4 => json!(text(rng)),
        5 => (0..rng.below(5)).map(|_| random_value(rng, depth + 1)).collect(),
        _ => Value::Object((0..rng.below(5)).map(|_| (text(rng), random_value(rng, depth + 1))).collect()),
    }
}
