//! What the engine is built on.

use model::NodeId;
use model::definition::Definitions;
use model::ports::{
    Clock, Cluster, DefinitionResolver, Directory, FileReader, HookRunner, Journal, ModelClient, RecoveryAttempts,
    ToolRunner,
};
use std::sync::{Arc, PoisonError, RwLock};

/// The implementations that `server` wires up.
#[derive(Clone)]
pub struct Ports {
    pub journal: Arc<dyn Journal>,
    pub directory: Arc<dyn Directory>,
    pub models: Arc<dyn ModelClient>,
    pub tools: Arc<dyn ToolRunner>,
    pub hooks: Arc<dyn HookRunner>,
    pub documents: Arc<dyn FileReader>,
    /// Asks MCP servers for their tools.
    pub resolver: Arc<dyn DefinitionResolver>,
    pub clock: Arc<dyn Clock>,
    /// The other nodes of the store.
    pub cluster: Arc<dyn Cluster>,
    pub recovery_attempts: Arc<dyn RecoveryAttempts>,
    /// Agents and tools as the configuration declares them now.
    pub definitions: CurrentDefinitions,
    /// This process.
    pub node: NodeId,
}

/// The definitions for new runs, which can be replaced while others run. Clones share them.
#[derive(Clone)]
pub struct CurrentDefinitions(Arc<RwLock<Arc<Definitions>>>);

impl CurrentDefinitions {
    #[must_use]
    pub fn new(definitions: Definitions) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(definitions))))
    }

    #[must_use]
    pub fn get(&self) -> Arc<Definitions> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs that have started keep theirs. The new ones must have been stored before: a run may resume with them later.
    pub fn replace(&self, definitions: Arc<Definitions>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = definitions;
    }
}
