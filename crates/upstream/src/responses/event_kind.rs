//! The events of a stream, by name.

use super::hosted_call;
use super::part_sequencer::TextPartKind;

/// Everything that the service documents and a few events that other services send. The rest is `Unknown` and passed on
/// unchanged (audio, compaction, the output of shells).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsesEventKind {
    /// The response was created or makes progress.
    Lifecycle,
    Terminal(TerminalStatus),
    Error,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    TextDelta(TextPartKind),
    TextDone(TextPartKind),
    AnnotationAdded,
    ArgumentsDelta(ArgumentsKind),
    ArgumentsDone(ArgumentsKind),
    /// The name of the event has the tool and its new state.
    HostedProgress,
    HostedInputDelta(hosted_call::HostedInput),
    HostedInputDone(hosted_call::HostedInput),
    PartialImage,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalStatus {
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentsKind {
    /// JSON.
    Function,
    /// Free-form text.
    Custom,
}

impl ResponsesEventKind {
    pub(super) fn from_name(name: &str) -> Self {
        use hosted_call::HostedInput;
        if name == "error" {
            return Self::Error;
        }
        match name.strip_prefix("response.").unwrap_or_default() {
            "created" | "queued" | "in_progress" => Self::Lifecycle,
            "completed" | "done" => Self::Terminal(TerminalStatus::Completed),
            "incomplete" => Self::Terminal(TerminalStatus::Incomplete),
            "failed" => Self::Terminal(TerminalStatus::Failed),
            "cancelled" => Self::Terminal(TerminalStatus::Cancelled),
            "error" => Self::Error,
            "output_item.added" => Self::ItemAdded,
            "output_item.done" => Self::ItemDone,
            // `reasoning_part` is vLLM's.
            "content_part.added" | "reasoning_summary_part.added" | "reasoning_part.added" => Self::PartAdded,
            "content_part.done" | "reasoning_summary_part.done" | "reasoning_part.done" => Self::PartDone,
            "output_text.delta" => Self::TextDelta(TextPartKind::Text),
            "output_text.done" => Self::TextDone(TextPartKind::Text),
            "refusal.delta" => Self::TextDelta(TextPartKind::Refusal),
            "refusal.done" => Self::TextDone(TextPartKind::Refusal),
            "reasoning_summary_text.delta" => Self::TextDelta(TextPartKind::ReasoningSummary),
            "reasoning_summary_text.done" => Self::TextDone(TextPartKind::ReasoningSummary),
            // `reasoning` is Open Responses' name for the same.
            "reasoning_text.delta" | "reasoning.delta" => Self::TextDelta(TextPartKind::Reasoning),
            "reasoning_text.done" | "reasoning.done" => Self::TextDone(TextPartKind::Reasoning),
            "output_text.annotation.added" => Self::AnnotationAdded,
            "function_call_arguments.delta" => Self::ArgumentsDelta(ArgumentsKind::Function),
            "function_call_arguments.done" => Self::ArgumentsDone(ArgumentsKind::Function),
            "custom_tool_call_input.delta" => Self::ArgumentsDelta(ArgumentsKind::Custom),
            "custom_tool_call_input.done" => Self::ArgumentsDone(ArgumentsKind::Custom),
            "code_interpreter_call_code.delta" => Self::HostedInputDelta(HostedInput::Code),
            "code_interpreter_call_code.done" => Self::HostedInputDone(HostedInput::Code),
            "mcp_call_arguments.delta" => Self::HostedInputDelta(HostedInput::Arguments),
            "mcp_call_arguments.done" => Self::HostedInputDone(HostedInput::Arguments),
            "apply_patch_call_operation_diff.delta" => Self::HostedInputDelta(HostedInput::Diff),
            "apply_patch_call_operation_diff.done" => Self::HostedInputDone(HostedInput::Diff),
            "shell_call_command.added" | "shell_call_command.delta" => Self::HostedInputDelta(HostedInput::Command),
            "shell_call_command.done" => Self::HostedInputDone(HostedInput::Command),
            "image_generation_call.partial_image" => Self::PartialImage,
            name if hosted_call::parse_progress_event(name).is_some() => Self::HostedProgress,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All documented events, in the order of the documentation.
    const DOCUMENTED: &str = "response.audio.delta response.audio.done response.audio.transcript.delta \
        response.audio.transcript.done response.code_interpreter_call_code.delta \
        response.code_interpreter_call_code.done response.code_interpreter_call.completed \
        response.code_interpreter_call.in_progress response.code_interpreter_call.interpreting \
        response.compaction.compacting response.completed response.content_part.added response.content_part.done \
        response.created error response.file_search_call.completed response.file_search_call.in_progress \
        response.file_search_call.searching response.function_call_arguments.delta \
        response.function_call_arguments.done response.shell_call_command.added response.shell_call_command.delta \
        response.shell_call_command.done response.shell_call_output_content.delta \
        response.shell_call_output_content.done response.in_progress response.failed response.incomplete \
        response.output_item.added response.output_item.done response.reasoning_summary_part.added \
        response.reasoning_summary_part.done response.reasoning_summary_text.delta \
        response.reasoning_summary_text.done response.reasoning_text.delta response.reasoning_text.done \
        response.refusal.delta response.refusal.done response.output_text.delta response.output_text.done \
        response.web_search_call.completed response.web_search_call.in_progress response.web_search_call.searching \
        response.image_generation_call.completed response.image_generation_call.generating \
        response.image_generation_call.in_progress response.image_generation_call.partial_image \
        response.mcp_call_arguments.delta response.mcp_call_arguments.done response.mcp_call.completed \
        response.mcp_call.failed response.mcp_call.in_progress response.mcp_list_tools.completed \
        response.mcp_list_tools.failed response.mcp_list_tools.in_progress \
        response.output_text.annotation.added response.queued response.custom_tool_call_input.delta \
        response.custom_tool_call_input.done";

    #[test]
    fn every_documented_event_is_handled_and_few_are_passed_through() {
        let events: Vec<&str> = DOCUMENTED.split_ascii_whitespace().collect();
        assert_eq!(events.len(), 59);
        let passed_on: Vec<&str> = events
            .into_iter()
            .filter(|name| ResponsesEventKind::from_name(name) == ResponsesEventKind::Unknown)
            .collect();
        let expected = "response.audio.delta response.audio.done response.audio.transcript.delta \
            response.audio.transcript.done response.compaction.compacting response.shell_call_output_content.delta \
            response.shell_call_output_content.done";
        assert_eq!(passed_on, expected.split_ascii_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn aliases_of_other_services_are_known() {
        for (name, heard) in [
            ("response.error", ResponsesEventKind::Error),
            ("response.reasoning.delta", ResponsesEventKind::TextDelta(TextPartKind::Reasoning)),
            ("response.reasoning.done", ResponsesEventKind::TextDone(TextPartKind::Reasoning)),
            ("response.reasoning_part.added", ResponsesEventKind::PartAdded),
            ("response.reasoning_part.done", ResponsesEventKind::PartDone),
            (
                "response.apply_patch_call_operation_diff.delta",
                ResponsesEventKind::HostedInputDelta(hosted_call::HostedInput::Diff),
            ),
            ("response.cancelled", ResponsesEventKind::Terminal(TerminalStatus::Cancelled)),
        ] {
            assert_eq!(ResponsesEventKind::from_name(name), heard, "{name}");
        }
        for name in ["", "completed", "response.", "acme:trace", "response.web_search_call.", "response.x_call.y"] {
            assert_eq!(ResponsesEventKind::from_name(name), ResponsesEventKind::Unknown, "{name}");
        }
    }
}
