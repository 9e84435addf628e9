//! Commands to an existing task: more input, results of client tools, cancellation.

use crate::attachments::uploads::{self, Uploads};
use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{RECENT_RUNS_MAX, find_root_run, find_run_of_task};
use crate::run_to_completion::run_to_completion;
use crate::start_run::{check_callable, check_request_size, check_web_file_count, start_run};
use crate::storage_alarm::reject_when_full;
use engine::{AnswerError, NewRun, StartError, StartedRun};
use model::command::{CancelCause, CancelCommand, ClientToolResult};
use model::content::ContentPart;
use model::error::ErrorCode;
use model::event::{CancelMode, PendingKind};
use model::ports::{IdempotencyKey, ListPage, RunFilter, RunRow, SubmitError};
use model::task::{TaskObject, TaskStatus};
use model::{CallId, TaskId, ThreadId, UserId};

pub async fn find_task(gateway: &Gateway, user: &UserId, task: &TaskId) -> Result<TaskObject, Rejection> {
    gateway.engine.task_object(user, task).await?.ok_or_else(Rejection::not_found)
}

/// Sends more input to a run. If it has ended, the input starts the next run of its thread.
pub async fn send_input(
    gateway: &Gateway,
    user: &UserId,
    task: &TaskId,
    input: Vec<ContentPart>,
    idempotency: Option<IdempotencyKey>,
) -> Result<StartedRun, Rejection> {
    let run = find_root_run(gateway, user, task).await?;
    match gateway.engine.find_submission(user, idempotency.as_ref()).await? {
        Some(started) => Ok(started),
        None => Box::pin(deliver_input(gateway, user, run, input, idempotency)).await,
    }
}

async fn deliver_input(
    gateway: &Gateway,
    user: &UserId,
    run: RunRow,
    mut input: Vec<ContentPart>,
    idempotency: Option<IdempotencyKey>,
) -> Result<StartedRun, Rejection> {
    if input.is_empty() {
        return Err(StartError::NoInput.into());
    }
    let uploads = Uploads::extract(&gateway.attachments, "input", input.iter_mut()).await?;
    let (agent, thread) = (run.agent.clone(), Some(run.thread.clone()));
    let new = NewRun { agent, input, thread, idempotency, ..NewRun::default() };
    if run.status.is_terminal() {
        return start_run(gateway, user, new, uploads).await;
    }
    // The run may end before it reads the input, which then starts the next one.
    check_callable(gateway, user, &new).await?;
    let NewRun { mut input, idempotency, .. } = new;
    check_web_file_count(gateway, &input)?;
    check_request_size(&input)?;
    let started = StartedRun::earlier(run.id.clone(), run.thread.clone());
    let (gateway, user) = (gateway.clone(), user.clone());
    run_to_completion(async move {
        uploads.store_in_thread(&gateway.attachments, &user, &run.thread, input.iter_mut()).await?;
        Ok::<_, Rejection>(gateway.engine.steer(&user, &run.thread, run.id, input, idempotency).await?)
    })
    .await?;
    Ok(started)
}

