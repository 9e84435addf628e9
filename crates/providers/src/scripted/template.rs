//! Texts with placeholders, compiled once so that a delta costs one allocation.
//!
//! `{name}` is a placeholder only if `name` is known; every other brace is literal, so that JSON needs no escapes.

use super::limits::PLACEHOLDER_CHARS_MAX;
use std::fmt::Write;
use std::sync::Arc;

/// Returns the microseconds since 1970, for `{clock_us}`.
pub type ClockUs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Placeholders of every scenario; the captures of `match` follow them.
const BUILTIN_NAMES: [&str; 3] = ["ref", "tool", "result"];
pub(super) const REF_INDEX: usize = 0;
pub(super) const TOOL_INDEX: usize = 1;
pub(super) const RESULT_INDEX: usize = 2;
const INDEX_NAME: &str = "i";
const CLOCK_NAME: &str = "clock_us";

/// The placeholders of a scenario, with their default values.
#[derive(Debug)]
pub(super) struct Placeholders {
    names: Vec<String>,
    defaults: Vec<Option<String>>,
}

impl Placeholders {
    pub(super) fn new(captures: impl Iterator<Item = String>) -> Self {
        let names: Vec<String> = BUILTIN_NAMES.into_iter().map(str::to_owned).chain(captures).collect();
        Self { defaults: vec![None; names.len()], names }
    }

