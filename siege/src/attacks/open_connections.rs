//! Connections that are opened and kept, with little or nothing on them.

use super::{Attack, AttackContext, AttackOutcome, AttackPlace, SiegeForm};
use crate::installation::{Installation, ServerSettings};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long it may take until all viewers are there.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

/// More connections than the server has descriptors, on which nothing is sent.
pub(super) struct IdleConnections;

#[async_trait]
impl Attack for IdleConnections {
    fn name(&self) -> &'static str {
        "idle-connections"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Keeps 1,300 idle connections open and renews them, while the server may have 1,024 descriptors.".to_owned()
    }

    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        Ok(ServerSettings { descriptors: Some(1024), ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let (address, statuses) = (context.installation.address().to_owned(), context.statuses.clone());
        context.spawn(&mut outcome, async move {
            let mut idle = VecDeque::new();
            loop {
                for _ in 0..130 {
                    match TcpStream::connect(&address).await {
                        Ok(connection) => {
                            statuses.add("connected");
                            idle.push_back(connection);
                        }
                        Err(_) => statuses.add("refused"),
                    }
                }
                if idle.len() >= 1_300 {
                    idle.drain(..130);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let begun = Instant::now();
        while context.statuses.total() < 1_300 && begun.elapsed() < OPEN_TIMEOUT {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// Many streams on which nothing happens.
pub(super) struct IdleViewers;

#[async_trait]
impl Attack for IdleViewers {
    fn name(&self) -> &'static str {
        "idle-viewers"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Opens {} streams of a run that says nothing.", form.choose("300", "10,000"))
    }

    fn place(&self) -> AttackPlace {
        AttackPlace::Own
    }

    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        let limits = vec![("streams_per_user_max", 10_000), ("requests_per_user_minute_max", 0)];
        Ok(ServerSettings { limits, ..ServerSettings::default() })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let task = context.start_silent_run().await?;
        let (count, places) = (context.form.choose(300, 10_000), Arc::new(Semaphore::new(64)));
        for _ in 0..count {
            let (user, path) = (user.clone(), format!("/v1/tasks/{task}/events"));
            let (statuses, places) = (context.statuses.clone(), places.clone());
            context.spawn(&mut outcome, async move {
                let place = places.acquire().await;
                let mut stream = loop {
                    match user.follow(&path, None).await {
                        Ok(stream) => break stream,
                        Err(_) => statuses.add("refused"),
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                };
                drop(place);
                statuses.add("stream");
                while let Ok(Some(_)) = stream.next().await {}
            });
        }
        // All of them are open before the window begins.
        let begun = Instant::now();
        while context.statuses.count("stream") < count && begun.elapsed() < OPEN_TIMEOUT {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        if context.statuses.count("stream") < count {
            outcome.problems.push(format!("of {count} viewers {} have a stream", context.statuses.count("stream")));
        }
        context.hold().await;
        Ok(outcome)
    }
}
