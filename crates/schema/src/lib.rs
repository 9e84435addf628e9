//! JSON Schemas of tool arguments, bounded before they are used.
//!
//! A schema comes from a user, and so do the arguments that it is applied to. Three steps keep both from taking a thread
//! for ever. [`ToolSchema::compile`] refuses a schema that exceeds [`limits`]: `graph` reads it once, follows its
//! references, and counts what one value costs when all of them are expanded in place. Patterns run on an engine that does
//! not backtrack. [`ToolSchema::validate`] then counts the work that these arguments cause before it does that work
//! (`work`): a schema that recurses with the arguments has no bound of its own.
//!
//! [`SchemaCache`] compiles each schema once. Nothing here waits, reads a file or follows a URL.

mod cache;
mod error;
mod graph;
pub mod limits;
mod pattern;
mod reference;
mod tool_schema;
mod work;

pub use cache::SchemaCache;
pub use error::{ArgumentsError, SchemaError};
pub use tool_schema::ToolSchema;
