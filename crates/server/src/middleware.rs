//! Middlewares of the router.

mod authentication;
mod blob_urls;
mod origin;

pub(crate) use authentication::{bearer_token, require_caller};
#[cfg(test)]
pub(crate) use blob_urls::BLOB_URL_ROUTES;
pub(crate) use blob_urls::sign_blob_urls;
pub(crate) use origin::{enforce_origin_policy, method_not_allowed};
