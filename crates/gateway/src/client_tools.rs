//! Tools that a client declares and runs itself.

use crate::json_schema::check_object_schema;
use crate::limits::InputLimits;
use crate::rejection::Rejection;
use model::event::ClientTool;
use model::id::is_valid_id;
use std::collections::HashSet;

/// Checks that each tool has a unique, valid name and an object schema.
pub fn check_client_tools(tools: Vec<ClientTool>, limits: &InputLimits) -> Result<Vec<ClientTool>, Rejection> {
    let max = limits.tools_max;
    if tools.len() > max {
        return Err(Rejection::invalid_field("tools", format!("{} tools; the maximum is {max}", tools.len())));
    }
    let mut names = HashSet::new();
    for ClientTool { name, parameters, .. } in &tools {
        if !is_valid_id(name) {
            return Err(Rejection::invalid_field("tools", "a name must have 1 to 64 letters, digits, `_` or `-`"));
        }
        if !names.insert(name) {
            return Err(Rejection::invalid_field("tools", format!("duplicate name `{name}`")));
        }
        check_object_schema(parameters)
            .map_err(|error| Rejection::invalid_field("tools", format!("the `parameters` of `{name}`: {error}")))?;
    }
    Ok(tools)
}
