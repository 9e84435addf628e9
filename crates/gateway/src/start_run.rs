//! Starting a run: the checks that all protocols share, and the default agent.

use crate::attachments::BlobOrigin;
use crate::attachments::uploads::{self, Uploads};
use crate::context::Gateway;
use crate::rejection::{Rejection, truncate_id};
use crate::run_lookup::{RECENT_RUNS_MAX, newest_runs};
use crate::run_to_completion::run_to_completion;
use engine::{NewRun, OnBusy, REQUEST_BYTES_MAX, RunPredecessor, StartError, StartReservation, StartedRun};
use model::content::ContentPart;
use model::definition::{ClientInstructions, Definitions, ToolExecutor};
use model::error::ErrorCode;
use model::event::ClientTool;
use model::ports::StoreError;
use model::task::TaskStatus;
use model::{ThreadId, UserId};
use serde::Serialize;
use uuid::Uuid;

/// Starts a run, or queues it in its thread.
pub async fn start_run(
    gateway: &Gateway,
    user: &UserId,
    mut new: NewRun,
    uploads: Uploads,
) -> Result<StartedRun, Rejection> {
    check_callable(gateway, user, &new).await?;
    check_tool_names(gateway, user, &new).await?;
    check_has_input(gateway, user, &new).await?;
    check_web_file_count(gateway, &new.input)?;
    let reserved = reserve_start(gateway, user, &new).await?;
    let (gateway, user) = (gateway.clone(), user.clone());
    run_to_completion(async move {
        let mut images = uploads::generated_images_of_run(&new);
        let started = match uploads::has_stored_files(uploads::parts_of_run(&mut new).chain(&mut images)) {
            true => Box::pin(start_with_uploads(&gateway, &user, new, uploads)).await,
            false => submit_run(&gateway, &user, new).await,
        };
        drop(reserved);
        started
    })
    .await
}

/// A run in a thread that is being executed is queued, and costs nothing before its turn. `None` for one that was started
/// already.
async fn reserve_start(gateway: &Gateway, user: &UserId, new: &NewRun) -> Result<Option<StartReservation>, Rejection> {
    let max = gateway.limits.runs_per_user_max;
    let reserved = gateway.engine.reserve_start(user, new.thread.as_ref(), max).await?;
    if reserved.is_some() || gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(reserved);
    }
    let detail = format!("{max} of your runs are live, which is the maximum: try again when one has ended or paused");
    Err(Rejection::new(ErrorCode::TooManyRuns, detail))
}

async fn submit_run(gateway: &Gateway, user: &UserId, new: NewRun) -> Result<StartedRun, Rejection> {
    gateway.engine.start(user, new).await.map_err(|error| with_known_agents(gateway, user, error))
}

/// Stores the files, then starts the run. Whatever can be rejected without storing is rejected first.
async fn start_with_uploads(
    gateway: &Gateway,
    user: &UserId,
    mut new: NewRun,
    uploads: Uploads,
) -> Result<StartedRun, Rejection> {
    // A repeated request: the first one has stored its files.
    if gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return submit_run(gateway, user, new).await;
    }
    check_agent(gateway, user, &new.agent)?;
    new.check_size()?;
    let (thread, origin) = match &new.thread {
        Some(thread) => {
            check_thread(gateway, user, thread, &new).await?;
            (thread.clone(), if new.create_if_missing { ThreadOrigin::NamedByClient } else { ThreadOrigin::Existing })
        }
        // Files are stored for a thread, so its id is needed before the run creates it.
        None => (ThreadId::from_uuid(Uuid::now_v7()), ThreadOrigin::Minted),
    };
    let mut images = uploads::generated_images_of_run(&new);
    let parts = uploads::parts_of_run(&mut new).chain(&mut images);
    let stored = uploads.store_as(BlobOrigin::NewThreadUpload, &gateway.attachments, user, &thread, parts).await;
    let started = match stored {
        Ok(()) => {
            new.is_new_thread |= new.thread.is_none();
            new.create_if_missing |= new.is_new_thread;
            submit_run(gateway, user, NewRun { thread: Some(thread.clone()), ..new }).await
        }
        Err(rejection) => Err(rejection),
    };
    if !started.as_ref().is_ok_and(|started| started.thread == thread) {
        release_uploads(gateway, user, &thread, origin).await;
    }
    started
}

/// Rejects a run that cannot start in this thread, before its files are stored. The engine checks again.
async fn check_thread(gateway: &Gateway, user: &UserId, thread: &ThreadId, new: &NewRun) -> Result<(), Rejection> {
    let directory = &gateway.engine.ports().directory;
    if directory.thread(user, thread).await?.is_none() {
        return if new.create_if_missing { Ok(()) } else { Err(StoreError::ThreadNotFound.into()) };
    }
    if let Some(previous) = new.previous.run()
        && directory.run(user, previous).await?.is_none_or(|run| run.thread != *thread)
    {
        return Err(StartError::UnknownPrevious(previous.clone()).into());
    }
    match gateway.engine.active_run(user, thread).await? {
        Some(busy) if new.on_busy == OnBusy::Reject => Err(StartError::Busy(busy).into()),
        Some(_) | None => Ok(()),
    }
}

