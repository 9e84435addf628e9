//! What the engine is built on.

use model::NodeId;
use model::definition::Definitions;
use model::ports::{Clock, Directory, FileReader, HookRunner, Journal, ModelClient, ToolRunner};
use std::sync::Arc;

/// The implementations that `server` wires up.
#[derive(Clone)]
pub struct Ports {
    pub journal: Arc<dyn Journal>,
    pub directory: Arc<dyn Directory>,
    pub models: Arc<dyn ModelClient>,
    pub tools: Arc<dyn ToolRunner>,
    pub hooks: Arc<dyn HookRunner>,
    pub documents: Arc<dyn FileReader>,
    pub clock: Arc<dyn Clock>,
    /// Agents and tools as the configuration declares them.
    pub definitions: Arc<Definitions>,
    /// This process.
    pub node: NodeId,
}
