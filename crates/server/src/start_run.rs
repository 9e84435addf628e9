//! A run begins: what every protocol checks before, whom it asks where nobody was named, and nothing that only one of them
//! knows.

use crate::app::App;
use crate::attachments::uploads::{self, Uploads};
use crate::problem::Problem;
use crate::routes::{check_request_size, run_to_completion};
use engine::{NewRun, OnBusy, StartError, StartedRun};
use model::content::ContentPart;
use model::definition::{Definitions, ToolExecutor};
use model::ports::{ListPage, RunFilter, StoreError};
use model::task::TaskStatus;
use model::{ThreadId, UserId};
use uuid::Uuid;

/// How many of a thread's newest runs are looked at for the one to go on from.
const RECENT_RUNS_MAX: usize = 100;

/// Begins a run, or puts it into its thread's queue. What came along with it was unpacked before.
pub(crate) async fn start_run(
    app: &App,
    user: &UserId,
    mut new: NewRun,
    luggage: Uploads,
) -> Result<StartedRun, Problem> {
    check_tool_names(app, user, &new).await?;
    check_has_input(app, user, &new).await?;
    check_web_file_count(app, &new.input)?;
    let (app, user) = (app.clone(), user.clone());
    run_to_completion(async move {
        let mut drawn = uploads::generated_images_of_run(&new);
        match uploads::has_stored_files(uploads::parts_of_run(&mut new).chain(&mut drawn)) {
            true => start_with_uploads(&app, &user, new, luggage).await,
            false => submit_run(&app, &user, new).await,
        }
    })
    .await
}

async fn submit_run(app: &App, user: &UserId, new: NewRun) -> Result<StartedRun, Problem> {
    app.engine.start(user, new).await.map_err(|error| with_known_agents(app, error))
}

/// Keeps what came along, then begins. Whatever can be refused without it is refused first.
async fn start_with_uploads(
    app: &App,
    user: &UserId,
    mut new: NewRun,
    luggage: Uploads,
) -> Result<StartedRun, Problem> {
    // The same request once more has been taken with all that came along.
    if app.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return submit_run(app, user, new).await;
    }
    let ports = app.engine.ports();
    if ports.definitions.resolve_agent(&new.agent).is_none() {
        return Err(with_known_agents(app, StartError::UnknownAgent(new.agent)));
    }
    check_request_size(&(
        &new.input,
        &new.tools,
        &new.metadata,
        &new.prior_history,
        &new.model_settings,
        &new.request_echo,
    ))?;
    let (thread, named) = match &new.thread {
        Some(thread) => {
            check_thread(app, user, thread, &new).await?;
            (thread.clone(), if new.create_if_missing { ThreadOrigin::NamedByClient } else { ThreadOrigin::Existing })
        }
        // What is kept is kept for a thread, so that it is named before it is made.
        None => (ThreadId::from_uuid(Uuid::now_v7()), ThreadOrigin::Minted),
    };
    let mut drawn = uploads::generated_images_of_run(&new);
    let started = match luggage.store(app, (user, &thread), uploads::parts_of_run(&mut new).chain(&mut drawn)).await {
        Ok(()) => {
            new.create_if_missing |= new.thread.is_none();
            submit_run(app, user, NewRun { thread: Some(thread.clone()), ..new }).await
        }
        Err(problem) => Err(problem),
    };
    if !started.as_ref().is_ok_and(|started| started.thread == thread) {
        release_uploads(app, user, &thread, named).await;
    }
    started
}

/// Can the run begin in this thread? It is looked at again when it does; what comes in between is for the thread to keep.
async fn check_thread(app: &App, user: &UserId, thread: &ThreadId, new: &NewRun) -> Result<(), Problem> {
    let directory = &app.engine.ports().directory;
    if directory.thread(user, thread).await?.is_none() {
        return if new.create_if_missing { Ok(()) } else { Err(StoreError::ThreadNotFound.into()) };
    }
    if let Some(previous) = &new.previous
        && directory.run(user, previous).await?.is_none_or(|run| run.thread != *thread)
    {
        return Err(StartError::UnknownPrevious(previous.clone()).into());
    }
    match app.engine.active_run(user, thread).await? {
        Some(busy) if new.on_busy == OnBusy::Reject => Err(StartError::Busy(busy).into()),
        Some(_) | None => Ok(()),
    }
}

/// Who knows the name of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadOrigin {
    /// Nobody but us: it comes to be with this run, or not at all.
    Minted,
    /// Its client: it may come to be with another request at any moment.
    NamedByClient,
    /// Everybody: it was there when we looked.
    Existing,
}