/// Who knows a thread's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadOrigin {
    /// Only this request: the thread is created with this run, or not at all.
    Minted,
    /// The client: another request may create the thread at any moment.
    NamedByClient,
    /// The thread existed when it was looked up.
    Existing,
}

/// Releases the files of a run that did not start, if its thread does not exist.
async fn release_uploads(gateway: &Gateway, user: &UserId, thread: &ThreadId, origin: ThreadOrigin) {
    let released = match origin {
        ThreadOrigin::NamedByClient => return,
        ThreadOrigin::Minted | ThreadOrigin::Existing => gateway.attachments.release_deleted_thread(user, thread).await,
    };
    if let Err(error) = released {
        tracing::warn!(%error, "the files of a run that did not start were not deleted; this waits for the next start");
    }
}

/// Rejects an agent or model that does not exist.
pub(crate) fn check_agent(gateway: &Gateway, user: &UserId, name: &str) -> Result<(), Rejection> {
    match gateway.engine.ports().definitions.get().resolve_agent(name) {
        Some(_) => Ok(()),
        None => Err(with_known_agents(gateway, user, StartError::UnknownAgent(name.to_owned()))),
    }
}

/// Rejects an agent or model that does not exist, or that this user may not call.
pub async fn check_agent_for(gateway: &Gateway, user: &UserId, name: &str) -> Result<(), Rejection> {
    check_callable(gateway, user, &NewRun { agent: name.to_owned(), ..NewRun::default() }).await?;
    check_agent(gateway, user, name)
}

/// Files on the web are fetched one by one before the model is called.
pub fn check_web_file_count(gateway: &Gateway, input: &[ContentPart]) -> Result<(), Rejection> {
    let is_web_file = |part: &&ContentPart| matches!(part, ContentPart::File { file } if file.web_url().is_some());
    let (count, max) = (input.iter().filter(is_web_file).count(), gateway.limits.web_files_max);
    if count > max {
        return Err(Rejection::invalid_body(format!("{count} files by URL; the maximum is {max}")));
    }
    Ok(())
}

/// Rejects a request that names an agent or a model which the operator has not given to this user.
pub(crate) async fn check_callable(gateway: &Gateway, user: &UserId, new: &NewRun) -> Result<(), Rejection> {
    let definitions = gateway.engine.ports().definitions.get();
    let name = truncate_id(&new.agent);
    let detail = match definitions.agents.contains_key(&new.agent) {
        _ if definitions.may_call(user, &new.agent) || definitions.resolve_agent(&new.agent).is_none() => return Ok(()),
        true => format!("you may not call the agent `{name}`: ask the operator to add you to its `callable`"),
        false => format!("you may not call the model `{name}`: ask the operator to add you to `models` of [auth]"),
    };
    // A repeated request stays valid, whatever its user may call now.
    if gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    Err(Rejection::new(ErrorCode::ModelNotAllowed, format!("{detail}; GET /v1/models lists what you may call")))
}

/// Rejects instructions for an agent whose operator allows none. `field` is where the request has them.
pub(crate) async fn check_client_instructions(
    gateway: &Gateway,
    user: &UserId,
    new: &NewRun,
    field: Option<&str>,
) -> Result<(), Rejection> {
    let definitions = gateway.engine.ports().definitions.get();
    let agent = definitions.agents.get(&new.agent);
    let is_forbidden = agent.is_some_and(|agent| agent.client_instructions == ClientInstructions::Forbidden);
    let field = new.model_settings.instructions.as_ref().map(|_| "instructions").or(field);
    // A repeated request stays valid, whatever the agent allows now.
    let Some(field) = field.filter(|_| is_forbidden) else { return Ok(()) };
    if gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    let name = truncate_id(&new.agent);
    let detail = format!("the agent `{name}` takes no instructions from clients: leave out {field}");
    Err(Rejection::new(ErrorCode::InstructionsNotAllowed, detail))
}

/// Rejects a client tool with the name of one of the agent's own for which it may not stand in.
pub(crate) async fn check_tool_names(gateway: &Gateway, user: &UserId, new: &NewRun) -> Result<(), Rejection> {
    let definitions = gateway.engine.ports().definitions.get();
    let Some(agent) = definitions.resolve_agent(&new.agent).filter(|_| !new.tools.is_empty()) else { return Ok(()) };
    let is_taken = |tool: &&ClientTool| {
        definitions.resolve_tool(&agent, &tool.name).is_some_and(|own| !agent.allows_stand_in(&own))
    };
    let Some(taken) = new.tools.iter().find(is_taken) else { return Ok(()) };
    // A repeated request stays valid, whatever tools the agent has got since.
    if gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    Err(Rejection::invalid_field("tools", format!("the agent has a tool `{}` already: use another name", taken.name)))
}