/// Submits results of client tools, under the id of the task that called them or of its run: all of them, or none.
pub async fn submit_tool_results(
    gateway: &Gateway,
    user: &UserId,
    task: &TaskId,
    mut results: Vec<ClientToolResult>,
    idempotency: Option<IdempotencyKey>,
) -> Result<(), Rejection> {
    let run = find_run_of_task(gateway, user, task).await?;
    check_calls_of_task(gateway, user, &run, task, &results).await?;
    let uploads = Uploads::extract(&gateway.attachments, "content", uploads::parts_of_results(&mut results)).await?;
    for result in &results {
        check_request_size(&(&result.content, &result.error))?;
    }
    if gateway.engine.find_submission(user, idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    let (gateway, user) = (gateway.clone(), user.clone());
    run_to_completion(async move {
        store_result_files(&gateway, &user, &run, &mut results, &uploads).await?;
        Ok::<_, Rejection>(gateway.engine.submit_client_results(&user, &run, results, idempotency).await?)
    })
    .await
}

/// Under the id of another agent of the run there is no such call.
async fn check_calls_of_task(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    task: &TaskId,
    results: &[ClientToolResult],
) -> Result<(), Rejection> {
    if *task == run.id {
        return Ok(());
    }
    let calls = gateway.engine.calls_of_task(user, run, task).await?;
    match results.iter().find(|result| !calls.contains(&result.call_id)) {
        Some(result) => Err(AnswerError::NotPending(result.call_id.clone()).into()),
        None => Ok(()),
    }
}

/// Stores the files of results, if the run waits for every one of them.
async fn store_result_files(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    results: &mut [ClientToolResult],
    uploads: &Uploads,
) -> Result<(), Rejection> {
    if !uploads::has_stored_files(uploads::parts_of_results(results)) {
        return Ok(());
    }
    let pending = gateway.engine.pending(user, run).await?;
    let is_pending = |call: &CallId| {
        pending.iter().any(|pending| pending.kind == PendingKind::ClientTool && pending.call_id == *call)
    };
    if let Some(result) = results.iter().find(|result| !is_pending(&result.call_id)) {
        return Err(AnswerError::NotPending(result.call_id.clone()).into());
    }
    uploads.store_in_thread(&gateway.attachments, user, &run.thread, uploads::parts_of_results(results)).await
}

/// Cancels a run, or one sub-agent of it with its descendants.
pub async fn cancel_task(
    gateway: &Gateway,
    user: &UserId,
    task: &TaskId,
    mode: CancelMode,
    idempotency: Option<IdempotencyKey>,
) -> Result<(), Rejection> {
    let run = find_run_of_task(gateway, user, task).await?;
    if gateway.engine.find_submission(user, idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    // A sub-agent has no row of its own.
    let status = if run.id == *task { run.status } else { find_task(gateway, user, task).await?.status };
    if status.is_terminal() {
        let rejection = Rejection::new(ErrorCode::AlreadyEnded, "it has ended already");
        return Err(rejection.with_extension("task_status", status.as_str()));
    }
    submit_cancel(
        gateway,
        user,
        run.thread,
        CancelCommand { task_id: task.clone(), mode, cause: CancelCause::User },
        idempotency,
    )
    .await
}

/// Cancels the active run of a thread, and returns its id.
pub async fn cancel_active_run(
    gateway: &Gateway,
    user: &UserId,
    thread: ThreadId,
    mode: CancelMode,
    idempotency: Option<IdempotencyKey>,
) -> Result<TaskId, Rejection> {
    if let Some(submitted) = gateway.engine.find_submission(user, idempotency.as_ref()).await? {
        return Ok(submitted.task);
    }
    let Some(task_id) = gateway.engine.active_run(user, &thread).await? else {
        return Err(Rejection::new(ErrorCode::AlreadyEnded, "nothing runs in this thread"));
    };
    let cancel = CancelCommand { task_id: task_id.clone(), mode, cause: CancelCause::User };
    submit_cancel(gateway, user, thread, cancel, idempotency).await?;
    Ok(task_id)
}

/// Cancels all runs of a thread, the newest first, so that no queued run starts because another was cancelled.
pub(crate) async fn cancel_all_runs(gateway: &Gateway, user: &UserId, thread: ThreadId) -> Result<(), Rejection> {
    let status = vec![TaskStatus::Queued, TaskStatus::Running, TaskStatus::Paused];
    let filter = RunFilter { status, thread: Some(thread.clone()) };
    let (engine, user) = (gateway.engine.clone(), user.clone());
    run_to_completion(async move {
        let mut before = None;
        loop {
            let page = ListPage { before, limit: RECENT_RUNS_MAX };
            let runs = engine.ports().directory.runs(&user, filter.clone(), page).await?;
            let Some(last) = runs.last().map(|run| run.id.to_string()) else { return Ok::<(), SubmitError>(()) };
            for RunRow { id: task_id, .. } in runs {
                let cancel = CancelCommand { task_id, mode: CancelMode::Immediate, cause: CancelCause::User };
                engine.cancel(&user, &thread, cancel, None).await?;
            }
            before = Some(last);
        }
    })
    .await
}

pub(crate) async fn submit_cancel(
    gateway: &Gateway,
    user: &UserId,
    thread: ThreadId,
    cancel: CancelCommand,
    idempotency: Option<IdempotencyKey>,
) -> Result<(), Rejection> {
    let (engine, user) = (gateway.engine.clone(), user.clone());
    run_to_completion(async move { engine.cancel(&user, &thread, cancel, idempotency).await }).await
}

/// Whether a run has ended or waits for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    /// The engine is stopping, so the wait ended before the run did.
    Interrupted,
}

/// Waits until a run has ended or paused. Fails when the disk stays full.
pub async fn wait_until_settled(gateway: &Gateway, user: &UserId, started: &StartedRun) -> Result<Settled, Rejection> {
    let StartedRun { task, thread, .. } = started;
    tokio::select! {
        settled = gateway.engine.wait_settled(user, task, thread) => settled?,
        rejection = reject_when_full(gateway, task) => return Err(rejection),
    }
    let run = gateway.engine.run_of_task(user, task).await?.ok_or_else(Rejection::not_found)?;
    let is_settled = run.status.is_terminal() || run.status == TaskStatus::Paused;
    Ok(if is_settled { Settled::Yes } else { Settled::Interrupted })
}

/// Deletes a thread, and the files that nothing else refers to.
pub async fn delete_thread(gateway: &Gateway, user: &UserId, thread: ThreadId) -> Result<(), Rejection> {
    let (gateway, user) = (gateway.clone(), user.clone());
    run_to_completion(async move {
        if !gateway.engine.delete_thread(&user, &thread).await? {
            return Err(Rejection::not_found());
        }
        gateway.shares.forget_thread(&thread);
        gateway.attachments.delete_released_soon().await;
        Ok(())
    })
    .await
}
