//! One file per route. Shared here: the ids in paths, and the response with a task.

pub(crate) mod agent_history;
pub(crate) mod agent_run_cancel;
pub(crate) mod agent_run_create;
pub(crate) mod agent_run_events;
pub(crate) mod agui;
pub(crate) mod approval_list;
pub(crate) mod attachment_create;
pub(crate) mod attachment_raw;
pub(crate) mod attachment_signed_url;
pub(crate) mod blob_get;
pub(crate) mod chat_create;
pub(crate) mod conversations;
pub(crate) mod copilotkit;
pub(crate) mod health;
pub(crate) mod mcp_authorize;
pub(crate) mod mcp_callback;
pub(crate) mod mcp_forget;
pub(crate) mod mcp_list;
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
pub(crate) mod ui_chat;
pub(crate) mod usage;

use crate::app::App;
use crate::json_response::LongJson;
use crate::problem::Problem;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway::task_commands::find_task;
use model::id::is_valid_id;
use model::ports::SubmitError;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use schemars::JsonSchema;
use serde::Serialize;

/// A path segment that is no valid id names nothing.
pub(crate) struct TaskPath(pub(crate) TaskId);

pub(crate) struct ThreadPath(pub(crate) ThreadId);

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

/// A thread's id, or the name that a client chose for it.
pub(crate) struct ThreadNamePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ThreadNamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(path_param(parts, state, "thread").await?))
    }
}

/// The agent, or `provider/model` with an encoded slash.
pub(crate) struct AgentPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for AgentPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(path_param(parts, state, "agent").await?))
    }
}

async fn path_param<S: Send + Sync>(parts: &mut Parts, state: &S, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
    let found = params.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(Problem::not_found)
}

/// How a client refers to a run of the agent runs protocol.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentRunNames<'a> {
    run_id: &'a TaskId,
    thread_id: &'a str,
}

/// The current state of a task, in response to a command.
async fn task_response(app: &App, user: &UserId, task: &TaskId, status: StatusCode) -> Result<Response, Problem> {
    let object = find_task(&app.gateway, user, task).await?;
    let location = [(header::LOCATION, format!("/v1/tasks/{}", object.task_id))];
    Ok((status, location, LongJson(object)).into_response())
}
