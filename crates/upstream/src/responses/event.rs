//! Which events there are.

use super::hosted;
use super::part::Family;

/// What an event is about. All that the service documents and a few that others send; what is not here is passed on as
/// it came (audio, compaction, the output of shells: nothing of ours is like them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The response is on its way.
    Life,
    /// It is over.
    Over(Verdict),
    /// Something went wrong.
    Error,
    /// An item begins.
    ItemAdded,
    /// An item is whole.
    ItemDone,
    /// A part of an item begins.
    PartAdded,
    /// A part of an item is whole.
    PartDone,
    /// More of a part. The field that holds it when it is whole is `text`, but for refusals.
    Piece(Family),
    /// A part's text is whole.
    Whole(Family),
    /// A part refers to something.
    Annotation,
    /// More of a call's arguments.
    Arguments(Asked),
    /// A call's arguments are whole.
    ArgumentsDone(Asked),
    /// A hosted tool moved on: the type says which and where to.
    Hosted,
    /// More of what a hosted tool is given.
    Given(hosted::Given),
    /// What a hosted tool is given is whole.
    GivenDone(hosted::Given),
    /// A picture is a bit sharper.
    Picture,
    /// Nothing that we know.
    Unknown,
}

/// How a response ended, by its event's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// What kind of arguments a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A JSON text.
    Function,
    /// Any text.
    Custom,
}

impl Heard {
    pub(super) fn of(name: &str) -> Self {
        use hosted::Given;
        if name == "error" {
            return Self::Error;
        }
        match name.strip_prefix("response.").unwrap_or_default() {
            "created" | "queued" | "in_progress" => Self::Life,
            "completed" | "done" => Self::Over(Verdict::Completed),
            "incomplete" => Self::Over(Verdict::Incomplete),
            "failed" => Self::Over(Verdict::Failed),
            "cancelled" => Self::Over(Verdict::Cancelled),
            "error" => Self::Error,
            "output_item.added" => Self::ItemAdded,
            "output_item.done" => Self::ItemDone,
            // `reasoning_part` is vLLM's.
            "content_part.added" | "reasoning_summary_part.added" | "reasoning_part.added" => Self::PartAdded,
            "content_part.done" | "reasoning_summary_part.done" | "reasoning_part.done" => Self::PartDone,
            "output_text.delta" => Self::Piece(Family::Text),
            "output_text.done" => Self::Whole(Family::Text),
            "refusal.delta" => Self::Piece(Family::Refusal),
            "refusal.done" => Self::Whole(Family::Refusal),
            "reasoning_summary_text.delta" => Self::Piece(Family::Summary),
            "reasoning_summary_text.done" => Self::Whole(Family::Summary),
            // `reasoning` is Open Responses' name for the same.
            "reasoning_text.delta" | "reasoning.delta" => Self::Piece(Family::Thought),
            "reasoning_text.done" | "reasoning.done" => Self::Whole(Family::Thought),
            "output_text.annotation.added" => Self::Annotation,
            "function_call_arguments.delta" => Self::Arguments(Asked::Function),
            "function_call_arguments.done" => Self::ArgumentsDone(Asked::Function),
            "custom_tool_call_input.delta" => Self::Arguments(Asked::Custom),
            "custom_tool_call_input.done" => Self::ArgumentsDone(Asked::Custom),
            "code_interpreter_call_code.delta" => Self::Given(Given::Code),
            "code_interpreter_call_code.done" => Self::GivenDone(Given::Code),
            "mcp_call_arguments.delta" => Self::Given(Given::Arguments),
            "mcp_call_arguments.done" => Self::GivenDone(Given::Arguments),
            "apply_patch_call_operation_diff.delta" => Self::Given(Given::Diff),
            "apply_patch_call_operation_diff.done" => Self::GivenDone(Given::Diff),
            "shell_call_command.added" | "shell_call_command.delta" => Self::Given(Given::Command),
            "shell_call_command.done" => Self::GivenDone(Given::Command),
            "image_generation_call.partial_image" => Self::Picture,
            moved if hosted::moved(moved).is_some() => Self::Hosted,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the service documents, in the order of its list.
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
    fn every_documented_event_has_a_place_and_few_are_passed_on_as_they_came() {
        let events: Vec<&str> = DOCUMENTED.split_ascii_whitespace().collect();
        assert_eq!(events.len(), 59);
        let passed_on: Vec<&str> = events.into_iter().filter(|name| Heard::of(name) == Heard::Unknown).collect();
        let expected = "response.audio.delta response.audio.done response.audio.transcript.delta \
            response.audio.transcript.done response.compaction.compacting response.shell_call_output_content.delta \
            response.shell_call_output_content.done";
        assert_eq!(passed_on, expected.split_ascii_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn what_others_call_differently_is_known() {
        for (name, heard) in [
            ("response.error", Heard::Error),
            ("response.reasoning.delta", Heard::Piece(Family::Thought)),
            ("response.reasoning.done", Heard::Whole(Family::Thought)),
            ("response.reasoning_part.added", Heard::PartAdded),
            ("response.reasoning_part.done", Heard::PartDone),
            ("response.apply_patch_call_operation_diff.delta", Heard::Given(hosted::Given::Diff)),
            ("response.cancelled", Heard::Over(Verdict::Cancelled)),
        ] {
            assert_eq!(Heard::of(name), heard, "{name}");
        }
        for name in ["", "completed", "response.", "acme:trace", "response.web_search_call.", "response.x_call.y"] {
            assert_eq!(Heard::of(name), Heard::Unknown, "{name}");
        }
    }
}
