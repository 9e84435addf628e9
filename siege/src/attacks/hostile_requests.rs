//! Requests that cost the server more than they cost the client.

use super::{Attack, AttackContext, AttackOutcome, SiegeForm};
use crate::http_client::ApiUser;
use crate::installation::{Installation, ServerSettings};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// A request that is sent over and over.
#[derive(Clone)]
pub(super) struct RepeatedRequest {
    pub(super) user: ApiUser,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
}

impl RepeatedRequest {
    pub(super) fn post(user: &ApiUser, path: &str, body: &Value) -> Self {
        Self { user: user.clone(), method: Method::POST, path: path.to_owned(), body: body.to_string().into() }
    }

    pub(super) fn get(user: &ApiUser, path: &str) -> Self {
        Self { user: user.clone(), method: Method::GET, path: path.to_owned(), body: Bytes::new() }
    }

    /// Sends it from this many clients at a time, as fast as it is answered.
    pub(super) fn repeat(&self, context: &AttackContext, outcome: &mut AttackOutcome, clients: usize) {
        for _ in 0..clients {
            let (request, statuses, history) = (self.clone(), context.statuses.clone(), context.history.clone());
            context.spawn(outcome, async move {
                let RepeatedRequest { user, method, path, body } = request;
                loop {
                    let reply = user.send(method.clone(), &path, body.clone(), REQUEST_TIMEOUT).await;
                    statuses.add_reply(&reply);
                    match reply {
                        Ok(reply) if reply.status < 300 && method == Method::POST => {
                            history.acknowledge_response(user.name, &reply.json().unwrap_or_default());
                        }
                        Ok(_) => {}
                        Err(_) => tokio::time::sleep(PAUSE_AFTER_FAILURE).await,
                    }
                }
            });
        }
    }
}

/// A schema of 45 levels, each of which applies the next one twice.
pub(super) struct DoublingSchema;

#[async_trait]
impl Attack for DoublingSchema {
    fn name(&self) -> &'static str {
        "doubling-schema"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Declares a tool whose schema doubles at each of 45 levels, from 8 clients.".to_owned()
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let twice = |level: usize| json!({"allOf": vec![json!({"$ref": format!("#/$defs/a{}", level + 1)}); 2]});
        let mut definitions: Map<String, Value> = (0..45).map(|level| (format!("a{level}"), twice(level))).collect();
        definitions.insert("a45".to_owned(), json!({"type": "object"}));
        let schema = json!({"type": "object", "$ref": "#/$defs/a0", "$defs": definitions});
        let body = json!({"model": "writer", "input": "call evil", "tools": [{"name": "evil", "parameters": schema}]});
        let mut outcome = AttackOutcome::default();
        RepeatedRequest::post(&context.installation.attacker, "/v1/tasks", &body).repeat(context, &mut outcome, 8);
        context.hold().await;
        Ok(outcome)
    }
}

/// Patterns that compile to large automata.
pub(super) struct UnicodePatterns;

#[async_trait]
impl Attack for UnicodePatterns {
    fn name(&self) -> &'static str {
        "unicode-patterns"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Declares 64 tools with 40 large Unicode patterns each, from 4 clients.".to_owned()
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let property =
            |n: usize| (format!("p{n}"), json!({"type": "string", "pattern": format!("[\\p{{L}}\\p{{N}}]{{150}}{n}")}));
        let properties: Map<String, Value> = (0..40).map(property).collect();
        let schema = json!({"type": "object", "properties": properties});
        let tools: Vec<Value> = (0..64).map(|n| json!({"name": format!("tool{n}"), "parameters": schema})).collect();
        let body = json!({"model": "writer", "input": "story 1", "tools": tools});
        let mut outcome = AttackOutcome::default();
        RepeatedRequest::post(&context.installation.attacker, "/v1/tasks", &body).repeat(context, &mut outcome, 4);
        context.hold().await;
        Ok(outcome)
    }
}

/// Bodies of many small values, and of many keys.
pub(super) struct ManyValues;

#[async_trait]
impl Attack for ManyValues {
    fn name(&self) -> &'static str {
        "many-values"
    }

    fn describe(&self, form: SiegeForm) -> String {
        let (values, keys) = form.choose(("110,000", "220"), ("500,000", "850"));
        format!("Sends bodies of {values} values and bodies of {keys} KB of keys, from 2 clients each.")
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let values = "0,".repeat(context.form.choose(109_999, 499_999));
        let mut keys = String::new();
        for n in 0..context.form.choose(24_000, 86_000) {
            let _ = write!(keys, "\"{n}\":0,");
        }
        let body = |inner: String| {
            Bytes::from(format!("{{\"model\":\"writer\",\"input\":\"story 1\",\"metadata\":{{{inner}\"end\":0}}}}"))
        };
        let mut outcome = AttackOutcome::default();
        for body in [body(format!("\"list\":[{values}0],")), body(keys)] {
            let request = RepeatedRequest {
                user: context.installation.attacker.clone(),
                method: Method::POST,
                path: "/v1/tasks".to_owned(),
                body,
            };
            request.repeat(context, &mut outcome, 2);
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// Guesses at keys.
pub(super) struct WrongKeys;

#[async_trait]
impl Attack for WrongKeys {
    fn name(&self) -> &'static str {
        "wrong-keys"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Tries wrong keys from 16 clients, at the address of the probe.".to_owned()
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let guess = ApiUser { key: format!("hw_{}", "x".repeat(64)), ..context.installation.attacker.clone() };
        RepeatedRequest::get(&guess, "/v1/tasks").repeat(context, &mut outcome, 16);
        context.hold().await;
        Ok(outcome)
    }
}

/// As many requests and runs as the server answers.
pub(super) struct RequestFlood;

#[async_trait]
impl Attack for RequestFlood {
    fn name(&self) -> &'static str {
        "request-flood"
    }

    fn describe(&self, form: SiegeForm) -> String {
        format!("Reads lists and starts runs as fast as it is answered, from {} clients.", form.choose(8, 32))
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let clients = context.form.choose(4, 16);
        RepeatedRequest::get(user, "/v1/tasks?limit=100").repeat(context, &mut outcome, clients);
        let run = json!({"model": "writer", "input": "story 3"});
        RepeatedRequest::post(user, "/v1/tasks", &run).repeat(context, &mut outcome, clients);
        context.hold().await;
        Ok(outcome)
    }
}

/// Everything beyond what a user may have.
pub(super) struct QuotaFlood;

#[async_trait]
impl Attack for QuotaFlood {
    fn name(&self) -> &'static str {
        "quota-flood"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Goes on beyond its quotas of runs (50), stored bytes (8 MiB) and requests (1,500 a minute), from 24 clients."
            .to_owned()
    }

    fn settings(&self, _form: SiegeForm, _installation: &Installation) -> anyhow::Result<ServerSettings> {
        Ok(ServerSettings {
            limits: vec![("runs_per_user_max", 50), ("requests_per_user_minute_max", 1_500)],
            files: vec![("user_bytes_max", 8 * 1024 * 1024)],
            ..ServerSettings::default()
        })
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let run = json!({"model": "writer", "input": "story 4 every 500"});
        RepeatedRequest::post(user, "/v1/tasks", &run).repeat(context, &mut outcome, 16);
        let upload = RepeatedRequest {
            user: user.clone(),
            method: Method::POST,
            path: "/api/v1/agent/attachments?name=large.txt".to_owned(),
            body: "x".repeat(1024 * 1024).into(),
        };
        upload.repeat(context, &mut outcome, 8);
        context.hold().await;
        Ok(outcome)
    }
}
