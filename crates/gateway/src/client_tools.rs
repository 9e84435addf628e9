//! Tools that a client declares and runs itself.

use crate::context::Gateway;
use crate::json_schema::compile_object_schema;
use crate::limits::InputLimits;
use crate::rejection::Rejection;
use heavy_work::run_heavy;
use model::UserId;
use model::event::ClientTool;
use model::id::is_valid_id;
use schema::SchemaCache;
use schema::limits::REQUEST_PATTERNS_BYTES_MAX;
use std::collections::HashSet;

/// Checks that each tool has a unique, valid name and an object schema. Compiling schemas takes time, so it happens beside
/// the async workers; a run finds them compiled.
pub async fn check_client_tools(
    gateway: &Gateway,
    user: &UserId,
    tools: Vec<ClientTool>,
) -> Result<Vec<ClientTool>, Rejection> {
    if tools.is_empty() {
        return Ok(tools);
    }
    let (limits, schemas) = (gateway.limits, gateway.engine.schemas().clone());
    run_heavy(user, move || check_tools(tools, limits, &schemas)).await.unwrap_or_else(|_| Err(Rejection::internal()))
}

fn check_tools(
    tools: Vec<ClientTool>,
    limits: InputLimits,
    schemas: &SchemaCache,
) -> Result<Vec<ClientTool>, Rejection> {
    let max = limits.tools_max;
    if tools.len() > max {
        return Err(Rejection::invalid_field("tools", format!("{} tools; the maximum is {max}", tools.len())));
    }
    let (mut names, mut pattern_bytes) = (HashSet::new(), 0);
    for ClientTool { name, parameters, .. } in &tools {
        if !is_valid_id(name) {
            return Err(Rejection::invalid_field("tools", "a name must have 1 to 64 letters, digits, `_` or `-`"));
        }
        if !names.insert(name) {
            return Err(Rejection::invalid_field("tools", format!("duplicate name `{name}`")));
        }
        let schema = compile_object_schema(schemas, parameters)
            .map_err(|error| Rejection::invalid_field("tools", format!("the `parameters` of `{name}`: {error}")))?;
        pattern_bytes += schema.pattern_bytes();
        if pattern_bytes > REQUEST_PATTERNS_BYTES_MAX {
            let max = REQUEST_PATTERNS_BYTES_MAX;
            let why = format!("up to `{name}`, the patterns of all tools take more than {max} bytes when compiled");
            return Err(Rejection::invalid_field("tools", why));
        }
    }
    Ok(tools)
}
