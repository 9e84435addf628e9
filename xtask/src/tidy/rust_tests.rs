//! Finds a test in a Rust source by reading it, without compiling anything.
//!
//! Comments and strings are blanked first, so that a test in a comment is not a test. A test is a `fn` of that name
//! under an attribute whose last word is `test` (`#[test]`, `#[tokio::test]`, also inside `proptest!`), with no
//! `ignore` among its attributes. A name that is passed to a macro of the same file which expands to such tests
//! (`#[test] fn $name`) counts as well: that is how a conformance suite is run for each store.

use super::rust_source::{blank_comments_and_literals, has_word, is_word};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TestStatus {
    Runs,
    Ignored,
    NotATest,
    Missing,
}

pub(crate) fn find_rust_test(source: &str, name: &str) -> TestStatus {
    let code = blank_comments_and_literals(source);
    if let Some(found) = best_function_status(&code, name) {
        return found;
    }
    let made_by_macro = code.match_indices("macro_rules!").any(|(at, _)| {
        let definition = code.get(at..).unwrap_or_default();
        let macro_name = definition.trim_start_matches("macro_rules!").trim_start().split(|c: char| !is_word(c)).next();
        let body = bracket_group(definition);
        macro_name.is_some_and(|macro_name| expands_to_tests(body) && is_macro_argument(&code, macro_name, name))
    });
    if made_by_macro { TestStatus::Runs } else { TestStatus::Missing }
}

/// Looks at every `fn name`; the best status wins, because a helper elsewhere in the file may have the same name.
fn best_function_status(code: &str, name: &str) -> Option<TestStatus> {
    let verdicts = split_at_functions(code).filter(|(_, rest)| is_function_named(rest, name)).map(|(before, _)| {
        let attributes = attributes(before);
        match (attributes.iter().any(|a| is_test(a)), attributes.iter().any(|a| has_word(a, "ignore"))) {
            (true, false) => TestStatus::Runs,
            (true, true) => TestStatus::Ignored,
            (false, _) => TestStatus::NotATest,
        }
    });
    verdicts.min_by_key(|found| match found {
        TestStatus::Runs => 0,
        TestStatus::Ignored => 1,
        TestStatus::NotATest | TestStatus::Missing => 2,
    })
}

/// The code before and after each `fn`.
fn split_at_functions(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.match_indices("fn ").filter_map(|(at, _)| Some((code.get(..at)?, code.get(at + 3..)?.trim_start())))
}

fn is_function_named(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name).is_some_and(|after| !after.starts_with(is_word))
}

/// The attributes of a `fn`, skipping qualifiers such as `pub(crate) async`.
fn attributes(before: &str) -> Vec<&str> {
    let mut rest = before.trim_end();
    while let Some(shorter) = ["async", "pub", "pub(crate)", "pub(super)", "const"]
        .iter()
        .find_map(|word| rest.strip_suffix(word).filter(|shorter| !shorter.ends_with(is_word)))
    {
        rest = shorter.trim_end();
    }
    let mut attributes = Vec::new();
    while let Some((shorter, attribute)) = last_attribute(rest) {
        attributes.push(attribute);
        rest = shorter.trim_end();
    }
    attributes
}

/// Splits off a `#[…]` at the end of `text`, brackets within it matched.
fn last_attribute(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_suffix(']')?;
    let mut depth = 1_usize;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ']' => depth += 1,
            '[' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((inner.get(..at)?.strip_suffix('#')?, inner.get(at + 1..)?));
        }
    }
    None
}

fn is_test(attribute: &str) -> bool {
    let path = attribute.trim_start().split(|c: char| !is_word(c) && c != ':').next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

/// Whether a macro's body holds `#[…test] fn $name` that is not ignored.
fn expands_to_tests(body: &str) -> bool {
    split_at_functions(body).filter(|(_, rest)| rest.starts_with('$')).any(|(before, _)| {
        let attributes = attributes(before);
        attributes.iter().any(|a| is_test(a)) && !attributes.iter().any(|a| has_word(a, "ignore"))
    })
}

fn is_macro_argument(code: &str, macro_name: &str, name: &str) -> bool {
    let call = format!("{macro_name}!");
    code.match_indices(&call).any(|(at, _)| {
        let starts_a_word = !code.get(..at).unwrap_or_default().ends_with(is_word);
        let arguments = bracket_group(code.get(at + call.len()..).unwrap_or_default());
        starts_a_word && has_word(arguments, name)
    })
}

/// From the first bracket of any kind to the one that closes it.
fn bracket_group(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth <= 1 => return text.get(..=at).unwrap_or_default(),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
#[path = "rust_tests_tests.rs"]
mod tests;
