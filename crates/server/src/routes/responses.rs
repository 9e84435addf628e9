//! `/v1/responses`: OpenAI's Responses API.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod input_items;

use super::path_param;
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;

pub(crate) struct ResponsePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ResponsePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(path_param(parts, state, "response").await?))
    }
}

/// The values of the parameters that a route knows. Others are ignored: SDKs add new ones all the time.
pub(crate) fn parse_known_query<const N: usize>(uri: &Uri, names: [&str; N]) -> Result<[Option<String>; N], Problem> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| Problem::invalid_query("the query cannot be read"))?;
    let mut values = [const { None }; N];
    for (name, value) in pairs.0 {
        if let Some(slot) = names.iter().position(|known| *known == name).and_then(|index| values.get_mut(index)) {
            *slot = Some(value);
        }
    }
    Ok(values)
}