    /// Whether a capture must not have this name.
    pub(super) fn is_reserved(name: &str) -> bool {
        BUILTIN_NAMES.contains(&name) || [INDEX_NAME, CLOCK_NAME].contains(&name)
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    pub(super) fn name(&self, value: usize) -> &str {
        self.names.get(value).map_or("", String::as_str)
    }

    pub(super) fn default_value(&self, value: usize) -> Option<&str> {
        self.defaults.get(value)?.as_deref()
    }

    pub(super) fn set_default(&mut self, value: usize, text: String) {
        if let Some(slot) = self.defaults.get_mut(value) {
            *slot = Some(text);
        }
    }

    /// The value of each placeholder: what `find` returns, else the default, else the empty string.
    pub(super) fn resolve_values<'a>(&self, find: impl Fn(usize, &str) -> Option<&'a str>) -> Vec<String> {
        let values = self.names.iter().enumerate().map(|(value, name)| {
            let text = find(value, name).filter(|text| !text.is_empty()).or_else(|| self.default_value(value));
            text.unwrap_or_default().chars().take(PLACEHOLDER_CHARS_MAX).collect()
        });
        values.collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<TemplateSegment>,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplateSegment {
    Literal(String),
    Placeholder(usize),
    Index,
    Clock,
}

pub(super) struct TemplateContext<'a> {
    pub(super) values: &'a [String],
    /// `{i}`.
    pub(super) index: u64,
    /// `{clock_us}`.
    pub(super) clock: &'a ClockUs,
    pub(super) escaping: TemplateEscaping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateEscaping {
    Plain,
    /// Values are inside JSON strings and must not end them.
    Json,
}

impl Template {
    pub(super) fn compile(text: &str, names: &Placeholders) -> Self {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from_brace) = rest.split_at(open);
            literal.push_str(before);
            match parse_placeholder(from_brace, names) {
                Some((segment, after)) => {
                    if !literal.is_empty() {
                        segments.push(TemplateSegment::Literal(std::mem::take(&mut literal)));
                    }
                    segments.push(segment);
                    rest = after;
                }
                None => {
                    literal.push('{');
                    rest = from_brace.strip_prefix('{').unwrap_or_default();
                }
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            segments.push(TemplateSegment::Literal(literal));
        }
        Self { segments }
    }

    /// The placeholder, if the text consists of exactly one.
    pub(super) fn single_placeholder(&self) -> Option<usize> {
        match self.segments.as_slice() {
            [TemplateSegment::Placeholder(value)] => Some(*value),
            _ => None,
        }
    }

    /// The text, if it has no placeholder.
    pub(super) fn as_literal(&self) -> Option<&str> {
        match self.segments.as_slice() {
            [TemplateSegment::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The first placeholder, if the text consists only of placeholders without a value.
    pub(super) fn first_empty_placeholder(&self, values: &[String]) -> Option<usize> {
        let mut empty = self.segments.iter().map(|segment| match segment {
            TemplateSegment::Placeholder(value) if values.get(*value).is_none_or(String::is_empty) => Some(*value),
            _ => None,
        });
        let first = empty.next()??;
        empty.all(|value| value.is_some()).then_some(first)
    }

    pub(super) fn render(&self, context: &TemplateContext<'_>) -> String {
        if let Some(text) = self.as_literal() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(64);
        for segment in &self.segments {
            match segment {
                TemplateSegment::Literal(text) => out.push_str(text),
                TemplateSegment::Placeholder(value) => push_value(&mut out, context, *value),
                // Writing to a string cannot fail.
                TemplateSegment::Index => drop(write!(out, "{}", context.index)),
                TemplateSegment::Clock => drop(write!(out, "{}", (context.clock)())),
            }
        }
        out
    }
}

fn push_value(out: &mut String, context: &TemplateContext<'_>, value: usize) {
    let text = context.values.get(value).map_or("", String::as_str);
    match context.escaping {
        TemplateEscaping::Plain => out.push_str(text),
        TemplateEscaping::Json => {
            let quoted = serde_json::Value::from(text).to_string();
            out.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        }
    }
}

/// The placeholder that `text` begins with, and the text after it.
fn parse_placeholder<'t>(text: &'t str, names: &Placeholders) -> Option<(TemplateSegment, &'t str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    let segment = match name {
        INDEX_NAME => TemplateSegment::Index,
        CLOCK_NAME => TemplateSegment::Clock,
        _ => TemplateSegment::Placeholder(names.find(name)?),
    };
    Some((segment, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, form: TemplateEscaping, values: &[&str]) -> String {
        let names = Placeholders::new(["city".to_owned(), "n".to_owned()].into_iter());
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let clock: ClockUs = Arc::new(|| 1_700_000_000_000_000);
        Template::compile(text, &names).render(&TemplateContext {
            values: &values,
            index: 3,
            clock: &clock,
            escaping: form,
        })
    }

    #[test]
    fn only_known_names_are_placeholders() {
        let cases = [
            ("plain", "plain"),
            ("", ""),
            ("{city}", "Rome"),
            ("to {city}, {n} times", "to Rome, 2 times"),
            ("{i}/{n} at {clock_us}", "3/2 at 1700000000000000"),
            ("[^{ref}]", "[^7]"),
            ("{tool} gave {result}", "pick gave red"),
            (r#"{"location":"{city}"}"#, r#"{"location":"Rome"}"#),
            ("{{city}}", "{Rome}"),
            ("{citty} {} { city } {city", "{citty} {} { city } {city"),
            ("é{city}é", "éRomeé"),
        ];
        for (text, wanted) in cases {
            assert_eq!(filled(text, TemplateEscaping::Plain, &["7", "pick", "red", "Rome", "2"]), wanted, "{text}");
        }
    }

    #[test]
    fn a_value_cannot_break_out_of_json() {
        let text = filled(r#"{"q":"{city}"}"#, TemplateEscaping::Json, &["", "", "", "a\"},{\"b\\\n", ""]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["q"], "a\"},{\"b\\\n");
    }

    #[test]
    fn a_template_with_only_empty_values_is_void() {
        let names = Placeholders::new(["n".to_owned()].into_iter());
        let values = ["", "", "red", ""].map(str::to_owned);
        let void = |text: &str| Template::compile(text, &names).first_empty_placeholder(&values);
        assert_eq!((void("{tool}"), void("{n}{tool}"), void("{ref}")), (Some(TOOL_INDEX), Some(3), Some(REF_INDEX)));
        for text in ["", "x", "{result}", "{tool}x", "{tool}{result}", "{tool}{i}"] {
            assert_eq!(void(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_is_the_capture_or_the_default_or_empty() {
        let mut names = Placeholders::new(["n".to_owned(), "m".to_owned()].into_iter());
        names.set_default(3, "50".to_owned());
        assert_eq!(names.resolve_values(|_, _| None), ["", "", "", "50", ""]);
        assert_eq!(names.resolve_values(|_, name| (name == "n").then_some("")), ["", "", "", "50", ""]);
        assert_eq!(names.resolve_values(|_, _| Some("9")), ["9"; 5]);
        let long = "é".repeat(PLACEHOLDER_CHARS_MAX + 1);
        assert_eq!(names.resolve_values(|_, _| Some(&long))[4].chars().count(), PLACEHOLDER_CHARS_MAX);
    }
}
