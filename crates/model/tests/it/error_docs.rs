//! `docs/errors.md` is generated from the table of error codes. After a change of the table:
//! `UPDATE_DOCS=1 cargo test -p model the_documentation_lists`.

use model::error::{ErrorCode, ErrorScope};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

const INTRODUCTION: &str = "# Errors

<!-- Generated from crates/model/src/error/code.rs by crates/model/tests/it/error_docs.rs; do not edit. -->

Every error has a stable `code` for programs and a message for people. Messages may change between versions; codes do
not. `POST /v1/responses`, `/v1/chat/completions` and `/v1/messages` wrap the error as OpenAI and Anthropic do, and
answer 400 where the table says 422; `/v1/messages` answers 529 where it says 503.

An error is retryable if the same request may succeed later. If the error itself has a `retryable` member, it takes
precedence.
";

fn generate() -> String {
    let mut page = INTRODUCTION.to_owned();
    write_section(&mut page, ErrorScope::Request, "Requests", "The answer to a request is an RFC 9457 problem:");
    let run = "The `error` of a run or a task. A request that waits for the run gets this status:";
    write_section(&mut page, ErrorScope::Run, "Runs", run);
    let model = "The `error` of a model turn. The server retries what is retryable; what remains is the run's error:";
    write_section(&mut page, ErrorScope::Model, "Models", model);
    let tool =
        "The `error` of a tool result. The model reads it and the run goes on. Tools may use codes of their own:";
    write_section(&mut page, ErrorScope::Tool, "Tools", tool);
    page
}

fn write_section(page: &mut String, scope: ErrorScope, title: &str, introduction: &str) {
    let has_status = scope != ErrorScope::Tool;
    let status_column = if has_status { " Status |" } else { "" };
    let status_line = if has_status { "---|" } else { "" };
    write!(page, "\n## {title}\n\n{introduction}\n\n| Code |{status_column} Retryable | Meaning |\n").unwrap();
    writeln!(page, "|---|{status_line}---|---|").unwrap();
    for code in ErrorCode::ALL.iter().filter(|code| code.scope() == scope) {
        let status = if has_status { format!(" {} |", code.http_status()) } else { String::new() };
        let retryable = if code.is_retryable() { "yes" } else { "no" };
        let field = code.field().map(|field| format!(" (`{field}`)")).unwrap_or_default();
        let meaning = code.description();
        writeln!(page, "| `{}`{field} |{status} {retryable} | {meaning} |", code.as_str()).unwrap();
    }
}

#[test]
fn the_documentation_lists_every_error_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let expected = generate();
    if std::env::vars().any(|(name, _)| name == "UPDATE_DOCS") {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/errors.md is out of date: UPDATE_DOCS=1 cargo test -p model the_documentation");
}

/// Two variants may share a string only where their statuses differ: otherwise one of them is a duplicate.
#[test]
fn codes_with_the_same_string_differ_in_status() {
    let mut statuses: HashMap<&str, Vec<u16>> = HashMap::new();
    for code in ErrorCode::ALL {
        let known = statuses.entry(code.as_str()).or_default();
        assert!(!known.contains(&code.http_status()), "{code:?}");
        known.push(code.http_status());
        assert_eq!(ErrorCode::parse(code.as_str()).map(ErrorCode::as_str), Some(code.as_str()));
    }
    assert_eq!(ErrorCode::parse("closed"), None, "a tool's own code");
}
