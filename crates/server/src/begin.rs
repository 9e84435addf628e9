//! A run begins: what every protocol checks before, whom it asks where nobody was named, and nothing that only one of them
//! knows.

use crate::app::App;
use crate::problem::Problem;
use crate::routes::to_its_end;
use engine::{NewRun, StartError, Started};
use model::definition::{Definitions, ToolHow};
use model::object::TaskStatus;
use model::ports::{PageOf, RunFilter};
use model::{ThreadId, UserId};

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

/// Who answered last in a conversation, if that one is still there.
pub(crate) async fn last_agent(app: &App, user: &UserId, thread: &ThreadId) -> Result<Option<String>, Problem> {
    let ports = app.engine.ports();
    let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
    let newest = ports.directory.runs(user, filter, PageOf { before: None, limit: 1 }).await?;
    Ok(newest.into_iter().map(|run| run.agent).find(|agent| ports.definitions.resolve(agent).is_some()))
}

/// The agents whom no other agent knows.
pub(crate) fn first_agents(definitions: &Definitions) -> Vec<&str> {
    let mut known: Vec<&str> = Vec::new();
    for agent in definitions.agents.values() {
        known.extend(agent.handoffs.iter().map(|handoff| handoff.agent.as_str()).filter(|heir| *heir != agent.name));
        let asked = agent.tools.iter().map(|name| match definitions.tools.get(name).map(|tool| &tool.how) {
            Some(ToolHow::Agent { agent }) => agent.as_str(),
            _ => name.as_str(),
        });
        known.extend(asked.filter(|asked| *asked != agent.name));
    }
    definitions.agents.keys().map(String::as_str).filter(|name| !known.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::definition::{Agent, Handoff, Tool};
    use model::tool::ToolSpec;
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
        let tool = Tool::new(spec, ToolHow::Agent { agent: "asked".to_owned() });
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
        assert_eq!(first_agents(&definitions), ["front"]);
        definitions.agents.insert("other".to_owned(), agent("other", &[], &[]));
        assert_eq!(first_agents(&definitions), ["front", "other"]);
    }
}
