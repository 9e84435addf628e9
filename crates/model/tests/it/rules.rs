//! Approval rules on arguments: what they mean, where they are refused, and that an undecidable rule asks.

use model::approval_rule::{ApprovalRule, ApprovalRuleError};
use model::definition::ApprovalPolicy;
use model::json::ExactValue;
use model::limits::{RULE_BYTES_MAX, RULE_DEPTH_MAX};
use model_testing::{Rng, test_seeds};
use serde_json::{Value, json};

fn rule_asks(rule: &str, arguments: &Value) -> bool {
    ApprovalRule::parse(rule)
        .unwrap_or_else(|error| panic!("{rule}: {error}"))
        .requires_approval(&arguments.clone().into())
}

fn refused(rule: &str) -> String {
    ApprovalRule::parse(rule).unwrap_err().to_string()
}

#[test]
fn a_quote_within_a_text_is_escaped_as_in_json() {
    for text in ["a\"b", "a\\", "\\\"", "\n"] {
        let order = json!({ "note": text });
        assert!(rule_asks(&format!("note == {}", json!(text)), &order), "{text:?}");
        assert!(!rule_asks(&format!("note == {}", json!("other")), &order), "{text:?}");
    }
}

#[test]
fn a_rule_asks_if_and_only_if_it_matches() {
    let order = json!({"quantity": 100, "symbol": "VNM", "live": true, "note": null, "tags": ["a", "b"],
        "legs": [{"price": 1.5}], "args": {"x": 1}, "in": 2});
    let holds = [
        "quantity == 100",
        "quantity >= 100 and quantity <= 100.0",
        "quantity != 99",
        "quantity > 99 and quantity < 101",
        "symbol == 'VNM'",
        "symbol < \"VNN\"",
        "live == true",
        "note == null",
        "symbol != null",
        "symbol in [\"X\", 'VNM']",
        "note in ['x', null]",
        "symbol contains \"NM\"",
        "tags contains 'b'",
        "tags[1] == 'b'",
        "legs[0].price > 1.25e0",
        "args.quantity == 100 and arguments.symbol == 'VNM'",
        "args.args.x == 1",
        "args.in == 2",
        "exists note and not exists nothing",
        "not (symbol == 'X' or quantity < 5)",
        "symbol == 'X' and quantity == 1 or live == true",
        "  quantity\n==\t100  ",
        "symbol == \"\\u0056NM\"",
    ];
    for rule in holds {
        assert!(rule_asks(rule, &order), "{rule}");
        assert!(!rule_asks(&format!("not ({rule})"), &order), "not ({rule})");
    }
}

#[test]
fn an_undecidable_operand_asks_unless_the_other_side_decides() {
    let order = json!({"quantity": "500", "symbol": "VNM", "legs": [1], "none": null, "object": {}});
    let doubtful = [
        "quantity > 100",      // a text, not a number
        "price > 100",         // missing
        "legs[1] == 1",        // beyond the list
        "symbol.name == 'x'",  // a text has no parts
        "symbol[0] == 'V'",    // nor elements
        "exists symbol.name",  // nor does anybody know whether it should
        "none == 'x'",         // null is no text
        "symbol contains 5",   // a text has no numbers in it
        "object contains 'a'", // only texts and lists contain
        "legs contains 'a'",   // a list of numbers has no texts
        "symbol in [1, 2]",    // nor is a text a number
        "symbol == 'VNM' and quantity > 100",
        "symbol == 'X' or quantity > 100",
    ];
    for rule in doubtful {
        assert!(rule_asks(rule, &order), "{rule}");
        assert!(rule_asks(&format!("not ({rule})"), &order), "not ({rule})");
    }
    assert!(!rule_asks("symbol == 'X' and quantity > 100", &order), "false and doubt is false");
    assert!(!rule_asks("quantity > 100 and symbol == 'X'", &order), "in either order");
    assert!(rule_asks("symbol == 'VNM' or quantity > 100", &order), "true or doubt is true");
    assert!(!rule_asks("not (symbol == 'VNM' or quantity > 100)", &order), "and so it is false turned round");
}

#[test]
fn non_object_arguments_always_ask() {
    for arguments in [json!(null), json!([]), json!("x"), json!(1), json!(true)] {
        for rule in ["x == 1", "not exists x", "exists x"] {
            assert!(rule_asks(rule, &arguments), "{rule} on {arguments}");
        }
    }
}

