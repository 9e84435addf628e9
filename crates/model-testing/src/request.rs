//! The parts of a request other than its input: model settings, prior history and protocol echo. Drawn from a copy of
//! the generator, so that the rest of the log does not depend on them.

use super::log_builder::LogBuilder;
use super::rng::Rng;
use super::text::random_text;
use model::content::ContentPart;
use model::context::ContextEntry;
use model::event::ClientIds;
use model::history::{HistoryEntry, PriorHistory};
use model::id::{CallId, ItemId, TaskId};
use model::item::ResultStatus;
use model::model_settings::{ModelSettings, OutputFormat, ToolChoice};
use model::record::PrivatePayload;
use serde_json::{Value, json};

/// The private half of a run's first record.
pub(super) fn start_private(log: &mut LogBuilder) -> PrivatePayload {
    let rng = &mut log.rng.clone();
    let echo = rng.chance(40).then(|| random_echo(rng));
    let wishes = if rng.chance(15) { random_model_settings(rng) } else { ModelSettings::default() };
    let before = rng.chance(15).then(|| random_prior_history(rng, &mut log.reference_count));
    let context = if log.options.client_requests { random_context(rng) } else { Vec::new() };
    PrivatePayload {
        request_echo: echo,
        model_settings: wishes,
        prior_history: before,
        context,
        ..PrivatePayload::default()
    }
}

fn random_context(rng: &mut Rng) -> Vec<ContextEntry> {
    let count = rng.choose(0, &[0, 0, 1, 2]);
    let mut entry = || ContextEntry { description: random_text(rng, 0, 3), value: random_text(rng, 0, 6) };
    (0..count).map(|_| entry()).collect()
}

/// The ids that a client of AG-UI uses for a run; of some clients also those of its messages.
pub(super) fn client_ids(log: &LogBuilder) -> ClientIds {
    let rng = &mut log.rng.clone();
    let has_ids = log.options.client_requests && rng.chance(60);
    let run_id = has_ids.then(|| format!("run-{}", rng.between(1, 99)));
    let message_ids = if has_ids { vec![format!("m-{}", rng.between(1, u32::MAX))] } else { Vec::new() };
    ClientIds { protocol: "ag-ui".to_owned(), thread_id: Some("t".to_owned()), run_id, message_ids }
}

/// The ids that come with answers, if any do.
pub(super) fn resuming_client_ids(log: &LogBuilder) -> Option<ClientIds> {
    let has_ids = log.options.client_requests && log.rng.clone().chance(30);
    has_ids.then(|| ClientIds { message_ids: Vec::new(), ..client_ids(log) })
}

/// Some runs do not continue their thread.
pub(super) fn predecessor(log: &LogBuilder, previous: Option<TaskId>) -> Option<TaskId> {
    let is_none = log.options.client_requests && log.rng.clone().chance(5);
    if is_none { Some(TaskId::no_run()) } else { previous }
}

/// The private half of the record that resumes a run.
pub(super) fn resume_private(log: &LogBuilder) -> Option<PrivatePayload> {
    let rng = &mut log.rng.clone();
    rng.chance(40).then(|| PrivatePayload { request_echo: Some(random_echo(rng)), ..PrivatePayload::default() })
}

/// Protocols use different shapes and ignore those of others.
fn random_echo(rng: &mut Rng) -> Value {
    let text = random_text(rng, 0, 4);
    match rng.below(4) {
        0 => json!({}),
        1 => json!({"model": "demo", "temperature": 0.5}),
        2 => json!({"instructions": text}),
        _ => json!([text]),
    }
}

fn random_model_settings(rng: &mut Rng) -> ModelSettings {
    let schema = OutputFormat::Schema { name: "it".to_owned(), schema: json!({"type": "object"}), strict: Some(true) };
    ModelSettings {
        instructions: rng.chance(50).then(|| random_text(rng, 0, 6)),
        max_output_tokens: Some(u64::from(rng.between(1, 9_000))),
        temperature: rng.chance(50).then_some(0.5),
        stop: vec![random_text(rng, 0, 1)],
        tool_choice: rng.pick(&[ToolChoice::Auto, ToolChoice::None, ToolChoice::Required]).cloned(),
        format: rng.chance(50).then_some(schema),
        ..ModelSettings::default()
    }
}

/// A valid conversation; its reference groups take the thread's next numbers.
fn random_prior_history(rng: &mut Rng, references: &mut u32) -> PriorHistory {
    let call_id = CallId::numbered("elsewhere", rng.between(1, u32::MAX));
    let user = |words: String| HistoryEntry::User { content: vec![ContentPart::text(words)] };
    let mut entries = vec![HistoryEntry::System { text: random_text(rng, 0, 4) }, user(random_text(rng, 0, 6))];
    if rng.chance(50) {
        entries.push(HistoryEntry::Call {
            call_id: call_id.clone(),
            name: "get_weather".to_owned(),
            arguments: "{}".to_owned(),
            provider_call_id: None,
            raw: None,
        });
        let content = vec![ContentPart::text(random_text(rng, 0, 6))];
        entries.push(HistoryEntry::Result {
            call_id,
            status: ResultStatus::Completed,
            content,
            acknowledged_checks: None,
        });
        *references = references.saturating_add(rng.between(0, 2));
    }
    entries.push(HistoryEntry::Assistant {
        id: ItemId::from("msg_elsewhere"),
        text: format!("So. {}", random_text(rng, 0, 4)),
        raw: None,
    });
    PriorHistory { entries, reference_count: *references }
}