/// A run without input continues one that was cancelled, failed or limited; a completed run leaves nothing to continue.
async fn check_has_input(gateway: &Gateway, user: &UserId, new: &NewRun) -> Result<(), Rejection> {
    let (Some(thread), [], None) = (&new.thread, new.input.as_slice(), &new.prior_history) else { return Ok(()) };
    let directory = &gateway.engine.ports().directory;
    let previous = match &new.previous {
        RunPredecessor::After(previous) => directory.run(user, previous).await?,
        RunPredecessor::None => return Err(StartError::NoInput.into()),
        RunPredecessor::Latest => {
            let newest = newest_runs(gateway, user, thread, RECENT_RUNS_MAX).await?;
            // A run that was cancelled in the queue has left no record.
            newest.into_iter().find(|run| run.first_seq.is_some() || !run.status.is_terminal())
        }
    };
    let completed = previous.is_some_and(|run| run.status == TaskStatus::Completed);
    // A repeated request may find that its own run has completed.
    if completed && gateway.engine.find_submission(user, new.idempotency.as_ref()).await?.is_none() {
        return Err(StartError::NoInput.into());
    }
    Ok(())
}

fn with_known_agents(gateway: &Gateway, user: &UserId, error: StartError) -> Rejection {
    let definitions = gateway.engine.ports().definitions.get();
    match error {
        StartError::UnknownAgent(_) => {
            Rejection::from(error).with_extension("agents", definitions.callable_agents(user).collect::<Vec<&str>>())
        }
        error => error.into(),
    }
}

/// The agent of a thread's newest run, if it is still defined.
pub async fn last_agent_of_thread(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
) -> Result<Option<String>, Rejection> {
    let ports = gateway.engine.ports();
    let newest = newest_runs(gateway, user, thread, 1).await?;
    Ok(newest.into_iter().map(|run| run.agent).find(|agent| ports.definitions.get().resolve_agent(agent).is_some()))
}

/// The agent of a request that names none: that of the thread's newest run, else the only one that no other agent calls or
/// hands over to. If there are several, the client has to choose.
pub async fn choose_agent(gateway: &Gateway, user: &UserId, thread: Option<&ThreadId>) -> Result<String, Rejection> {
    if let Some(thread) = thread
        && let Some(agent) = last_agent_of_thread(gateway, user, thread).await?
    {
        return Ok(agent);
    }
    let definitions = gateway.engine.ports().definitions.get();
    let entries = entry_agents(&definitions).into_iter().filter(|name| definitions.may_call(user, name));
    match entries.collect::<Vec<&str>>().as_slice() {
        [only] => Ok((*only).to_owned()),
        _ => {
            let agents: Vec<&str> = definitions.callable_agents(user).collect();
            let rejection = Rejection::invalid_field("agent", "there are several agents; name one");
            Err(rejection.with_extension("agents", agents))
        }
    }
}

/// Rejects a request that does not fit a record of the log.
pub fn check_request_size(request: &impl Serialize) -> Result<(), Rejection> {
    check_json_size(request, REQUEST_BYTES_MAX)
}

pub(crate) fn check_json_size(value: &impl Serialize, bytes_max: usize) -> Result<(), Rejection> {
    let size = serde_json::to_vec(value).map_or(usize::MAX, |text| text.len());
    if size > bytes_max { Err(StartError::TooLarge(bytes_max).into()) } else { Ok(()) }
}

/// The agents that no other agent calls or hands over to.
pub fn entry_agents(definitions: &Definitions) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    for agent in definitions.agents.values() {
        known
            .extend(agent.handoffs.iter().map(|handoff| handoff.agent.as_str()).filter(|target| *target != agent.name));
        for name in &agent.tools {
            let called = match definitions.tools.get(name).map(|tool| &tool.executor) {
                Some(ToolExecutor::Agent { agent, others }) => [agent].into_iter().chain(others).collect(),
                _ => vec![name],
            };
            known.extend(called.into_iter().map(String::as_str).filter(|called| *called != agent.name));
        }
    }
    definitions.agents.keys().map(String::as_str).filter(|name| !known.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::definition::ToolSpec;
    use model::definition::{Agent, Handoff, Tool};
    use serde_json::json;

    #[test]
    fn entry_agents_are_those_that_no_other_knows() {
        let agent = |name: &str, tools: &[&str], targets: &[&str]| Agent {
            name: name.to_owned(),
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            handoffs: targets
                .iter()
                .map(|target| Handoff { agent: (*target).to_owned(), history: Default::default() })
                .collect(),
            ..Agent::default()
        };
        let spec = ToolSpec { name: "ask".to_owned(), description: String::new(), parameters: json!({}) };
        let tool = Tool::new(spec, ToolExecutor::Agent { agent: "asked".to_owned(), others: Vec::new() });
        let agents = [
            agent("front", &["ask", "named", "front"], &["heir", "front"]),
            agent("asked", &[], &[]),
            agent("named", &[], &[]),
            agent("heir", &[], &["asked"]),
        ];
        let mut definitions = Definitions {
            agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
            tools: [("ask".to_owned(), tool)].into(),
            ..Definitions::default()
        };
        assert_eq!(entry_agents(&definitions), ["front"]);
        definitions.agents.insert("other".to_owned(), agent("other", &[], &[]));
        assert_eq!(entry_agents(&definitions), ["front", "other"]);
    }
}