/// A run did not begin: a thread that is not there needs nothing.
async fn release_uploads(app: &App, user: &UserId, thread: &ThreadId, named: ThreadOrigin) {
    let given_up = match named {
        ThreadOrigin::NamedByClient => return,
        ThreadOrigin::Minted | ThreadOrigin::Existing => app.files.release_deleted_thread(user, thread).await,
    };
    if let Err(error) = given_up {
        tracing::warn!(%error, "what was kept for a run that did not begin waits for the next start");
    }
}

/// Files on the web are read one by one before a model is asked: only so many in one input.
pub(crate) fn check_web_file_count(app: &App, input: &[ContentPart]) -> Result<(), Problem> {
    let is_far = |part: &&ContentPart| matches!(part, ContentPart::File { file } if file.web_url().is_some());
    let (count, most) = (input.iter().filter(is_far).count(), app.limits.input_files_max);
    if count > most {
        return Err(Problem::invalid_body(format!("{count} files by URL; the maximum is {most}")));
    }
    Ok(())
}

/// A tool that the caller declares may not stand in for one of the agent's own.
async fn check_tool_names(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let definitions = &app.engine.ports().definitions;
    let Some(agent) = definitions.resolve_agent(&new.agent).filter(|_| !new.tools.is_empty()) else { return Ok(()) };
    let own = definitions.tool_specs(&agent);
    let Some(taken) = new.tools.iter().find(|tool| own.iter().any(|own| own.name == tool.name)) else { return Ok(()) };
    // A request that was taken before is the same request still, whatever the agent has got since.
    if app.engine.find_submission(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    Err(Problem::invalid_field("tools", format!("the agent has a tool `{}` already: use another name", taken.name)))
}

/// Who says nothing goes on from a run that was cut or limited. One that ended well leaves nothing to go on from.
async fn check_has_input(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let (Some(thread), [], None) = (&new.thread, new.input.as_slice(), &new.prior_history) else { return Ok(()) };
    let directory = &app.engine.ports().directory;
    let before = match &new.previous {
        Some(previous) => directory.run(user, previous).await?,
        None => {
            let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
            let newest = directory.runs(user, filter, ListPage { before: None, limit: RECENT_RUNS_MAX }).await?;
            // A run that was given up in the queue has left nothing in the thread.
            newest.into_iter().find(|run| run.first_seq.is_some() || !run.status.is_terminal())
        }
    };
    let ended_well = before.is_some_and(|run| run.status == TaskStatus::Completed);
    // The same request again may find that its own run has ended well.
    if ended_well && app.engine.find_submission(user, new.idempotency.as_ref()).await?.is_none() {
        return Err(StartError::NoInput.into());
    }
    Ok(())
}

fn with_known_agents(app: &App, error: StartError) -> Problem {
    let agents = &app.engine.ports().definitions.agents;
    match error {
        StartError::UnknownAgent(_) => {
            Problem::from(error).with_extension("agents", agents.keys().cloned().collect::<Vec<String>>())
        }
        error => error.into(),
    }
}

/// Who answered last in a conversation, if that one is still there.
pub(crate) async fn last_agent_of_thread(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
) -> Result<Option<String>, Problem> {
    let ports = app.engine.ports();
    let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
    let newest = ports.directory.runs(user, filter, ListPage { before: None, limit: 1 }).await?;
    Ok(newest.into_iter().map(|run| run.agent).find(|agent| ports.definitions.resolve_agent(agent).is_some()))
}

/// The agents whom no other agent knows.
pub(crate) fn entry_agents(definitions: &Definitions) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    for agent in definitions.agents.values() {
        known.extend(agent.handoffs.iter().map(|handoff| handoff.agent.as_str()).filter(|heir| *heir != agent.name));
        let asked = agent.tools.iter().map(|name| match definitions.tools.get(name).map(|tool| &tool.executor) {
            Some(ToolExecutor::Agent { agent }) => agent.as_str(),
            _ => name.as_str(),
        });
        known.extend(asked.filter(|asked| *asked != agent.name));
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
    fn the_first_agents_are_those_whom_no_other_knows() {
        let agent = |name: &str, tools: &[&str], heirs: &[&str]| Agent {
            name: name.to_owned(),
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            handoffs: heirs
                .iter()
                .map(|heir| Handoff { agent: (*heir).to_owned(), history: Default::default() })
                .collect(),
            ..Agent::default()
        };
        let spec = ToolSpec { name: "ask".to_owned(), description: String::new(), parameters: json!({}) };
        let tool = Tool::new(spec, ToolExecutor::Agent { agent: "asked".to_owned() });
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
