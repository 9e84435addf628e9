//! Threads with a long past, and many runs at a time.

use super::hostile_requests::RepeatedRequest;
use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm};
use crate::installation::{Installation, ServerSettings};
use anyhow::Context;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const BUILD_TIMEOUT: Duration = Duration::from_secs(300);
/// Clients that start runs at the same time.
const STARTERS: usize = 32;

/// A run of the attacker with this many deltas, ended.
async fn build_long_run(context: &AttackContext) -> anyhow::Result<Value> {
    let user = &context.installation.attacker;
    let deltas = context.form.choose(1_500, 200_000);
    let body = json!({"model": "writer", "input": format!("story {deltas}"), "wait": true});
    let run = user.post("/v1/tasks", &body, BUILD_TIMEOUT).await?.expect_status(200)?.json()?;
    context.history.acknowledge_response(user.name, &run);
    anyhow::ensure!(run.get("status") == Some(&json!("completed")), "the long run did not complete");
    Ok(run)
}

fn id_of<'a>(run: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    run.get(name).and_then(Value::as_str).context("a run without its ids")
}

/// Requests that wait for runs in the queue of a long thread.
pub(super) struct WaitingRequests;

#[async_trait]
impl Attack for WaitingRequests {
    fn name(&self) -> &'static str {
        "waiting-requests"
    }

    fn describe(&self, form: SiegeForm) -> String {
        let (count, events) = form.choose(("60", "1,500"), ("900", "200,000"));
        format!("Waits with {count} requests (`wait: true`) for runs in the queue of a thread of {events} events.")
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let long = build_long_run(context).await?;
        let user = &context.installation.attacker;
        let thread = id_of(&long, "thread_id")?.to_owned();
        let hold = json!({"model": "writer", "input": "story 600 every 1000", "thread_id": thread});
        let hold = user.post("/v1/tasks", &hold, BUILD_TIMEOUT).await?.expect_status(202)?.json()?;
        context.history.acknowledge_response(user.name, &hold);
        let waiting = json!({"model": "writer", "input": "story 1", "thread_id": thread, "wait": true});
        let request = RepeatedRequest::post(user, "/v1/tasks", &waiting);
        request.repeat(context, &mut outcome, context.form.choose(60, 900));
        context.hold().await;
        Ok(outcome)
    }
}

/// The events and the object of a long run, read again and again.
pub(super) struct LargeReads;

#[async_trait]
impl Attack for LargeReads {
    fn name(&self) -> &'static str {
        "large-reads"
    }

    fn describe(&self, form: SiegeForm) -> String {
        let events = form.choose("1,500", "200,000");
        format!("Reads a run of {events} events as an object and as a stream, from 8 clients each.")
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let long = build_long_run(context).await?;
        let (user, task) = (&context.installation.attacker, id_of(&long, "task_id")?);
        RepeatedRequest::get(user, &format!("/v1/tasks/{task}")).repeat(context, &mut outcome, 8);
        RepeatedRequest::get(user, &format!("/v1/tasks/{task}/events")).repeat(context, &mut outcome, 8);
        context.hold().await;
        Ok(outcome)
    }
}

/// Many runs that each say something every second.
pub(super) struct LiveRuns;

#[async_trait]
impl Attack for LiveRuns {
    fn name(&self) -> &'static str {
        "live-runs"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Keeps {} runs alive, each with a delta per second.", form.choose("60", "2,000"))
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        Ok(ServerSettings { limits: vec![("runs_per_user_max", 2_000)], ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let (count, places) = (context.form.choose(60, 2_000), Arc::new(Semaphore::new(STARTERS)));
        for _ in 0..count {
            let (user, history) = (context.installation.attacker.clone(), context.history.clone());
            let (statuses, places) = (context.statuses.clone(), places.clone());
            context.spawn(&mut outcome, async move {
                let _place = places.acquire().await;
                let body = json!({"model": "writer", "input": "story 600 every 1000"});
                let reply = user.post("/v1/tasks", &body, BUILD_TIMEOUT).await;
                statuses.add_reply(&reply);
                if let Ok(run) = reply.and_then(|reply| reply.expect_status(202)?.json()) {
                    history.acknowledge_response(user.name, &run);
                }
            });
        }
        while context.statuses.total() < count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        context.hold().await;
        Ok(outcome)
    }
}
