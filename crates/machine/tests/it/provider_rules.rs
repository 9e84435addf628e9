//! What the large providers reject in a conversation, as strictly as the strictest of them.

use model::CallId;
use model::content::ContentPart;
use model::history::HistoryEntry;
use std::collections::HashSet;

/// Checks that every provider would accept this history. Returns the reason for a rejection.
pub(crate) fn check_history<'a>(history: impl IntoIterator<Item = &'a HistoryEntry>) -> Result<(), String> {
    let history: Vec<&HistoryEntry> = history.into_iter().collect();
    // Some providers do not count the client's system messages as part of the conversation.
    match history.iter().find(|entry| !matches!(entry, HistoryEntry::System { .. })) {
        Some(HistoryEntry::User { .. } | HistoryEntry::Summary { .. }) => {}
        first => return Err(format!("a conversation begins with a user, not with {first:?}")),
    }
    let mut pairs = CallPairs::default();
    for entry in history {
        pairs.push_entry(entry)?;
        check_not_empty(entry)?;
    }
    pairs.check_no_open_calls("the end")
}

/// The calls without a result.
#[derive(Default)]
struct CallPairs<'a> {
    seen_ids: HashSet<&'a CallId>,
    open: Vec<&'a CallId>,
    /// Results have started: the turn that called is over.
    answering: bool,
}

impl<'a> CallPairs<'a> {
    fn push_entry(&mut self, entry: &'a HistoryEntry) -> Result<(), String> {
        match entry {
            HistoryEntry::User { .. } | HistoryEntry::System { .. } | HistoryEntry::Summary { .. } => {
                self.check_no_open_calls("a user's word")
            }
            HistoryEntry::Assistant { .. }
            | HistoryEntry::GeneratedImages { .. }
            | HistoryEntry::Reasoning { .. }
            | HistoryEntry::Hosted { .. } => self.on_model_entry(),
            HistoryEntry::Call { call_id, .. } => {
                self.on_model_entry()?;
                self.open.push(call_id);
                if self.seen_ids.insert(call_id) { Ok(()) } else { Err(format!("{call_id} is named twice")) }
            }
            HistoryEntry::Result { call_id, .. } => {
                self.answering = true;
                let place = self.open.iter().position(|open| *open == call_id);
                place.map(|place| self.open.remove(place)).map(|_| ()).ok_or_else(|| {
                    format!("a result of {call_id}, which was not asked for in the turn before, or a second one")
                })
            }
        }
    }

    /// The model continues within its turn, or in a new one for which every call must have a result.
    fn on_model_entry(&mut self) -> Result<(), String> {
        if self.answering {
            self.check_no_open_calls("the next turn")?;
            self.answering = false;
        }
        Ok(())
    }

    fn check_no_open_calls(&self, before: &str) -> Result<(), String> {
        if self.open.is_empty() { Ok(()) } else { Err(format!("{:?} have no result before {before}", self.open)) }
    }
}

fn check_not_empty(entry: &HistoryEntry) -> Result<(), String> {
    let parts: &[ContentPart] = match entry {
        HistoryEntry::User { content }
        | HistoryEntry::GeneratedImages { content }
        | HistoryEntry::Result { content, .. } => content,
        HistoryEntry::Assistant { text, .. } | HistoryEntry::Summary { text } | HistoryEntry::System { text }
            if text.trim().is_empty() =>
        {
            return Err(format!("an empty message: {entry:?}"));
        }
        HistoryEntry::Assistant { .. }
        | HistoryEntry::Summary { .. }
        | HistoryEntry::System { .. }
        | HistoryEntry::Reasoning { .. }
        | HistoryEntry::Hosted { .. }
        | HistoryEntry::Call { .. } => return Ok(()),
    };
    // A file on the web was read, or is a note: no provider fetches it for us.
    let is_file = |part: &ContentPart| matches!(part, ContentPart::File { file } if file.web_url().is_some());
    if parts.iter().any(is_file) {
        return Err(format!("a file that was not read: {entry:?}"));
    }
    let is_empty = |part: &ContentPart| matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty());
    if parts.is_empty() || parts.iter().any(is_empty) { Err(format!("an empty part: {entry:?}")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::check_history;
    use crate::fixtures::call_id;
    use model::ItemId;
    use model::content::ContentPart;
    use model::history::HistoryEntry;
    use model::item::ResultStatus;

    fn user() -> HistoryEntry {
        HistoryEntry::User { content: vec![ContentPart::text("go")] }
    }

    fn says(text: &str) -> HistoryEntry {
        HistoryEntry::Assistant { id: ItemId::from("msg_1"), text: text.to_owned(), raw: None }
    }

    fn asks(label: &str) -> HistoryEntry {
        let (name, arguments) = ("t".to_owned(), "{}".to_owned());
        HistoryEntry::Call { call_id: call_id(label), name, arguments, provider_call_id: None, raw: None }
    }

    fn gets(label: &str) -> HistoryEntry {
        let content = vec![ContentPart::text("ok")];
        let (call_id, status) = (call_id(label), ResultStatus::Completed);
        HistoryEntry::Result { call_id, status, content, acknowledged_checks: None }
    }

    #[test]
    fn histories_that_every_provider_accepts() {
        for history in [
            vec![user()],
            vec![user(), user()],
            vec![user(), says("a"), asks("call_R1"), asks("call_R2"), gets("call_R2"), gets("call_R1"), says("b")],
            vec![user(), asks("call_R1"), says("beside it"), gets("call_R1"), user()],
        ] {
            assert_eq!(check_history(&history), Ok(()));
        }
    }

    #[test]
    fn histories_that_some_provider_rejects() {
        for history in [
            vec![],
            vec![says("a")],
            vec![user(), gets("call_R1")],
            vec![user(), asks("call_R1")],
            vec![user(), asks("call_R1"), user()],
            vec![user(), asks("call_R1"), asks("call_R2"), gets("call_R1"), says("b"), gets("call_R2")],
            vec![user(), asks("call_R1"), gets("call_R1"), gets("call_R1")],
            vec![user(), asks("call_R1"), gets("call_R1"), asks("call_R1"), gets("call_R1")],
            vec![user(), says(" ")],
            vec![HistoryEntry::User { content: vec![] }],
            vec![HistoryEntry::User { content: vec![ContentPart::text("")] }],
        ] {
            assert!(check_history(&history).is_err(), "{history:?}");
        }
    }
}
