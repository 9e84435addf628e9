//! `on_disconnect: "cancel"`: a run that is cancelled when the connection of the request that started it breaks.
//!
//! Only that connection counts; other viewers neither keep the run nor end it. A client whose connection broke by accident
//! has a few seconds ([`crate::abandoned_tasks`]) to follow the task again, which keeps the run for good.

use crate::app::App;
use crate::auth::Caller;
use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use gateway::task_commands::cancel_task;
use model::TaskId;
use model::event::CancelMode;
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;

/// Cancels a task some time after it is dropped, unless it was disarmed.
pub(crate) struct DisconnectGuard {
    /// `None` when disarmed.
    armed: Option<(App, Caller, TaskId)>,
}

impl DisconnectGuard {
    pub(crate) fn new(app: &App, caller: &Caller, task: &TaskId) -> Self {
        Self { armed: Some((app.clone(), caller.clone(), task.clone())) }
    }

    /// The response is complete: that its connection ends means nothing.
    pub(crate) fn disarm(mut self) {
        self.armed = None;
    }

    /// Guards the body of a response until its end.
    pub(crate) fn guard_body(self, response: Response) -> Response {
        let (head, body) = response.into_parts();
        let chunks = stream::unfold((self, body.into_data_stream()), |(guard, mut chunks)| async {
            match chunks.next().await {
                Some(chunk) => Some((chunk, (guard, chunks))),
                None => {
                    guard.disarm();
                    None
                }
            }
        });
        Response::from_parts(head, Body::from_stream(chunks))
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        let Some((app, caller, task)) = self.armed.take() else { return };
        // A stopping server closes connections; the run continues after the next start.
        if let (Ok(runtime), false) = (Handle::try_current(), app.is_shutting_down()) {
            let reclaimed = app.abandoned_tasks.abandon(&task);
            runtime.spawn(cancel_abandoned(app, caller, task, reclaimed));
        }
    }
}

async fn cancel_abandoned(app: App, caller: Caller, task: TaskId, reclaimed: Receiver<()>) {
    if !app.abandoned_tasks.is_abandoned(&task, reclaimed).await || app.is_shutting_down() {
        return;
    }
    match cancel_task(&app.gateway, &caller.user, &task, CancelMode::Immediate, None).await {
        Ok(()) => tracing::info!(%task, "the client that started the task went away: it is cancelled"),
        Err(rejection) => tracing::debug!(%task, ?rejection, "the task of a client that went away is not cancelled"),
    }
}
