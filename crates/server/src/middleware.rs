//! Middlewares of the router.

mod authentication;
mod origin;

pub(crate) use authentication::require_caller;
pub(crate) use origin::{enforce_origin_policy, method_not_allowed};
