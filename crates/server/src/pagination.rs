//! Pages of listings, newest first.

use crate::problem::Problem;
use crate::query_params::parse_decimal;
use model::id::ID_BYTES_MAX;
use model::ports::ListPage;
use serde_json::{Value, json};

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

pub(crate) fn page_json(mut rows: Vec<Value>, limit: usize) -> Value {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    json!({ "data": rows, "has_more": has_more })
}
