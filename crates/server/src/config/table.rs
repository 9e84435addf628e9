//! Tables and values of the file, each with its offset and its full key.
//!
//! Methods return `None` for a missing value and for an invalid one, which they have reported then.

use super::diagnostics::{Diagnostics, Severity};
use super::suggest;
use model::error::truncate_text;
use model::json::JsonObject;
use serde_json::{Number, Value};
use std::ops::RangeInclusive;
use toml::de::{DeTable, DeValue};

const JSON_DEPTH_MAX: usize = 64;

#[derive(Clone)]
pub(super) struct ConfigTable<'a> {
    findings: &'a Diagnostics<'a>,
    key: String,
    offset: usize,
    entries: Option<&'a DeTable<'a>>,
}

#[derive(Clone)]
pub(super) struct ConfigValue<'a> {
    findings: &'a Diagnostics<'a>,
    /// With its tables.
    key: String,
    /// Of a table, the offset of its name.
    offset: usize,
    value: &'a DeValue<'a>,
}

impl<'a> ConfigTable<'a> {
    pub(super) fn root(findings: &'a Diagnostics<'a>, entries: &'a DeTable<'a>, keys: &[&str]) -> Self {
        let table = Self { findings, key: String::new(), offset: 0, entries: Some(entries) };
        table.reject_unknown_keys(keys);
        table
    }

    pub(super) fn get(&self, key: &str) -> Option<ConfigValue<'a>> {
        self.items().find(|(name, _)| *name == key).map(|(_, item)| item)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = (&'a str, ConfigValue<'a>)> {
        let entries = self.entries.into_iter().flat_map(DeTable::iter);
        entries.map(|(name, value)| {
            let at = if value.get_ref().is_table() { name.span().start } else { value.span().start };
            let name: &'a str = name.get_ref();
            let key = if self.key.is_empty() { quote_key(name) } else { format!("{}.{}", self.key, quote_key(name)) };
            (name, ConfigValue { findings: self.findings, key, offset: at, value: value.get_ref() })
        })
    }

    pub(super) fn names(&self) -> Vec<&'a str> {
        self.items().map(|(name, _)| name).collect()
    }

    /// The table under `key`, which may have these keys only. A missing table is empty.
    pub(super) fn table(&self, key: &str, keys: &[&str]) -> Self {
        self.get(key).and_then(|item| item.table(keys)).unwrap_or_else(|| self.empty())
    }

    /// The table under `key`, whose keys are chosen by the operator. A missing table is empty.
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
    pub(super) fn report_error(&self, what: impl AsRef<str>) {
        self.findings.push_at(Severity::Error, self.offset, self.key.clone(), what.as_ref());
    }

    pub(super) fn report_warning(&self, what: impl AsRef<str>) {
        self.findings.push_at(Severity::Warning, self.offset, self.key.clone(), what.as_ref());
    }

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

    /// A table that may have these keys only.
    pub(super) fn table(&self, keys: &[&str]) -> Option<ConfigTable<'a>> {
        let table = self.free_table()?;
        table.reject_unknown_keys(keys);
        Some(table)
    }

    /// A table with any keys.
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

    /// The items have the list's key and offsets of their own.
    pub(super) fn list(&self) -> Option<Vec<Self>> {
        let list = self.expect_type(self.value.as_array(), "a list")?;
        let item = |value: &'a toml::Spanned<DeValue<'a>>| Self {
            offset: value.span().start,
            value: value.get_ref(),
            ..self.clone()
        };
        Some(list.iter().map(item).collect())
    }

    /// Omits items that are not strings, after reporting them.
    pub(super) fn text_list(&self) -> Option<Vec<(Self, &'a str)>> {
        let list = self.list()?;
        Some(list.into_iter().filter_map(|item| item.text().map(|text| (item, text))).collect())
    }

    /// A string, or a list of at least one.
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

    /// A non-negative integer or float.
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

    /// The number times `of_one`, as an integer: with 1000, 0.25 seconds are 250 ms.
    pub(super) fn scaled(&self, of_one: u32, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.decimal()?;
        let parts = (number * f64::from(of_one)).round();
        // Through its digits: no conversion from `f64` checks the range.
        let parts = format!("{parts:.0}").parse().ok().filter(|parts| range.contains(parts));
        if parts.is_none() || (parts == Some(0) && number > 0.0) {
            self.report_error("out of range, or too precise");
            return None;
        }
        parts
    }

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

    pub(super) fn json(&self) -> Option<Value> {
        let json = toml_to_json(self.value, JSON_DEPTH_MAX);
        if json.is_none() {
            self.report_error("cannot be converted to JSON; remove dates, `nan` and `inf`, and reduce the nesting");
        }
        json
    }

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

fn quote_key(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { key.to_owned() } else { format!("{key:?}") }
}

/// Quotes text of the file in a message.
pub(super) fn quote_text(text: &str) -> String {
    format!("`{}`", truncate_text(text, 80))
}
