//! Tables and values of the file, each with its place and its full key.
//!
//! Whoever reads a value gets `None` when it is not there or not right; in the second case that has been said already.

use super::diagnostics::{Diagnostics, Severity};
use super::suggest;
use model::error::truncate_text;
use model::json::JsonObject;
use serde_json::{Number, Value};
use std::ops::RangeInclusive;
use toml::de::{DeTable, DeValue};

/// JSON in the file is nested at most so deeply.
const JSON_DEPTH_MAX: usize = 64;

/// A table of the file.
#[derive(Clone)]
pub(super) struct ConfigTable<'a> {
    findings: &'a Diagnostics<'a>,
    key: String,
    offset: usize,
    entries: Option<&'a DeTable<'a>>,
}

/// A value of the file.
#[derive(Clone)]
pub(super) struct ConfigValue<'a> {
    findings: &'a Diagnostics<'a>,
    /// Its key, with the tables that it is in.
    key: String,
    /// Its place, or for a table that of its name.
    offset: usize,
    value: &'a DeValue<'a>,
}

impl<'a> ConfigTable<'a> {
    /// The whole file.
    pub(super) fn root(findings: &'a Diagnostics<'a>, entries: &'a DeTable<'a>, keys: &[&str]) -> Self {
        let table = Self { findings, key: String::new(), offset: 0, entries: Some(entries) };
        table.reject_unknown_keys(keys);
        table
    }

    /// What stands under a key.
    pub(super) fn get(&self, key: &str) -> Option<ConfigValue<'a>> {
        self.items().find(|(name, _)| *name == key).map(|(_, item)| item)
    }

    /// Everything in it, by name.
    pub(super) fn items(&self) -> impl Iterator<Item = (&'a str, ConfigValue<'a>)> {
        let entries = self.entries.into_iter().flat_map(DeTable::iter);
        entries.map(|(name, value)| {
            let at = if value.get_ref().is_table() { name.span().start } else { value.span().start };
            let name: &'a str = name.get_ref();
            let key = if self.key.is_empty() { quote_key(name) } else { format!("{}.{}", self.key, quote_key(name)) };
            (name, ConfigValue { findings: self.findings, key, offset: at, value: value.get_ref() })
        })
    }

    /// The names of what is in it.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.items().map(|(name, _)| name).collect()
    }

    /// The table under a key, which has these keys and no others. One that is not there is empty.
    pub(super) fn table(&self, key: &str, keys: &[&str]) -> Self {
        self.get(key).and_then(|item| item.table(keys)).unwrap_or_else(|| self.empty())
    }

    /// The table under a key, whose keys are names that the operator chose. One that is not there is empty.
    pub(super) fn free_table(&self, key: &str) -> Self {
        self.get(key).and_then(|item| item.free_table()).unwrap_or_else(|| self.empty())
    }

    fn empty(&self) -> Self {
        Self { findings: self.findings, key: self.key.clone(), offset: self.offset, entries: None }
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.flag()
    }

    pub(super) fn number(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        self.get(key)?.number(range)
    }

    pub(super) fn size(&self, key: &str) -> Option<usize> {
        self.get(key)?.number(0..=u64::MAX).and_then(|number| usize::try_from(number).ok())
    }

    /// Something is wrong with the table as a whole.
    pub(super) fn report_error(&self, what: impl AsRef<str>) {
        self.findings.push_at(Severity::Error, self.offset, self.key.clone(), what.as_ref());
    }

    fn reject_unknown_keys(&self, keys: &[&str]) {
        for (name, item) in self.items().filter(|(name, _)| !keys.contains(name)) {
            item.report_error(format!("unknown key {}; {}", quote_text(name), suggest::suggest_name(name, keys)));
        }
    }
}

impl<'a> ConfigValue<'a> {
    /// This is wrong.
    pub(super) fn report_error(&self, what: impl AsRef<str>) {
        self.findings.push_at(Severity::Error, self.offset, self.key.clone(), what.as_ref());
    }

    /// This is unwise.
    pub(super) fn report_warning(&self, what: impl AsRef<str>) {
        self.findings.push_at(Severity::Warning, self.offset, self.key.clone(), what.as_ref());
    }

