//! What stands after the `?`: known names, each once. A name that is ignored is a misspelt one that nobody notices.

use crate::problem::Problem;
use axum::extract::Query;
use axum::http::Uri;

/// Reads a query that may have these names.
pub(crate) fn parse_query<const N: usize>(uri: &Uri, names: [&str; N]) -> Result<[Option<String>; N], Problem> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| Problem::invalid_query("the query cannot be read"))?;
    let mut found = [const { None }; N];
    for (name, value) in pairs.0 {
        let place = names.iter().position(|known| *known == name);
        let Some(slot) = place.and_then(|place| found.get_mut(place)) else {
            let known = if names.is_empty() { "none".to_owned() } else { format!("`{}`", names.join("`, `")) };
            return Err(Problem::invalid_query(format!("there is no parameter `{name}` here; there is {known}")));
        };
        if slot.replace(value).is_some() {
            return Err(Problem::invalid_query(format!("the parameter `{name}` stands twice")));
        }
    }
    Ok(found)
}
