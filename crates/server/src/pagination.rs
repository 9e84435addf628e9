//! Pages of listings, newest first.

use crate::problem::Problem;
use crate::query_params::parse_decimal;
use model::id::ID_BYTES_MAX;
use model::ports::ListPage;
use schemars::JsonSchema;
use serde::Serialize;

const LIMIT_MAX: usize = 100;
const LIMIT_DEFAULT: usize = 20;

/// Returns the page size and the query, which reads one row more to know whether there is a next page.
pub(crate) fn parse_page_query(limit: Option<String>, before: Option<String>) -> Result<(usize, ListPage), Problem> {
    let limit = match limit {
        None => LIMIT_DEFAULT,
        Some(text) => parse_decimal(&text)
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| (1..=LIMIT_MAX).contains(limit))
            .ok_or_else(|| Problem::invalid_param("limit", format!("must be a number from 1 to {LIMIT_MAX}")))?,
    };
    // An unknown id returns an empty page; a malformed one is an error.
    if before.as_ref().is_some_and(|before| before.len() > ID_BYTES_MAX || before.contains('\0')) {
        return Err(Problem::invalid_param("before", "must be an id"));
    }
    Ok((limit, ListPage { before, limit: limit + 1 }))
}

/// A page of a listing.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub(crate) struct Page<T> {
    data: Vec<T>,
    /// Whether there are older entries.
    has_more: bool,
}

impl<T> Page<T> {
    /// From the rows of a query, which may be one more than the page has.
    pub(crate) fn new(rows: impl ExactSizeIterator<Item = T>, limit: usize) -> Self {
        let has_more = rows.len() > limit;
        Self { data: rows.take(limit).collect(), has_more }
    }
}
