//! Tools of `kind = "http"`.

use super::headers::read_headers;
use super::suggest;
use super::table::{ConfigTable, ConfigValue, quote_text};
use super::urls;
use model::definition::HttpTool;
use serde_json::Value;

/// The arguments that are not in the URL become the query of these methods.
const QUERY_METHODS: [&str; 3] = ["GET", "HEAD", "DELETE"];
/// … and the body of these.
const BODY_METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];

/// `known` are the names of the parameters; without them, placeholders are not checked.
pub(super) fn read_http_tool(table: &ConfigTable<'_>, known: Option<&[&str]>) -> Option<HttpTool> {
    let Some(item) = table.get("url") else {
        table.report_error("`url` is missing; write `url = \"https://…\"`");
        return None;
    };
    let url = item.text()?;
    let used = url_placeholders(&item, url, known)?;
    let body = table.get("body").and_then(|body| Some((body.clone(), body.json()?)));
    if let Some((item, body)) = &body {
        check_body_placeholders(item, body, known);
    }
    let all_used = known.unwrap_or_default().iter().all(|name| used.contains(name));
    let method = table.get("method").and_then(|item| read_method(&item));
    let method = method.unwrap_or(if all_used && body.is_none() { "GET" } else { "POST" });
    if let Some((item, _)) = &body
        && QUERY_METHODS.contains(&method)
    {
        item.report_error(format!("{method} sends no body; write `method = \"POST\"`, or remove the body"));
    }
    Some(HttpTool {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: read_headers(table),
        body: body.map(|(_, body)| body),
        result: table.get("result").and_then(|item| read_json_pointer(&item)),
    })
}

fn read_method(item: &ConfigValue<'_>) -> Option<&'static str> {
    let text = item.text()?;
    let known: Vec<&str> = QUERY_METHODS.iter().chain(&BODY_METHODS).copied().collect();
    let found = QUERY_METHODS.into_iter().chain(BODY_METHODS).find(|method| method.eq_ignore_ascii_case(text));
    if found.is_none() {
        item.report_error(format!(
            "{} is not a supported method; expected one of {}",
            quote_text(text),
            suggest::list_names(&known)
        ));
    }
    found
}

fn read_json_pointer(item: &ConfigValue<'_>) -> Option<String> {
    let text = item.text()?;
    let fits = text.is_empty() || text.starts_with('/');
    if !fits {
        item.report_error(format!("{} is not a JSON pointer; write it like `/data/0/name`", quote_text(text)));
    }
    fits.then(|| text.to_owned())
}

/// The names of the arguments in the URL.
fn url_placeholders<'a>(item: &ConfigValue<'_>, url: &'a str, known: Option<&[&str]>) -> Option<Vec<&'a str>> {
    let mut names: Vec<&str> = Vec::new();
    let mut filled = String::new();
    let mut rest = url;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            item.report_error("unclosed `{`; write `{name}` for the argument of that name");
            return None;
        };
        filled.push_str(before);
        if !has_authority(&filled) {
            item.report_error(format!("`{{{name}}}` is allowed in the path and the query only; write out the host"));
            return None;
        }
        if !names.contains(&name) {
            check_placeholder(item, name, known);
        }
        filled.push('x');
        names.push(name);
        rest = after;
    }
    filled.push_str(rest);
    urls::check_http_url(item, &filled).map(|_| names)
}

/// Whether the text has a complete `http://host` and the start of a path or query.
fn has_authority(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?', '#']))
}

/// A string `{name}` in the body stands for an argument.
fn check_body_placeholders(item: &ConfigValue<'_>, body: &Value, known: Option<&[&str]>) {
    match body {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                check_placeholder(item, name, known);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| check_body_placeholders(item, value, known)),
        Value::Object(members) => members.values().for_each(|value| check_body_placeholders(item, value, known)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn check_placeholder(item: &ConfigValue<'_>, name: &str, known: Option<&[&str]>) {
    if let Some(known) = known.filter(|known| !known.contains(&name)) {
        let placeholder = quote_text(&format!("{{{name}}}"));
        item.report_error(format!("{placeholder} is not a parameter; {}", suggest::suggest_name(name, known)));
    }
}
