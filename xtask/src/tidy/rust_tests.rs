//! Finds a test in a Rust source by reading it, without compiling anything.
//!
//! Comments and strings are blanked first, so that a test in a comment is not a test. A test is a `fn` of that name
//! under an attribute whose last word is `test` (`#[test]`, `#[tokio::test]`, also inside `proptest!`), with no
//! attribute that speaks of `ignore`. A name that is handed to a macro of the same file which writes such tests
//! (`#[test] fn $name`) counts as well: that is how a conformance suite is run for each backend.

/// What became of the search for a test.
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

/// Looks at every `fn name`; the best answer wins, since a helper elsewhere in the file may share the name.
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

/// What stands before and after each `fn`.
fn split_at_functions(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.match_indices("fn ").filter_map(|(at, _)| Some((code.get(..at)?, code.get(at + 3..)?.trim_start())))
}

fn is_function_named(rest: &str, name: &str) -> bool {
    rest.strip_prefix(name).is_some_and(|after| !after.starts_with(is_word))
}

/// The attributes that stand right before a `fn`, past words such as `pub(crate) async`.
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

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !is_word(c)).any(|part| part == word)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The source with comments and the inside of literals blanked; line breaks stay.
fn blank_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let blank = literal_or_comment_len(rest, code.ends_with(is_word));
        let taken = if blank == 0 { first.len_utf8() } else { blank };
        let (piece, after) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        if blank == 0 {
            code.push(first);
        } else {
            code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    code
}

/// How many bytes at the start of `rest` are a comment or a literal; 0 when it is code.
fn literal_or_comment_len(rest: &str, after_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if rest.starts_with('"') {
        return quoted_len(rest, '"');
    }
    if rest.starts_with('\'') {
        return char_literal_len(rest);
    }
    if !after_word && rest.starts_with('r') { raw_string_len(rest) } else { 0 }
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_len(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are literals; `'a` of a lifetime is code.
fn char_literal_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => quoted_len(rest, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

fn raw_string_len(rest: &str) -> usize {
    let after_r = rest.get(1..).unwrap_or_default();
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let Some(body) = after_r.get(hashes..).and_then(|text| text.strip_prefix('"')) else {
        return 0; // a name that begins with r, or `r#name`
    };
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(rest.len(), |at| 1 + hashes + 1 + at + end.len())
}

#[cfg(test)]
#[path = "rust_tests_tests.rs"]
mod tests;
