//! What everybody was told: acknowledged runs, what each viewer saw, decisions, and how long things took.

use crate::protocol::{AcknowledgedRun, Protocol};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A frame of a stream. Frames are compared byte for byte.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// How a viewer's stream ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ViewEnd {
    /// With the last event of the run.
    Complete,
    /// The viewer left, or cannot resume.
    Left,
    /// It was not complete in time.
    Unfinished(String),
}

/// What one viewer saw of one run, over all its connections.
#[derive(Clone, Debug)]
pub(crate) struct ViewedStream {
    pub(crate) viewer: usize,
    pub(crate) protocol: Protocol,
    pub(crate) task: String,
    pub(crate) frames: Vec<Frame>,
    pub(crate) end: ViewEnd,
    /// `node@number of the first frame`, for messages.
    pub(crate) connections: Vec<String>,
}

/// An answer to an approval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcknowledgedDecision {
    pub(crate) key: String,
    pub(crate) decision: &'static str,
}

/// Which node executed a thread under an epoch, and when the program first saw it.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) node: String,
    pub(crate) seen: Instant,
}

/// A time in which a node may lose its threads.
#[derive(Clone, Debug)]
pub(crate) struct FaultWindow {
    /// What the ids of the node begin with; none for all nodes.
    pub(crate) node: Option<String>,
    pub(crate) begun: Instant,
    pub(crate) ended: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct HistoryFacts {
    pub(crate) runs: BTreeMap<String, AcknowledgedRun>,
    pub(crate) views: Vec<ViewedStream>,
    pub(crate) decisions: Vec<AcknowledgedDecision>,
    /// The final status that a waiting request was answered with, by task.
    pub(crate) waits: Vec<(String, String)>,
    pub(crate) terms: BTreeMap<(String, i64), Term>,
    pub(crate) windows: Vec<FaultWindow>,
    pub(crate) takeovers: Vec<Duration>,
    pub(crate) reconnects: usize,
    pub(crate) cancels: usize,
    /// What was wrong at the moment at which it was seen.
    pub(crate) problems: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    facts: Mutex<HistoryFacts>,
}

impl History {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HistoryFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_problem(&self, problem: String) {
        self.lock().problems.push(problem);
    }

    /// Returns the number of the window.
    pub(crate) fn open_window(&self, node: Option<String>) -> usize {
        let mut facts = self.lock();
        facts.windows.push(FaultWindow { node, begun: Instant::now(), ended: None });
        facts.windows.len() - 1
    }

    pub(crate) fn close_window(&self, number: usize) {
        if let Some(window) = self.lock().windows.get_mut(number) {
            window.ended = Some(Instant::now());
        }
    }

    pub(crate) fn take_facts(&self) -> HistoryFacts {
        std::mem::take(&mut *self.lock())
    }
}
