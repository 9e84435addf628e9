//! TOML values that know where they stand, so that every refusal names its line and its place in the play.
//!
//! Nothing here knows what a scenario is; `read` does.

use super::error::{Fault, Place, ScenarioError};
use super::script::Amount;
use super::template::{Names, Template};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file, and the place in it that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    pub(super) origin: &'a str,
    pub(super) text: &'a str,
    pub(super) place: Place,
}

impl At<'_> {
    /// This is wrong, there.
    pub(super) fn refuse(&self, span: &Range<usize>, fault: Fault) -> ScenarioError {
        let (origin, line) = (self.origin.to_owned(), self.line(span.start));
        ScenarioError::Fault { origin, line, place: self.place, fault }
    }

    /// The line in which this byte stands, from 1.
    pub(super) fn line(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().get(..byte).unwrap_or(self.text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// A table whose keys are looked at by name.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    pub(super) at: At<'a>,
    pub(super) span: Range<usize>,
    table: &'a DeTable<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(at: At<'a>, span: Range<usize>, table: &'a DeTable<'a>) -> Self {
        Self { at, span, table }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Refuses every key but these.
    pub(super) fn only(&self, allowed: &'static [&'static str]) -> Result<(), ScenarioError> {
        match self.table.keys().find(|key| !allowed.contains(&key.get_ref().as_ref())) {
            Some(key) => {
                let fault = Fault::UnknownKey { key: key.get_ref().to_string(), allowed };
                Err(self.at.refuse(&key.span(), fault))
            }
            None => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &'a str) -> Option<Field<'a>> {
        self.table.get(key).map(|value| Field { at: self.at, key, value })
    }

    pub(super) fn need(&self, key: &'static str) -> Result<Field<'a>, ScenarioError> {
        self.get(key).ok_or_else(|| self.at.refuse(&self.span, Fault::MissingKey { key }))
    }
}

/// One value under its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) at: At<'a>,
    pub(super) key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Field<'a> {
    /// The same value, which stands there in the play.
    pub(super) fn placed(self, place: Place) -> Self {
        Self { at: At { place, ..self.at }, ..self }
    }

    pub(super) fn refuse(&self, fault: Fault) -> ScenarioError {
        self.at.refuse(&self.value.span(), fault)
    }

    fn wrong(&self, wanted: &'static str) -> ScenarioError {
        let found = kind(self.value.get_ref()).to_owned();
        self.refuse(Fault::WrongType { key: self.key.to_owned(), wanted, found })
    }

    pub(super) fn text(&self) -> Result<&'a str, ScenarioError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(super) fn flag(&self) -> Result<bool, ScenarioError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("`true` or `false`"))
    }

    pub(super) fn fields(&self) -> Result<Fields<'a>, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(Fields::new(self.at, self.value.span(), table)),
            _ => Err(self.wrong("a table")),
        }
    }

    /// The values of a list, each under the list's key.
    pub(super) fn list(&self) -> Result<Vec<Self>, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Array(values) => Ok(values.iter().map(|value| Self { value, ..*self }).collect()),
            _ => Err(self.wrong("a list")),
        }
    }

    pub(super) fn number(&self, max: u64) -> Result<u64, ScenarioError> {
        let DeValue::Integer(digits) = self.value.get_ref() else { return Err(self.wrong("a whole number")) };
        match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if number <= max => Ok(number),
            _ if digits.as_str().starts_with('-') => {
                let (key, found) = (self.key.to_owned(), digits.as_str().to_owned());
                Err(self.refuse(Fault::WrongType { key, wanted: "a whole number from 0 on", found }))
            }
            _ => Err(self.refuse(Fault::TooMuch { key: self.key.to_owned(), max })),
        }
    }

    /// A number, or one placeholder that stands for one.
    pub(super) fn amount(&self, max: u64, names: &Names) -> Result<Amount, ScenarioError> {
        const WANTED: &str = "a whole number or one placeholder";
        let text = match self.value.get_ref() {
            DeValue::Integer(_) => return self.number(max).map(Amount::Fixed),
            DeValue::String(text) => text,
            _ => return Err(self.wrong(WANTED)),
        };
        let Some(value) = Template::compile(text, names).sole_value() else {
            let (key, found) = (self.key.to_owned(), format!("`{text}`"));
            return Err(self.refuse(Fault::WrongType { key, wanted: WANTED, found }));
        };
        let default = names.default_of(value).map(str::parse::<u64>);
        match default {
            None => Ok(Amount::Value { value, max }),
            Some(Ok(number)) if number <= max => Ok(Amount::Value { value, max }),
            Some(Ok(_)) => Err(self.refuse(Fault::TooMuch { key: format!("defaults.{}", names.name(value)), max })),
            Some(Err(_)) => Err(self.refuse(Fault::WrongType {
                key: format!("defaults.{}", names.name(value)),
                wanted: "a whole number",
                found: format!("`{}`", names.default_of(value).unwrap_or_default()),
            })),
        }
    }

    /// One text, or several.
    pub(super) fn texts(&self) -> Result<Vec<Self>, ScenarioError> {
        let texts = match self.value.get_ref() {
            DeValue::String(_) => vec![*self],
            DeValue::Array(_) => self.list()?,
            _ => return Err(self.wrong("a text or a list of texts")),
        };
        texts.iter().try_for_each(|text| text.text().map(drop))?;
        Ok(texts)
    }

    /// A text as it stands, or a whole number in digits.
    pub(super) fn text_or_number(&self) -> Result<String, ScenarioError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(_) => self.number(u64::MAX).map(|number| number.to_string()),
            _ => Err(self.wrong("a text or a whole number")),
        }
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
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
