//! Texts with placeholders, taken apart once so that a delta costs one allocation.
//!
//! `{name}` is a placeholder only where `name` is known; every other brace is itself, so that JSON needs no escapes.

use super::ClockUs;
use super::limits::VALUE_CHARS_MAX;
use std::fmt::Write;

/// What every scenario's placeholders may be called; what `match` captures comes after them.
const GIVEN: [&str; 3] = ["ref", "tool", "result"];
/// The place of `{ref}` among a scenario's names.
pub(super) const REF: usize = 0;
/// The place of `{tool}`.
pub(super) const TOOL: usize = 1;
/// The place of `{result}`.
pub(super) const RESULT: usize = 2;
const INDEX_NAME: &str = "i";
const CLOCK_NAME: &str = "clock_us";

/// What placeholders of a scenario may be called, and what they stand for when a message does not say.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<String>,
    defaults: Vec<Option<String>>,
}

impl Names {
    /// What is always there, and what the expression captures.
    pub(super) fn new(captures: impl Iterator<Item = String>) -> Self {
        let names: Vec<String> = GIVEN.into_iter().map(str::to_owned).chain(captures).collect();
        Self { defaults: vec![None; names.len()], names }
    }

    /// May an expression not call a capture so?
    pub(super) fn is_taken(name: &str) -> bool {
        GIVEN.contains(&name) || [INDEX_NAME, CLOCK_NAME].contains(&name)
    }

    /// Which of them this is.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// What it is called.
    pub(super) fn name(&self, value: usize) -> &str {
        self.names.get(value).map_or("", String::as_str)
    }

    /// What it stands for by default.
    pub(super) fn default_of(&self, value: usize) -> Option<&str> {
        self.defaults.get(value)?.as_deref()
    }

    /// Sets what it stands for by default.
    pub(super) fn set_default(&mut self, value: usize, text: String) {
        if let Some(slot) = self.defaults.get_mut(value) {
            *slot = Some(text);
        }
    }

    /// What every one of them stands for, given what is `found`. Nothing found and no default is the empty text.
    pub(super) fn values<'a>(&self, found: impl Fn(usize, &str) -> Option<&'a str>) -> Vec<String> {
        let values = self.names.iter().enumerate().map(|(value, name)| {
            let text = found(value, name).filter(|text| !text.is_empty()).or_else(|| self.default_of(value));
            text.unwrap_or_default().chars().take(VALUE_CHARS_MAX).collect()
        });
        values.collect()
    }
}

/// A text with placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Value(usize),
    Index,
    Clock,
}

/// What placeholders stand for in one delta.
pub(super) struct Filling<'a> {
    pub(super) values: &'a [String],
    /// `{i}`.
    pub(super) index: u64,
    /// `{clock_us}`.
    pub(super) clock: &'a ClockUs,
    pub(super) form: Form,
}

/// What kind of text is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Words,
    /// Values stand within JSON strings: what a user wrote must not end them.
    Json,
}

impl Template {
    pub(super) fn compile(text: &str, names: &Names) -> Self {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from_brace) = rest.split_at(open);
            literal.push_str(before);
            match placeholder(from_brace, names) {
                Some((segment, after)) => {
                    if !literal.is_empty() {
                        segments.push(Segment::Literal(std::mem::take(&mut literal)));
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
            segments.push(Segment::Literal(literal));
        }
        Self { segments }
    }

    /// The whole text is one placeholder: which one?
    pub(super) fn sole_value(&self) -> Option<usize> {
        match self.segments.as_slice() {
            [Segment::Value(value)] => Some(*value),
            _ => None,
        }
    }

    /// The text, if it has no placeholders.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.segments.as_slice() {
            [Segment::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// All of it are placeholders that stand for nothing: which is the first?
    pub(super) fn void_value(&self, values: &[String]) -> Option<usize> {
        let mut void = self.segments.iter().map(|segment| match segment {
            Segment::Value(value) if values.get(*value).is_none_or(String::is_empty) => Some(*value),
            _ => None,
        });
        let first = void.next()??;
        void.all(|value| value.is_some()).then_some(first)
    }

    pub(super) fn fill(&self, with: &Filling<'_>) -> String {
        if let Some(text) = self.literal() {
            return text.to_owned();
        }
        let mut out = String::with_capacity(64);
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => out.push_str(text),
                Segment::Value(value) => push_value(&mut out, with, *value),
                // Writing to a string cannot fail.
                Segment::Index => drop(write!(out, "{}", with.index)),
                Segment::Clock => drop(write!(out, "{}", (with.clock)())),
            }
        }
        out
    }
}

fn push_value(out: &mut String, with: &Filling<'_>, value: usize) {
    let text = with.values.get(value).map_or("", String::as_str);
    match with.form {
        Form::Words => out.push_str(text),
        Form::Json => {
            let quoted = serde_json::Value::from(text).to_string();
            out.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        }
    }
}

/// The placeholder that `text` begins with, and what follows it.
fn placeholder<'t>(text: &'t str, names: &Names) -> Option<(Segment, &'t str)> {
    let (name, after) = text.strip_prefix('{')?.split_once('}')?;
    let segment = match name {
        INDEX_NAME => Segment::Index,
        CLOCK_NAME => Segment::Clock,
        _ => Segment::Value(names.find(name)?),
    };
    Some((segment, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn filled(text: &str, form: Form, values: &[&str]) -> String {
        let names = Names::new(["city".to_owned(), "n".to_owned()].into_iter());
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let clock: ClockUs = Arc::new(|| 1_700_000_000_000_000);
        Template::compile(text, &names).fill(&Filling { values: &values, index: 3, clock: &clock, form })
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
            assert_eq!(filled(text, Form::Words, &["7", "pick", "red", "Rome", "2"]), wanted, "{text}");
        }
    }

    #[test]
    fn a_value_cannot_break_out_of_json() {
        let text = filled(r#"{"q":"{city}"}"#, Form::Json, &["", "", "", "a\"},{\"b\\\n", ""]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["q"], "a\"},{\"b\\\n");
    }

    #[test]
    fn a_text_is_void_when_nothing_but_empty_values_is_in_it() {
        let names = Names::new(["n".to_owned()].into_iter());
        let values = ["", "", "red", ""].map(str::to_owned);
        let void = |text: &str| Template::compile(text, &names).void_value(&values);
        assert_eq!((void("{tool}"), void("{n}{tool}"), void("{ref}")), (Some(TOOL), Some(3), Some(REF)));
        for text in ["", "x", "{result}", "{tool}x", "{tool}{result}", "{tool}{i}"] {
            assert_eq!(void(text), None, "{text}");
        }
    }

    #[test]
    fn a_value_is_what_was_found_or_the_default_or_nothing() {
        let mut names = Names::new(["n".to_owned(), "m".to_owned()].into_iter());
        names.set_default(3, "50".to_owned());
        assert_eq!(names.values(|_, _| None), ["", "", "", "50", ""]);
        assert_eq!(names.values(|_, name| (name == "n").then_some("")), ["", "", "", "50", ""]);
        assert_eq!(names.values(|_, _| Some("9")), ["9"; 5]);
        let long = "é".repeat(VALUE_CHARS_MAX + 1);
        assert_eq!(names.values(|_, _| Some(&long))[4].chars().count(), VALUE_CHARS_MAX);
    }
}