    /// The file that it stands in.
    pub(super) fn source(&self) -> &'a super::source::ConfigSource {
        self.findings.source
    }

    pub(super) fn findings(&self) -> &'a Diagnostics<'a> {
        self.findings
    }

    fn expect_type<T>(&self, read: Option<T>, wanted: &str) -> Option<T> {
        if read.is_none() {
            self.report_error(format!("expected {wanted}, found {}", type_name(self.value)));
        }
        read
    }

    /// A table with these keys and no others.
    pub(super) fn table(&self, keys: &[&str]) -> Option<ConfigTable<'a>> {
        let table = self.free_table()?;
        table.reject_unknown_keys(keys);
        Some(table)
    }

    /// A table with whatever keys.
    pub(super) fn free_table(&self) -> Option<ConfigTable<'a>> {
        let entries = self.expect_type(self.value.as_table(), "a table")?;
        Some(ConfigTable {
            findings: self.findings,
            key: self.key.clone(),
            offset: self.offset,
            entries: Some(entries),
        })
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        self.value.as_str() == Some(text)
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        self.expect_type(self.value.as_str(), "a string")
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.expect_type(self.value.as_bool(), "a boolean")
    }

    /// A list; its items have the list's key and their own place.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let list = self.expect_type(self.value.as_array(), "a list")?;
        let item = |value: &'a toml::Spanned<DeValue<'a>>| Self {
            offset: value.span().start,
            value: value.get_ref(),
            ..self.clone()
        };
        Some(list.iter().map(item).collect())
    }

    /// A list of texts; what is no text is left out, and has been refused.
    pub(super) fn text_list(&self) -> Option<Vec<(Self, &'a str)>> {
        let list = self.list()?;
        Some(list.into_iter().filter_map(|item| item.text().map(|text| (item, text))).collect())
    }

    /// A text, or a list of at least one.
    pub(super) fn string_or_list(&self) -> Option<Vec<(Self, &'a str)>> {
        if let Some(text) = self.value.as_str() {
            return Some(vec![(self.clone(), text)]);
        }
        let list = self.expect_type(self.value.as_array(), "a string or a list of strings")?;
        if list.is_empty() {
            self.report_error("the list must not be empty");
            return None;
        }
        self.text_list()
    }

    /// A whole number within these bounds.
    pub(super) fn number(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.expect_type(self.value.as_integer(), "an integer")?;
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number));
        if number.is_none() {
            let expected = match *range.end() {
                u64::MAX => format!("at least {}", range.start()),
                max => format!("{} to {max}", range.start()),
            };
            self.report_error(format!("out of range; expected {expected}"));
        }
        number
    }

    /// A number that is not negative, with or without decimals.
    pub(super) fn decimal(&self) -> Option<f64> {
        let text = match self.value {
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            _ => None,
        };
        let number: f64 = self.expect_type(text, "a number")?.parse().unwrap_or(f64::NAN);
        let fits = number.is_finite() && number >= 0.0;
        if !fits {
            self.report_error("out of range; expected at least 0");
        }
        fits.then_some(number)
    }

    /// So many times the number, as a whole one: 0.25 seconds are 250 thousandths.
    pub(super) fn scaled(&self, of_one: u32, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.decimal()?;
        let parts = (number * f64::from(of_one)).round();
        // By way of its digits: there is no conversion that refuses what does not fit.
        let parts = format!("{parts:.0}").parse().ok().filter(|parts| range.contains(parts));
        if parts.is_none() || (parts == Some(0) && number > 0.0) {
            self.report_error("out of range, or too precise");
            return None;
        }
        parts
    }

    /// One of these words.
    pub(super) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.report_error(format!(
                "unknown value {}; expected one of {}",
                quote_text(text),
                suggest::list_names(&known)
            ));
        }
        found
    }

    /// The value as JSON.
    pub(super) fn json(&self) -> Option<Value> {
        let json = toml_to_json(self.value, JSON_DEPTH_MAX);
        if json.is_none() {
            self.report_error("cannot be converted to JSON; remove dates, `nan` and `inf`, and reduce the nesting");
        }
        json
    }

    /// The value as a JSON object.
    pub(super) fn json_object(&self) -> Option<JsonObject> {
        match self.json()? {
            Value::Object(object) => Some(object),
            _ => {
                self.report_error("must be a table, such as `{ temperature = 0.2 }`");
                None
            }
        }
    }
}

fn toml_to_json(value: &DeValue<'_>, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    match value {
        DeValue::String(text) => Some(Value::String(text.to_string())),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| Value::Number(number.into()))
        }
        DeValue::Float(number) => number.as_str().parse().ok().and_then(Number::from_f64).map(Value::Number),
        DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
        DeValue::Datetime(_) => None,
        DeValue::Array(list) => list.iter().map(|value| toml_to_json(value.get_ref(), depth)).collect(),
        DeValue::Table(table) => table
            .iter()
            .map(|(name, value)| Some((name.get_ref().to_string(), toml_to_json(value.get_ref(), depth)?)))
            .collect(),
    }
}

const fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A key as TOML writes it.
fn quote_key(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { key.to_owned() } else { format!("{key:?}") }
}

/// Quotes text of the file in a message.
pub(super) fn quote_text(text: &str) -> String {
    format!("`{}`", truncate_text(text, 80))
}
