//! One file per route. What several of them need is here: ids in paths, keys against doing things twice.

pub(crate) mod agent_history;
pub(crate) mod agent_run_cancel;
pub(crate) mod agent_run_create;
pub(crate) mod agent_run_events;
pub(crate) mod agent_threads;
pub(crate) mod approval_list;
pub(crate) mod attachment_create;
pub(crate) mod attachment_raw;
pub(crate) mod attachment_signed_url;
pub(crate) mod blob_get;
pub(crate) mod chat_create;
pub(crate) mod conversations;
pub(crate) mod health;
pub(crate) mod message_create;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod page;
pub(crate) mod responses;
pub(crate) mod share_create;
pub(crate) mod share_list;
pub(crate) mod share_revoke;
pub(crate) mod task_approve;
pub(crate) mod task_cancel;
pub(crate) mod task_create;
pub(crate) mod task_events;
pub(crate) mod task_get;
pub(crate) mod task_input;
pub(crate) mod task_list;
pub(crate) mod task_tool_results;
pub(crate) mod thread_delete;
pub(crate) mod thread_events;
pub(crate) mod thread_get;
pub(crate) mod thread_list;
pub(crate) mod ticket_create;
pub(crate) mod usage;

use crate::app::App;
use crate::problem::Problem;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{REQUEST_BYTES_MAX, StartError};
use model::error::ErrorCode;
use model::id::is_valid_id;
use model::ports::{IdempotencyKey, RunRow, SubmitError};
use model::task::TaskObject;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use serde::Serialize;

/// The task that a path names. What cannot be an id does not exist.
pub(crate) struct TaskPath(pub(crate) TaskId);

/// The thread that a path names.
pub(crate) struct ThreadPath(pub(crate) ThreadId);

/// The task and the question that a path names.
pub(crate) struct ApprovalPath(pub(crate) TaskId, pub(crate) ApprovalKey);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(TaskId::parse(&path_param(parts, state, "task").await?)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ThreadPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(ThreadId::parse(&path_param(parts, state, "thread").await?)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ApprovalPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let TaskPath(task) = TaskPath::from_request_parts(parts, state).await?;
        let key = path_param(parts, state, "key").await?;
        if is_valid_id(&key) {
            Ok(Self(task, ApprovalKey::from(key)))
        } else {
            Err(SubmitError::ApprovalNotFound.into())
        }
    }
}

async fn path_param<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
    let found = params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(Problem::not_found)
}

const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// The caller's key against doing it twice, bound to the route and to what was asked.
pub(crate) fn parse_idempotency_key(
    headers: &HeaderMap,
    route: &str,
    digest: &str,
) -> Result<Option<IdempotencyKey>, Problem> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY_HEADER).iter();
    let Some(key) = given.next() else { return Ok(None) };
    let bytes = key.as_bytes();
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    if given.next().is_some() || !printable || !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&bytes.len()) {
        let detail = format!("an Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable ASCII characters");
        return Err(Problem::new(ErrorCode::InvalidIdempotencyKey, detail));
    }
    let key = format!("{route} {}", String::from_utf8_lossy(bytes));
    Ok(Some(IdempotencyKey { key, request_digest: digest.to_owned() }))
}

/// Does something to its end, also when the caller has gone meanwhile: half of it is worse than either.
pub(crate) async fn run_to_completion<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Problem>
where
    T: Send + 'static,
    E: Into<Problem> + Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(error) => {
            tracing::error!(%error, "a command panicked");
            Err(Problem::internal())
        }
    }
}

/// The row of the run that a task belongs to, where there is such a task.
async fn find_run_of_task(app: &App, user: &UserId, task: &TaskId) -> Result<RunRow, Problem> {
    let Some(row) = app.engine.run_of_task(user, task).await? else { return Err(Problem::not_found()) };
    // Any id names its run, also one that the run never gave to anything.
    if row.id != *task && app.engine.task_object(user, task).await?.is_none() {
        return Err(Problem::not_found());
    }
    Ok(row)
}

/// The same, for what can be asked of a whole run only.
async fn find_root_run(app: &App, user: &UserId, task: &TaskId) -> Result<RunRow, Problem> {
    let row = find_run_of_task(app, user, task).await?;
    if row.id == *task {
        return Ok(row);
    }
    let detail = "this cannot be asked of a sub-agent: ask it of its run";
    Err(Problem::new(ErrorCode::Unsupported, detail).with_extension("task_id", row.id.as_str()))
}

/// What is said must fit a record of the log.
pub(crate) fn check_request_size(said: &impl Serialize) -> Result<(), Problem> {
    let size = serde_json::to_vec(said).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX { Err(StartError::TooLarge(REQUEST_BYTES_MAX).into()) } else { Ok(()) }
}

/// The task's object now, as the answer to a command.
async fn task_response(app: &App, user: &UserId, task: &TaskId, status: StatusCode) -> Result<Response, Problem> {
    let Some(object) = app.engine.task_object(user, task).await? else { return Err(Problem::not_found()) };
    Ok(task_object_response(&object, status))
}

fn task_object_response(object: &TaskObject, status: StatusCode) -> Response {
    let location = [(header::LOCATION, format!("/v1/tasks/{}", object.task_id))];
    (status, location, axum::Json(object)).into_response()
}