#[test]
fn numbers_compare_exactly_however_they_are_written() {
    let n = |text: &str| ExactValue::parse(&format!("{{\"n\": {text}}}")).unwrap();
    let rule_asks =
        |rule: &str, arguments: &ExactValue| ApprovalRule::parse(rule).unwrap().requires_approval(arguments);
    assert!(!rule_asks("n > 9007199254740993", &n("9007199254740993")));
    assert!(rule_asks("n > 9007199254740992", &n("9007199254740993")));
    assert!(rule_asks("n > 18446744073709551614", &n("18446744073709551615")));
    assert!(!rule_asks("n > -9223372036854775808", &n("-9223372036854775808")));
    // As floats these are equal.
    assert!(rule_asks("n > 18446744073709551616", &n("18446744073709551617")));
    assert!(!rule_asks("n > 18446744073709551617", &n("18446744073709551616")));
    assert!(rule_asks("n > 100", &n("100.00000000000000000001")));
    assert!(rule_asks("n == 1e20", &n("100000000000000000000")));
    assert!(!rule_asks("n == 1e20", &n("100000000000000000001")));
    assert!(!rule_asks("n < 0", &n("-0")));
    assert!(rule_asks("n > 9007199254740992.0", &n("9007199254740993")));
    assert!(!rule_asks("n > 1e300", &n("1e299")));
    assert!(!rule_asks("n != 0.1", &n("0.1")));
    assert!(!rule_asks("n != 1", &n("1.0")));
}

#[test]
fn a_syntax_error_names_its_column_and_what_was_expected() {
    let cases = [
        ("", "column 1: expected the name of an argument, found the end"),
        ("quantity", "column 9: expected `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `contains`, found the end"),
        ("quantity = 5", "column 10: expected `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `contains`, found `=`"),
        ("quantity > ", "column 12: expected a number, a \"text\", `true`, `false` or `null`, found the end"),
        ("quantity > limit", "column 12: expected a number, a \"text\", `true`, `false` or `null`, found `limit`"),
        ("100 < quantity", "column 1: expected the name of an argument, found `100`"),
        ("größe > 1 und x == 2", "column 11: expected `and`, `or` or the end, found `und`"),
        ("(a == 1", "column 8: expected `and`, `or` or `)`, found the end"),
        ("a == 01", "column 6: expected a number as JSON writes it, found `01`"),
        ("a == 1e999", "column 6: expected a number as JSON writes it, found `1e999`"),
        ("a == \"x", "column 6: expected a text with its closing `\"`, and escapes as in JSON, found `\"x`"),
        ("a == 'x", "column 6: expected a text with its closing `'`, found `'x`"),
        ("a < true", "column 5: expected a number or a text, which have an order, found `true`"),
        ("a in 5", "column 6: expected a list like `[\"a\", \"b\"]`, found `5`"),
        ("a in []", "column 7: expected a number, a \"text\", `true`, `false` or `null`, found `]`"),
        ("a in [1, 'x']", "column 10: expected the same type as before in this list, found `'x']`"),
        ("a in [1 2]", "column 9: expected `,` or `]`, found `2]`"),
        ("a[x] == 1", "column 3: expected a list index, from 0, found `x`"),
        ("a. b == 1", "column 4: expected the name of an argument, found `b`"),
        ("in == 1", "column 1: expected the name of an argument (`args.` may stand before it), found `in`"),
        ("true", "column 1: expected the name of an argument (`args.` may stand before it), found `true`"),
    ];
    for (rule, wanted) in cases {
        assert_eq!(refused(rule), wanted, "{rule}");
    }
}

#[test]
fn length_and_depth_are_bounded() {
    let long = |length: usize| format!("a == '{}'", "x".repeat(length - 7));
    assert!(ApprovalRule::parse(&long(RULE_BYTES_MAX)).is_ok());
    assert_eq!(ApprovalRule::parse(&long(RULE_BYTES_MAX + 1)), Err(ApprovalRuleError::TooLong));
    for (open, close) in [("(", ")"), ("not ", "")] {
        let deep = |depth: usize| format!("{}a == 1{}", open.repeat(depth), close.repeat(depth));
        assert!(ApprovalRule::parse(&deep(RULE_DEPTH_MAX)).is_ok());
        let column = open.len() * (RULE_DEPTH_MAX + 1) + usize::from(open == "(");
        let error = ApprovalRule::parse(&deep(RULE_DEPTH_MAX + 1)).unwrap_err();
        assert!(matches!(error, ApprovalRuleError::TooDeep { column: at } if at.abs_diff(column) <= 1), "{error}");
    }
    // Adjacent brackets are not nested.
    assert!(ApprovalRule::parse(&vec!["(a == 1)"; 50].join(" and ")).is_ok());
}

#[test]
fn a_rule_serialises_as_its_text() {
    let text = "quantity > 100 and symbol != \"VNM\"";
    let rule = ApprovalRule::parse(text).unwrap();
    assert_eq!(rule.to_string(), text);
    let approval = ApprovalPolicy::When(rule);
    let written = serde_json::to_string(&approval).unwrap();
    assert_eq!(serde_json::from_str::<ApprovalPolicy>(&written).unwrap(), approval);
    let error = serde_json::from_str::<ApprovalRule>("\"quantity >\"").unwrap_err().to_string();
    assert!(error.contains("column 11: expected a number"), "{error}");
}

