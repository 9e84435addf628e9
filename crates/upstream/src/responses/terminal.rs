//! How an answer ends.

use super::event::Verdict;
use super::ingest::{Answer, unknown};
use super::item::{Kind, Stage};
use super::refusal;
use crate::failure::{Complaint, Trouble};
use crate::json::{count, present, take, text};
use model::event::StopReason;
use model::model_turn::{ModelDelta, ModelEvent, ModelTurnEnd};
use model::usage::Usage;
use serde_json::{Value, json};

impl Answer {
    /// The service says that it is over. What its status says counts for more than the event's name.
    pub(super) fn finish(&mut self, verdict: Verdict, mut event: Value, out: &mut Vec<ModelEvent>) {
        let mut response = take(&mut event, "response").unwrap_or_default();
        self.life(&response);
        let verdict = match text(&response, "status") {
            Some("completed") if verdict != Verdict::Failed => Verdict::Completed,
            Some("incomplete") => Verdict::Incomplete,
            Some("failed") => Verdict::Failed,
            Some("cancelled") => Verdict::Cancelled,
            _ => verdict,
        };
        let usage = usage(present(&response, "usage").unwrap_or(&Value::Null));
        match verdict {
            Verdict::Completed | Verdict::Incomplete => {
                let output = take(&mut response, "output").unwrap_or_default();
                self.settle(&output, out);
                self.end_with(verdict, usage, &response, out);
            }
            Verdict::Failed | Verdict::Cancelled => {
                if usage != Usage::default() {
                    out.push(ModelEvent::Delta(ModelDelta::Usage(usage)));
                }
                let said = present(&response, "error").or_else(|| present(&event, "error")).map(Complaint::of);
                self.fail(
                    match (verdict, said) {
                        (_, Some(said)) => refusal::of_stream(&said),
                        (Verdict::Cancelled, None) => {
                            Trouble::Provider.failure("The provider cancelled the answer.", None)
                        }
                        (_, None) => Complaint::default().failure(Trouble::Provider, None),
                    },
                    out,
                );
            }
        }
    }

    /// What the finished answer lists and the stream did not tell is told now. A list that is empty says nothing.
    fn settle(&mut self, output: &Value, out: &mut Vec<ModelEvent>) {
        let output = output.as_array().map_or(&[][..], Vec::as_slice);
        let has_computer = self.has_computer;
        let known = self.items.list.len();
        for (at, item) in self.items.listed(output, |item| Kind::of(item, has_computer)) {
            let Some(told) = self.items.list.get_mut(at) else { continue };
            if told.kind != Kind::Foreign {
                told.finish(&self.origin, item.clone(), out);
            } else if at >= known {
                unknown(item.clone(), out);
            }
        }
    }

    fn end_with(&mut self, verdict: Verdict, usage: Usage, response: &Value, out: &mut Vec<ModelEvent>) {
        let reason = present(response, "incomplete_details").and_then(|details| text(details, "reason"));
        let known = match (verdict, reason) {
            (Verdict::Incomplete, Some("max_output_tokens" | "max_tokens" | "max_messages")) => {
                Some(StopReason::MaxTokens)
            }
            (Verdict::Incomplete, Some("content_filter")) => Some(StopReason::ContentFilter),
            _ => None,
        };
        if verdict == Verdict::Incomplete && known.is_none() {
            let details = json!({ "incomplete_details": response.get("incomplete_details") });
            unknown(json!({ "type": "response.incomplete", "response": details }), out);
        }
        // Whatever the reason: what was broken off must not count as whole, and a call least of all.
        let is_broken = |stage, kind: Kind| match stage {
            Stage::Cut => true,
            Stage::Open => verdict == Verdict::Incomplete && kind.is_call(),
            Stage::Whole => false,
        };
        let broken = self.items.list.iter().any(|item| is_broken(item.stage, item.kind));
        let calls = self.items.list.iter().any(|item| item.kind.is_call());
        let stop = match known {
            Some(known) => known,
            None if broken => StopReason::MaxTokens,
            None if calls => StopReason::ToolCalls,
            None => StopReason::Stop,
        };
        for item in &mut self.items.list {
            if stop.is_complete() {
                item.settle(out);
            } else {
                item.parts.close_all(item.slot, out);
            }
        }
        self.over = true;
        let (model, service_tier) = (self.model.take(), self.service_tier.take());
        out.push(ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage, model, service_tier }));
    }
}

fn usage(usage: &Value) -> Usage {
    let part = |details: &str, key| present(usage, details).map_or(0, |details| count(details, key));
    Usage {
        input_tokens: count(usage, "input_tokens"),
        cached_tokens: part("input_tokens_details", "cached_tokens"),
        cache_write_tokens: part("input_tokens_details", "cache_write_tokens"),
        output_tokens: count(usage, "output_tokens"),
        reasoning_tokens: part("output_tokens_details", "reasoning_tokens"),
    }
}
