//! What every kind of tool needs of the server.

use crate::process_mark::ProcessMark;
use crate::secrets::EnvLookup;
use model::ports::Clock;
use std::sync::Arc;

/// Handles that all calls share. It has no `Debug`: the environment holds secrets.
#[derive(Clone)]
pub(crate) struct ToolContext {
    pub(crate) http: reqwest::Client,
    pub(crate) env: EnvLookup,
    pub(crate) clock: Arc<dyn Clock>,
    /// For the environment of programs.
    pub(crate) process_mark: Option<ProcessMark>,
}
