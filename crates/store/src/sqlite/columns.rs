//! Decodes columns to the model's types.

use model::ports::ListPage;
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Sorts after every id.
const LAST_ID: &str = "\u{10ffff}";

pub(super) fn get_text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    row.get(column)
}

pub(super) fn get_u64(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

pub(super) fn get_opt_u64(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(column).map(|number| number.map(i64::cast_unsigned))
}

pub(super) fn to_json_column<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(super) fn from_json_column<T: DeserializeOwned>(text: &str, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}

/// The exclusive upper bound and the `LIMIT` of a page.
pub(super) fn page_bounds(page: &ListPage) -> (&str, i64) {
    (page.before.as_deref().unwrap_or(LAST_ID), i64::try_from(page.limit).unwrap_or(i64::MAX))
}
