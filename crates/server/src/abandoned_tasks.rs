//! Tasks that will be cancelled unless their client comes back.

use model::TaskId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a client has to come back before its run is cancelled.
const RECONNECT_GRACE: Duration = Duration::from_secs(10);

/// The tasks whose client has gone away, during the grace.
#[derive(Debug, Default)]
pub(crate) struct AbandonedTasks {
    waiting: Mutex<HashMap<TaskId, oneshot::Sender<()>>>,
}

impl AbandonedTasks {
    /// Its client has come back: the run is not cancelled.
    pub(crate) fn reclaim(&self, task: &TaskId) {
        self.lock().remove(task);
    }

    /// The client has gone away. The receiver ends when it is back.
    pub(crate) fn abandon(&self, task: &TaskId) -> oneshot::Receiver<()> {
        let (waiting, reclaimed) = oneshot::channel();
        self.lock().insert(task.clone(), waiting);
        reclaimed
    }

    /// Returns whether the client stayed away for the whole grace.
    pub(crate) async fn is_abandoned(&self, task: &TaskId, reclaimed: oneshot::Receiver<()>) -> bool {
        let is_abandoned = timeout(RECONNECT_GRACE, reclaimed).await.is_err();
        if is_abandoned {
            self.lock().remove(task);
        }
        is_abandoned
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