#[test]
fn a_rule_lists_the_arguments_that_it_reads() {
    let rule =
        ApprovalRule::parse("not (a.b == 1) or args.c[0] in [1] and exists d or arguments.e contains 1").unwrap();
    assert_eq!(rule.argument_names().collect::<Vec<_>>(), ["a", "c", "d", "e"]);
}

const NAMES: [&str; 6] = ["a", "b", "args.c", "arguments.a.b", "a[0]", "b[1].c"];
const LITERALS: [&str; 9] = ["1", "-2.5", "9007199254740993", "'x'", "\"y\\n\"", "true", "false", "null", "1e30"];

/// A rule that parses. `exists` is left out on request, since it tests for missing values.
fn random_rule(chance: &mut Rng, depth: u32, exists: bool) -> String {
    let path = chance.choose("a", &NAMES);
    let literal = chance.choose("1", &LITERALS);
    match chance.below(if depth == 0 { 4 } else { 8 }) {
        0 => format!("{path} {} {literal}", chance.choose("==", &["!="])),
        1 => format!("{path} {} {}", chance.choose("<", &["<=", ">", ">="]), chance.choose("1", &["'x'", "0.5"])),
        2 if exists => format!("exists {path}"),
        2 => format!("{path} in [{literal}, null]"),
        3 => format!("{path} contains {literal}"),
        4 => format!("not {}", random_rule(chance, depth - 1, exists)),
        5 => format!("({})", random_rule(chance, depth - 1, exists)),
        6 => format!("{} and {}", random_rule(chance, depth - 1, exists), random_rule(chance, depth - 1, exists)),
        _ => format!("{} or {}", random_rule(chance, depth - 1, exists), random_rule(chance, depth - 1, exists)),
    }
}

fn random_json(chance: &mut Rng, depth: u32) -> Value {
    match chance.below(if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => json!(chance.chance(50)),
        2 => json!(chance.next_u64()),
        3 => json!(f64::from_bits(chance.next_u64())),
        4 => json!(chance.choose("x", &["", "y\n", "1", "ü"])),
        5 => json!(chance.choose(0, &[1, -2, 3])),
        6 => (0..chance.below(3)).map(|_| random_json(chance, depth - 1)).collect(),
        _ => random_object(chance, depth - 1),
    }
}

fn random_object(chance: &mut Rng, depth: u32) -> Value {
    (0..chance.below(4)).map(|_| (chance.choose("a", &["b", "c"]).to_owned(), random_json(chance, depth))).collect()
}

#[test]
fn no_text_and_no_arguments_make_a_rule_panic() {
    const PIECES: [&str; 24] = [
        "a", "b.c", "[", "]", "(", ")", "==", "<", " and ", " or ", "not ", "exists ", " in ", "'", "\"", "\\", "1",
        "-", ".", ",", "e9", "ü", "\u{0}", "true",
    ];
    for seed in test_seeds() {
        println!("SEED={seed}");
        let mut chance = Rng::new(seed);
        for _ in 0..300 {
            let mut text = if chance.chance(50) { random_rule(&mut chance, 3, true) } else { String::new() };
            for _ in 0..chance.below(12) {
                let places: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
                text.insert_str(*chance.pick(&places).unwrap(), chance.choose(" ", &PIECES));
            }
            match ApprovalRule::parse(&text) {
                Ok(rule) => drop(rule.requires_approval(&random_json(&mut chance, 3).into())),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn a_missing_argument_asks() {
    for seed in test_seeds() {
        let mut chance = Rng::new(seed);
        for _ in 0..300 {
            let text = random_rule(&mut chance, 4, false);
            // Some are too long; none is invalid otherwise.
            let rule = match ApprovalRule::parse(&text) {
                Err(ApprovalRuleError::TooLong) => continue,
                read => read.unwrap_or_else(|error| panic!("SEED={seed}: {text}: {error}")),
            };
            for arguments in
                [json!({}), json!({"d": random_json(&mut chance, 3)}), json!([random_json(&mut chance, 1)])]
            {
                assert!(rule.requires_approval(&arguments.clone().into()), "SEED={seed}: {text} on {arguments}");
            }
        }
    }
}

#[test]
fn a_rule_or_its_negation_always_asks() {
    for seed in test_seeds() {
        let mut chance = Rng::new(seed);
        let mut silent = 0;
        for _ in 0..300 {
            let text = random_rule(&mut chance, 3, true);
            let arguments = random_object(&mut chance, 3);
            let (Ok(rule), Ok(opposite)) = (ApprovalRule::parse(&text), ApprovalRule::parse(&format!("not ({text})")))
            else {
                continue;
            };
            silent += usize::from(!rule.requires_approval(&arguments.clone().into()));
            assert!(
                rule.requires_approval(&arguments.clone().into())
                    || opposite.requires_approval(&arguments.clone().into()),
                "SEED={seed}: {text} on {arguments}"
            );
        }
        assert!(silent > 0, "SEED={seed}: nothing was ever let through");
    }
}
