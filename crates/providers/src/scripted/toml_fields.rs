//! TOML values with their position, so that every error has its line, scenario, turn and step.
//!
//! Nothing here knows what a scenario is; `parse` does.

use super::error::{ScenarioError, ScenarioFault, ScenarioPosition};
use super::scenario::NumberOrPlaceholder;
use super::template::{Placeholders, Template};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Copy, Debug)]
pub(super) struct SourceContext<'a> {
    pub(super) origin: &'a str,
    pub(super) text: &'a str,
    pub(super) position: ScenarioPosition,
}

impl SourceContext<'_> {
    pub(super) fn fault(&self, span: &Range<usize>, fault: ScenarioFault) -> ScenarioError {
        let (origin, line) = (self.origin.to_owned(), self.line_of_byte(span.start));
        ScenarioError::Fault { origin, line, position: self.position, fault }
    }

    /// Counted from 1.
    pub(super) fn line_of_byte(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().get(..byte).unwrap_or(self.text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

#[derive(Clone, Debug)]
pub(super) struct TomlTable<'a> {
    pub(super) source: SourceContext<'a>,
    pub(super) span: Range<usize>,
    table: &'a DeTable<'a>,
}

impl<'a> TomlTable<'a> {
    pub(super) fn new(source: SourceContext<'a>, span: Range<usize>, table: &'a DeTable<'a>) -> Self {
        Self { source, span, table }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    pub(super) fn deny_unknown_keys(&self, allowed: &'static [&'static str]) -> Result<(), ScenarioError> {
        match self.table.keys().find(|key| !allowed.contains(&key.get_ref().as_ref())) {
            Some(key) => {
                let fault = ScenarioFault::UnknownKey { key: key.get_ref().to_string(), allowed };
                Err(self.source.fault(&key.span(), fault))
            }
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &'a str) -> Option<TomlField<'a>> {
        self.table.get(key).map(|value| TomlField { source: self.source, key, value })
    }

    pub(super) fn optional<T>(
        &self,
        key: &'a str,
        parse: impl FnOnce(&TomlField<'a>) -> Result<T, ScenarioError>,
    ) -> Result<Option<T>, ScenarioError> {
        self.get(key).map(|field| parse(&field)).transpose()
    }

    pub(super) fn require(&self, key: &'static str) -> Result<TomlField<'a>, ScenarioError> {
        self.get(key).ok_or_else(|| self.source.fault(&self.span, ScenarioFault::MissingKey { key }))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TomlField<'a> {
    pub(super) source: SourceContext<'a>,
    pub(super) key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> TomlField<'a> {
    pub(super) fn at_position(self, position: ScenarioPosition) -> Self {
        Self { source: SourceContext { position, ..self.source }, ..self }
    }

    pub(super) fn fault(&self, fault: ScenarioFault) -> ScenarioError {
        self.source.fault(&self.value.span(), fault)
    }

    fn type_error(&self, wanted: &'static str) -> ScenarioError {
        let found = type_name(self.value.get_ref()).to_owned();
        self.fault(ScenarioFault::WrongType { key: self.key.to_owned(), wanted, found })
    }

    pub(super) fn as_str(&self) -> Result<&'a str, ScenarioError> {
        self.value.get_ref().as_str().ok_or_else(|| self.type_error("a text"))
    }

    pub(super) fn as_bool(&self) -> Result<bool, ScenarioError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.type_error("`true` or `false`"))
    }

    pub(super) fn as_table(&self) -> Result<TomlTable<'a>, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(TomlTable::new(self.source, self.value.span(), table)),
            _ => Err(self.type_error("a table")),
        }
    }

    /// Each element keeps the array's key.
    pub(super) fn as_array(&self) -> Result<Vec<Self>, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Array(values) => Ok(values.iter().map(|value| Self { value, ..*self }).collect()),
            _ => Err(self.type_error("a list")),
        }
    }

    pub(super) fn as_u64(&self, max: u64) -> Result<u64, ScenarioError> {
        let DeValue::Integer(digits) = self.value.get_ref() else { return Err(self.type_error("a whole number")) };
        match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if number <= max => Ok(number),
            _ if digits.as_str().starts_with('-') => {
                let (key, found) = (self.key.to_owned(), digits.as_str().to_owned());
                Err(self.fault(ScenarioFault::WrongType { key, wanted: "a whole number from 0 on", found }))
            }
            _ => Err(self.fault(ScenarioFault::TooLarge { key: self.key.to_owned(), max })),
        }
    }

    pub(super) fn as_number_or_placeholder(
        &self,
        max: u64,
        names: &Placeholders,
    ) -> Result<NumberOrPlaceholder, ScenarioError> {
        const WANTED: &str = "a whole number or one placeholder";
        let text = match self.value.get_ref() {
            DeValue::Integer(_) => return self.as_u64(max).map(NumberOrPlaceholder::Fixed),
            DeValue::String(text) => text,
            _ => return Err(self.type_error(WANTED)),
        };
        let Some(value) = Template::compile(text, names).single_placeholder() else {
            let (key, found) = (self.key.to_owned(), format!("`{text}`"));
            return Err(self.fault(ScenarioFault::WrongType { key, wanted: WANTED, found }));
        };
        let default = names.default_value(value).map(str::parse::<u64>);
        match default {
            None => Ok(NumberOrPlaceholder::Placeholder { value, max }),
            Some(Ok(number)) if number <= max => Ok(NumberOrPlaceholder::Placeholder { value, max }),
            Some(Ok(_)) => {
                Err(self.fault(ScenarioFault::TooLarge { key: format!("defaults.{}", names.name(value)), max }))
            }
            Some(Err(_)) => Err(self.fault(ScenarioFault::WrongType {
                key: format!("defaults.{}", names.name(value)),
                wanted: "a whole number",
                found: format!("`{}`", names.default_value(value).unwrap_or_default()),
            })),
        }
    }

    /// One string, or an array of strings.
    pub(super) fn as_strings(&self) -> Result<Vec<Self>, ScenarioError> {
        let texts = match self.value.get_ref() {
            DeValue::String(_) => vec![*self],
            DeValue::Array(_) => self.as_array()?,
            _ => return Err(self.type_error("a text or a list of texts")),
        };
        texts.iter().try_for_each(|text| text.as_str().map(drop))?;
        Ok(texts)
    }

    pub(super) fn as_string_or_integer(&self) -> Result<String, ScenarioError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(_) => self.as_u64(u64::MAX).map(|number| number.to_string()),
            _ => Err(self.type_error("a text or a whole number")),
        }
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
