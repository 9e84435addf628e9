//! Usage and finish reasons.

use crate::json::{self, token_count_field};
use model::event::StopReason;
use model::usage::Usage;
use serde_json::Value;

/// The usage of a chunk: its own, or Groq's `x_groq.usage`.
pub(super) fn usage_of_chunk(chunk: &Value) -> Option<Usage> {
    json::non_null_field(chunk, "usage")
        .and_then(parse_usage)
        .or_else(|| chunk.get("x_groq")?.get("usage").and_then(parse_usage))
}

pub(super) fn parse_usage(usage: &Value) -> Option<Usage> {
    if usage.as_object().is_none_or(|usage| usage.is_empty()) {
        return None;
    }
    let input_tokens = token_count_field(usage, "prompt_tokens");
    let input_details = usage.get("prompt_tokens_details").unwrap_or(&Value::Null);
    let output_details = usage.get("completion_tokens_details").unwrap_or(&Value::Null);
    // OpenAI's field, DeepSeek's, Moonshot's.
    let cached = [
        token_count_field(input_details, "cached_tokens"),
        token_count_field(usage, "prompt_cache_hit_tokens"),
        token_count_field(usage, "cached_tokens"),
    ];
    let reasoning_tokens = token_count_field(output_details, "reasoning_tokens");
    let mut output_tokens = token_count_field(usage, "completion_tokens");
    // xAI does not count reasoning in the completion, as its total shows.
    let separate_total = input_tokens.saturating_add(output_tokens).saturating_add(reasoning_tokens);
    if reasoning_tokens > 0 && token_count_field(usage, "total_tokens") == separate_total {
        output_tokens = output_tokens.saturating_add(reasoning_tokens);
    }
    Some(Usage {
        input_tokens,
        cached_tokens: cached.into_iter().find(|tokens| *tokens > 0).unwrap_or_default(),
        cache_write_tokens: token_count_field(input_details, "cache_write_tokens"),
        output_tokens,
        reasoning_tokens,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatFinishReason {
    Stop(StopReason),
    ProviderFailed,
    Overloaded,
    Aborted,
    Unknown,
}

impl ChatFinishReason {
    pub(super) fn parse(reason: &str) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "stop" | "stop_sequence" | "end_turn" | "eos" | "eos_token" => Self::Stop(StopReason::Stop),
            "tool_calls" | "tool_call" | "tool_use" | "function_call" => Self::Stop(StopReason::ToolCalls),
            "length" | "max_tokens" | "model_length" => Self::Stop(StopReason::MaxTokens),
            "content_filter" | "safety" | "sensitive" => Self::Stop(StopReason::ContentFilter),
            "error" | "network_error" => Self::ProviderFailed,
            "insufficient_system_resource" => Self::Overloaded,
            "abort" | "cancelled" => Self::Aborted,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tokens(usage: &Value) -> [u64; 5] {
        let usage = parse_usage(usage).unwrap();
        [usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens, usage.reasoning_tokens]
    }

    #[test]
    fn usage_is_parsed_in_the_format_of_every_service() {
        let openai = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 2}});
        assert_eq!(tokens(&openai), [9, 3, 0, 4, 2]);
        let openrouter = json!({"prompt_tokens": 9, "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7}, "completion_tokens_details": null});
        assert_eq!(tokens(&openrouter), [9, 0, 7, 4, 0]);
        let deepseek = json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 8});
        assert_eq!(tokens(&deepseek), [9, 8, 0, 4, 0]);
        let moonshot = json!({"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 6});
        assert_eq!(tokens(&moonshot), [9, 6, 0, 4, 0]);
        let groq = json!({"x_groq": {"id": "req_1", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}});
        assert_eq!(usage_of_chunk(&groq).unwrap().output_tokens, 2);
    }

    #[test]
    fn separately_counted_reasoning_tokens_are_added_to_the_output() {
        let xai = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 35,
            "completion_tokens_details": {"reasoning_tokens": 20}});
        assert_eq!(tokens(&xai), [10, 0, 0, 25, 20]);
        let within = json!({"prompt_tokens": 10, "completion_tokens": 25, "total_tokens": 35,
            "completion_tokens_details": {"reasoning_tokens": 20}});
        assert_eq!(tokens(&within), [10, 0, 0, 25, 20]);
    }

    #[test]
    fn invalid_usage_counts_as_zero_and_nothing_overflows() {
        let odd = json!({"prompt_tokens": -4, "completion_tokens": u64::MAX, "total_tokens": u64::MAX,
            "completion_tokens_details": {"reasoning_tokens": 1e300}});
        assert_eq!(tokens(&odd), [0, 0, 0, u64::MAX, u64::MAX]);
        for none in [json!({}), json!(null), json!(7), json!([])] {
            assert_eq!(parse_usage(&none), None);
        }
    }

    #[test]
    fn every_finish_reason_is_mapped() {
        assert_eq!(ChatFinishReason::parse("STOP"), ChatFinishReason::Stop(StopReason::Stop));
        assert_eq!(ChatFinishReason::parse("function_call"), ChatFinishReason::Stop(StopReason::ToolCalls));
        assert_eq!(ChatFinishReason::parse("model_length"), ChatFinishReason::Stop(StopReason::MaxTokens));
        assert_eq!(ChatFinishReason::parse("content_filter"), ChatFinishReason::Stop(StopReason::ContentFilter));
        assert_eq!(ChatFinishReason::parse("error"), ChatFinishReason::ProviderFailed);
        assert_eq!(ChatFinishReason::parse("insufficient_system_resource"), ChatFinishReason::Overloaded);
        assert_eq!(ChatFinishReason::parse("abort"), ChatFinishReason::Aborted);
        assert_eq!(ChatFinishReason::parse("mood"), ChatFinishReason::Unknown);
    }
}
