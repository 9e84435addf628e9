//! The end of a response.

use super::classify_error::classify_stream_error;
use super::event_kind::TerminalStatus;
use super::ingest::{ResponsesIngest, push_unknown};
use super::item_builder::{ItemProgress, ResponsesItemKind};
use crate::json::{non_null_field, str_field, take_field, token_count_field};
use crate::provider_error::{ProviderError, ProviderErrorKind};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelTurnEnd};
use model::usage::Usage;
use serde_json::{Value, json};

impl ResponsesIngest {
    /// The status in the response counts more than the event's name.
    pub(super) fn on_terminal_event(
        &mut self,
        event_status: TerminalStatus,
        mut event: Value,
        out: &mut Vec<ModelEvent>,
    ) {
        let mut response = take_field(&mut event, "response").unwrap_or_default();
        self.update_metadata(&response);
        let status = match str_field(&response, "status") {
            Some("completed") if event_status != TerminalStatus::Failed => TerminalStatus::Completed,
            Some("incomplete") => TerminalStatus::Incomplete,
            Some("failed") => TerminalStatus::Failed,
            Some("cancelled") => TerminalStatus::Cancelled,
            _ => event_status,
        };
        let usage = parse_usage(non_null_field(&response, "usage").unwrap_or(&Value::Null));
        match status {
            TerminalStatus::Completed | TerminalStatus::Incomplete => {
                let output = take_field(&mut response, "output").unwrap_or_default();
                self.reconcile_output(&output, out);
                self.finish_with(status, usage, &response, out);
            }
            TerminalStatus::Failed | TerminalStatus::Cancelled => {
                if usage != Usage::default() {
                    out.push(ModelEvent::Delta(ModelDelta::Usage(usage)));
                }
                let error = non_null_field(&response, "error")
                    .or_else(|| non_null_field(&event, "error"))
                    .map(ProviderError::from_json);
                self.fail(
                    match (status, error) {
                        (_, Some(error)) => classify_stream_error(&error),
                        (TerminalStatus::Cancelled, None) => {
                            ProviderErrorKind::Provider.to_failure("The provider cancelled the response.", None)
                        }
                        (_, None) => ProviderError::default().to_failure(ProviderErrorKind::Provider, None),
                    },
                    out,
                );
            }
        }
    }

    /// Emits what the finished response lists and the stream did not. An empty list means nothing.
    fn reconcile_output(&mut self, output: &Value, out: &mut Vec<ModelEvent>) {
        let output = output.as_array().map_or(&[][..], Vec::as_slice);
        let streamed_count = self.items.items.len();
        for (at, item) in self.items.match_output(output, ResponsesItemKind::from_json) {
            let Some(builder) = self.items.items.get_mut(at) else { continue };
            if builder.kind != ResponsesItemKind::Unsupported {
                builder.finish(&self.origin, item.clone(), out);
            } else if at >= streamed_count {
                push_unknown(item.clone(), out);
            }
        }
    }

    fn finish_with(&mut self, status: TerminalStatus, usage: Usage, response: &Value, out: &mut Vec<ModelEvent>) {
        let reason = non_null_field(response, "incomplete_details").and_then(|details| str_field(details, "reason"));
        let limit = match (status, reason) {
            (TerminalStatus::Incomplete, Some("max_output_tokens" | "max_tokens" | "max_messages")) => {
                Some(StopReason::MaxTokens)
            }
            (TerminalStatus::Incomplete, Some("content_filter")) => Some(StopReason::ContentFilter),
            _ => None,
        };
        if status == TerminalStatus::Incomplete && limit.is_none() {
            let details = json!({ "incomplete_details": response.get("incomplete_details") });
            push_unknown(json!({ "type": "response.incomplete", "response": details }), out);
        }
        // Whatever the reason: a truncated item must not count as complete, a call least of all.
        let is_truncated = |progress, kind: ResponsesItemKind| match progress {
            ItemProgress::Truncated => true,
            ItemProgress::Open => status == TerminalStatus::Incomplete && kind.is_call(),
            ItemProgress::Complete => false,
        };
        let has_truncated = self.items.items.iter().any(|item| is_truncated(item.progress, item.kind));
        let has_calls = self.items.items.iter().any(|item| item.kind.is_call());
        let stop_reason = match limit {
            Some(limit) => limit,
            None if has_truncated => StopReason::MaxTokens,
            None if has_calls => StopReason::ToolCalls,
            None => StopReason::Stop,
        };
        for item in &mut self.items.items {
            if stop_reason.is_complete() {
                item.finish_implicitly(out);
            } else {
                item.parts.close_all(item.slot, out);
            }
        }
        self.is_finished = true;
        let (model, service_tier) = (self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason, usage, model, service_tier }));
    }
}

fn parse_usage(usage: &Value) -> Usage {
    let detail =
        |details: &str, key| non_null_field(usage, details).map_or(0, |details| token_count_field(details, key));
    Usage {
        input_tokens: token_count_field(usage, "input_tokens"),
        cached_tokens: detail("input_tokens_details", "cached_tokens"),
        cache_write_tokens: detail("input_tokens_details", "cache_write_tokens"),
        output_tokens: token_count_field(usage, "output_tokens"),
        reasoning_tokens: detail("output_tokens_details", "reasoning_tokens"),
    }
}
