//! Groups of events for matches that list every event: a new event is placed in a group here, or by name in each match.

/// Events that only the native protocol shows.
macro_rules! native_only_events {
    () => {
        Event::Started(_)
            | Event::Retrying(_)
            | Event::ToolProgress(_)
            | Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ProviderEvent(_)
            | Event::Cancelling(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_)
    };
}

/// Events whose content is in the fold when their item is done.
macro_rules! item_progress_events {
    () => {
        Event::ArgumentsDelta(_) | Event::HostedCallUpdated(_) | Event::AnnotationAdded(_) | Event::ImageDelta(_)
    };
}

macro_rules! terminal_events {
    () => {
        Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_)
    };
}

pub(crate) use {item_progress_events, native_only_events, terminal_events};
