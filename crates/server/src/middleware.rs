//! Middlewares of the router.

mod authentication;
mod origin;

pub(crate) use authentication::{bearer_token, require_caller};
pub(crate) use origin::{enforce_origin_policy, method_not_allowed};
