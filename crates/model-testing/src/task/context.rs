//! State shared by the tasks of a run.

use super::{EndedChild, GenTask};
use crate::log_builder::LogBuilder;
use std::ops::{Deref, DerefMut};

/// The log, and the sub-agents that the run has yet to pick up.
pub(crate) struct RunContext<'a> {
    log: &'a mut LogBuilder,
    /// Whether the run ends once every task has finished its turn.
    pub(crate) is_cancelling: bool,
    /// Number of sub-agents that the run may still start.
    pub(super) children_left: u32,
    /// Sub-agents that were started and are not yet tasks of the run.
    pub(crate) new_children: Vec<GenTask>,
    /// Sub-agents that ended and are not yet delivered to their parents.
    pub(crate) ended_children: Vec<EndedChild>,
}

impl<'a> RunContext<'a> {
    pub(crate) fn new(log: &'a mut LogBuilder) -> Self {
        log.start_run();
        let children_left = log.options.children_max;
        Self { log, is_cancelling: false, children_left, new_children: Vec::new(), ended_children: Vec::new() }
    }
}

impl Deref for RunContext<'_> {
    type Target = LogBuilder;

    fn deref(&self) -> &LogBuilder {
        self.log
    }
}

impl DerefMut for RunContext<'_> {
    fn deref_mut(&mut self) -> &mut LogBuilder {
        self.log
    }
}
