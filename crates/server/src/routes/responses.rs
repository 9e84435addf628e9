//! `/v1/responses`: OpenAI's Responses API.

pub(crate) mod cancel;
pub(crate) mod compact;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod input_items;

use super::path_param;
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

pub(crate) struct ResponsePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ResponsePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(path_param(parts, state, "response").await?))
    }
}
