//! Query parameters.

use crate::problem::Problem;
use axum::extract::Query;
use axum::http::Uri;

/// Parses a query that may have these parameters, each once. Unknown ones are errors, so that typos are noticed.
pub(crate) fn parse_query<const N: usize>(uri: &Uri, names: [&str; N]) -> Result<[Option<String>; N], Problem> {
    let mut values = [const { None }; N];
    for (name, value) in parse_pairs(uri)? {
        let Some(slot) = names.iter().position(|known| *known == name).and_then(|index| values.get_mut(index)) else {
            let known = if names.is_empty() { "none".to_owned() } else { format!("`{}`", names.join("`, `")) };
            return Err(Problem::invalid_query(format!("unknown parameter `{name}`; this route has {known}")));
        };
        if slot.replace(value).is_some() {
            return Err(Problem::invalid_query(format!("the parameter `{name}` is given twice")));
        }
    }
    Ok(values)
}

/// Parses these parameters and ignores all others, because SDKs of other vendors add new ones all the time. The last
/// one of a name wins.
pub(crate) fn parse_known_query<const N: usize>(uri: &Uri, names: [&str; N]) -> Result<[Option<String>; N], Problem> {
    let mut values = [const { None }; N];
    for (name, value) in parse_pairs(uri)? {
        if let Some(slot) = names.iter().position(|known| *known == name).and_then(|index| values.get_mut(index)) {
            *slot = Some(value);
        }
    }
    Ok(values)
}

pub(crate) fn parse_pairs(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    let query = Query::try_from_uri(uri).map_err(|_| Problem::invalid_query("the query is malformed"))?;
    Ok(query.0)
}

/// Parses ASCII digits and nothing else: `from_str` would also accept `+1`.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
