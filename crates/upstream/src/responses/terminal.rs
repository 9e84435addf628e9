//! How an answer ends.

use super::event_kind::TerminalStatus;
use super::ingest::{ResponsesIngest, push_unknown};
use super::item_builder::{ItemProgress, ResponsesItemKind};
use super::refusal;
use crate::failure::{ProviderError, ProviderErrorKind};
use crate::json::{non_null_field, str_field, take_field, token_count_field};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelTurnEnd};
use model::usage::Usage;
use serde_json::{Value, json};

impl ResponsesIngest {
    /// The service says that it is over. What its status says counts for more than the event's name.
    pub(super) fn on_terminal_event(&mut self, verdict: TerminalStatus, mut event: Value, out: &mut Vec<ModelEvent>) {
        let mut response = take_field(&mut event, "response").unwrap_or_default();
        self.update_metadata(&response);
        let verdict = match str_field(&response, "status") {
            Some("completed") if verdict != TerminalStatus::Failed => TerminalStatus::Completed,
            Some("incomplete") => TerminalStatus::Incomplete,
            Some("failed") => TerminalStatus::Failed,
            Some("cancelled") => TerminalStatus::Cancelled,
            _ => verdict,
        };
        let usage = parse_usage(non_null_field(&response, "usage").unwrap_or(&Value::Null));
        match verdict {
            TerminalStatus::Completed | TerminalStatus::Incomplete => {
                let output = take_field(&mut response, "output").unwrap_or_default();
                self.reconcile_output(&output, out);
                self.finish_with(verdict, usage, &response, out);
            }
            TerminalStatus::Failed | TerminalStatus::Cancelled => {
                if usage != Usage::default() {
                    out.push(ModelEvent::Delta(ModelDelta::Usage(usage)));
                }
                let said = non_null_field(&response, "error")
                    .or_else(|| non_null_field(&event, "error"))
                    .map(ProviderError::from_json);
                self.fail(
                    match (verdict, said) {
                        (_, Some(said)) => refusal::classify_stream_error(&said),
                        (TerminalStatus::Cancelled, None) => {
                            ProviderErrorKind::Provider.to_failure("The provider cancelled the answer.", None)
                        }
                        (_, None) => ProviderError::default().to_failure(ProviderErrorKind::Provider, None),
                    },
                    out,
                );
            }
        }
    }

    /// What the finished answer lists and the stream did not tell is told now. A list that is empty says nothing.
    fn reconcile_output(&mut self, output: &Value, out: &mut Vec<ModelEvent>) {
        let output = output.as_array().map_or(&[][..], Vec::as_slice);
        let has_computer = self.has_computer_tool;
        let known = self.items.items.len();
        for (at, item) in self.items.match_output(output, |item| ResponsesItemKind::from_json(item, has_computer)) {
            let Some(told) = self.items.items.get_mut(at) else { continue };
            if told.kind != ResponsesItemKind::Unsupported {
                told.finish(&self.origin, item.clone(), out);
            } else if at >= known {
                push_unknown(item.clone(), out);
            }
        }
    }

    fn finish_with(&mut self, verdict: TerminalStatus, usage: Usage, response: &Value, out: &mut Vec<ModelEvent>) {
        let reason = non_null_field(response, "incomplete_details").and_then(|details| str_field(details, "reason"));
        let known = match (verdict, reason) {
            (TerminalStatus::Incomplete, Some("max_output_tokens" | "max_tokens" | "max_messages")) => {
                Some(StopReason::MaxTokens)
            }
            (TerminalStatus::Incomplete, Some("content_filter")) => Some(StopReason::ContentFilter),
            _ => None,
        };
        if verdict == TerminalStatus::Incomplete && known.is_none() {
            let details = json!({ "incomplete_details": response.get("incomplete_details") });
            push_unknown(json!({ "type": "response.incomplete", "response": details }), out);
        }
        // Whatever the reason: what was broken off must not count as whole, and a call least of all.
        let is_broken = |stage, kind: ResponsesItemKind| match stage {
            ItemProgress::Truncated => true,
            ItemProgress::Open => verdict == TerminalStatus::Incomplete && kind.is_call(),
            ItemProgress::Complete => false,
        };
        let broken = self.items.items.iter().any(|item| is_broken(item.progress, item.kind));
        let calls = self.items.items.iter().any(|item| item.kind.is_call());
        let stop = match known {
            Some(known) => known,
            None if broken => StopReason::MaxTokens,
            None if calls => StopReason::ToolCalls,
            None => StopReason::Stop,
        };
        for item in &mut self.items.items {
            if stop.is_complete() {
                item.finish_implicitly(out);
            } else {
                item.parts.close_all(item.slot, out);
            }
        }
        self.is_finished = true;
        let (model, service_tier) = (self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage, model, service_tier }));
    }
}

fn parse_usage(usage: &Value) -> Usage {
    let part = |details: &str, key| non_null_field(usage, details).map_or(0, |details| token_count_field(details, key));
    Usage {
        input_tokens: token_count_field(usage, "input_tokens"),
        cached_tokens: part("input_tokens_details", "cached_tokens"),
        cache_write_tokens: part("input_tokens_details", "cache_write_tokens"),
        output_tokens: token_count_field(usage, "output_tokens"),
        reasoning_tokens: part("output_tokens_details", "reasoning_tokens"),
    }
}
