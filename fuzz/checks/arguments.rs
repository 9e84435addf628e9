//! The check of the fuzz target `tool_arguments`: an approval rule reads any arguments, and they are written
//! again as they were.
//!
//! The input is a rule, a line feed and the arguments.

use model::approval_rule::ApprovalRule;
use model::json::{ExactValue, parse_lenient_json};

pub(crate) fn a_rule_judges_any_arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (rule, arguments) = text.split_once('\n').unwrap_or(("amount > 100", text));
    if let Ok(lenient) = parse_lenient_json(arguments) {
        assert_eq!(parse_lenient_json(&lenient.to_string()).unwrap(), lenient, "{arguments:?}");
    }
    let (Ok(rule), Ok(value)) = (ApprovalRule::parse(rule), ExactValue::parse(arguments)) else { return };
    let written = value.to_string();
    let again = ExactValue::parse(&written).unwrap();
    assert_eq!(again, value, "{written}");
    assert_eq!(rule.requires_approval(&again), rule.requires_approval(&value), "{rule:?} {written}");
    assert!(value.is_object() || rule.requires_approval(&value), "{rule:?} {written}");
}
