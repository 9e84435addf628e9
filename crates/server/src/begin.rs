//! A run begins: what every protocol checks before, and nothing that only one of them knows.

use crate::app::App;
use crate::problem::Problem;
use crate::routes::to_its_end;
use engine::{NewRun, StartError, Started};
use model::UserId;
use model::object::TaskStatus;
use model::ports::{PageOf, RunFilter};

/// How many of a thread's newest runs are looked at for the one to go on from.
const RUNS_LOOKED_AT: usize = 100;

/// Begins a run, or puts it into its thread's queue.
pub(crate) async fn begin(app: &App, user: &UserId, new: NewRun) -> Result<Started, Problem> {
    check_names(app, user, &new).await?;
    check_said(app, user, &new).await?;
    let (engine, user) = (app.engine.clone(), user.clone());
    let agents: Vec<String> = engine.ports().definitions.agents.keys().cloned().collect();
    to_its_end(async move { engine.start(&user, new).await.map_err(|error| refused(error, agents)) }).await
}

/// A tool that the caller declares may not stand in for one of the agent's own.
async fn check_names(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let definitions = &app.engine.ports().definitions;
    let Some(agent) = definitions.resolve(&new.agent).filter(|_| !new.tools.is_empty()) else { return Ok(()) };
    let own = definitions.specs(&agent);
    let Some(taken) = new.tools.iter().find(|tool| own.iter().any(|own| own.name == tool.name)) else { return Ok(()) };
    // A request that was taken before is the same request still, whatever the agent has got since.
    if app.engine.recall(user, new.idempotency.as_ref()).await?.is_some() {
        return Ok(());
    }
    Err(Problem::invalid_body(format!("`tools`: `{}` is a tool of the agent's own: use another name", taken.name)))
}

/// Who says nothing goes on from a run that was cut or limited. One that ended well leaves nothing to go on from.
async fn check_said(app: &App, user: &UserId, new: &NewRun) -> Result<(), Problem> {
    let (Some(thread), [], None) = (&new.thread, new.input.as_slice(), &new.before) else { return Ok(()) };
    let directory = &app.engine.ports().directory;
    let before = match &new.previous {
        Some(previous) => directory.run(user, previous).await?,
        None => {
            let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
            let newest = directory.runs(user, filter, PageOf { before: None, limit: RUNS_LOOKED_AT }).await?;
            // A run that was given up in the queue has left nothing in the thread.
            newest.into_iter().find(|run| run.first.is_some() || !run.status.is_terminal())
        }
    };
    let ended_well = before.is_some_and(|run| run.status == TaskStatus::Completed);
    // The same request again may find that its own run has ended well.
    if ended_well && app.engine.recall(user, new.idempotency.as_ref()).await?.is_none() {
        return Err(StartError::NothingToDo.into());
    }
    Ok(())
}

fn refused(error: StartError, agents: Vec<String>) -> Problem {
    match error {
        StartError::UnknownAgent(_) => Problem::from(error).with("agents", agents),
        error => error.into(),
    }
}
