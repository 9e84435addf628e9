//! Normalizes the history to what every provider accepts: each call has one result, right after the turn that made it;
//! every result has its call; nothing is empty; and raw items go only to the origin that sent them.
//!
//! The run loop mostly produces such a history. Here it is a guarantee: any input gives a history that can be sent.

use crate::content_parts::is_blank_part;
use crate::generated_image::generated_image;
use model::CallId;
use model::content::ContentPart;
use model::history::{HistoryEntry, RawItem};
use model::item::ResultStatus;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The type of an item with which a provider asks whether it may call a tool of an MCP server.
pub(crate) const APPROVAL_REQUEST_TYPE: &str = "mcp_approval_request";
/// Precedes an image that a model generated.
const IMAGE_CAPTION: &str = "[A picture that was drawn in this conversation:]";
/// Image formats by the first characters of their base64.
const IMAGE_BASE64_PREFIXES: [(&str, &str); 4] =
    [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];
/// The result of a call that has none.
const INTERRUPTED_RESULT: &str = "The call was interrupted: it is not known what became of it.";
/// The content of a result that has none.
const EMPTY_RESULT: &str = "(no output)";

/// One element of a request's history. `raw` is present only if the target of the request sent it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PromptItem<'a> {
    /// Replaces the history before it.
    Summary(&'a str),
    /// Instructions within the conversation; not blank.
    System(&'a str),
    /// At least one part, none of them blank. Generated images precede the user's own parts.
    User(Vec<Cow<'a, ContentPart>>),
    Reasoning(&'a Value),
    /// The text is not blank.
    Assistant {
        text: &'a str,
        raw: Option<&'a Value>,
    },
    /// A call of a tool that the provider runs itself.
    Hosted {
        name: &'a str,
        raw: &'a Value,
    },
    Call(PromptCall<'a>),
    Result(PromptResult<'a>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PromptCall<'a> {
    /// Unique within the request.
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    /// Not necessarily JSON.
    pub(crate) arguments: &'a str,
    pub(crate) raw: Option<&'a Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PromptResult<'a> {
    pub(crate) call: PromptCall<'a>,
    pub(crate) status: ResultStatus,
    /// At least one part, none of them blank.
    pub(crate) content: Vec<ContentPart>,
    /// The safety checks of a computer call that the client acknowledged; `None` if the server ran the call.
    pub(crate) acknowledged_checks: Option<&'a [Value]>,
}

/// The history without requests for approval of hosted tools, and without their decisions.
pub(crate) fn normalize_history<'a>(
    history: impl IntoIterator<Item = &'a HistoryEntry>,
    origin: &str,
) -> Vec<PromptItem<'a>> {
    normalize(history, origin, HostedApprovals::Omitted)
}

/// The history with the requests of this origin for approval of hosted tools: calls whose results are the decisions.
pub(crate) fn normalize_history_with_approvals<'a>(
    history: impl IntoIterator<Item = &'a HistoryEntry>,
    origin: &str,
) -> Vec<PromptItem<'a>> {
    normalize(history, origin, HostedApprovals::OfOrigin)
}

/// Which requests for approval of hosted tools a history keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HostedApprovals {
    #[default]
    Omitted,
    OfOrigin,
}

fn normalize<'a>(
    history: impl IntoIterator<Item = &'a HistoryEntry>,
    origin: &str,
    hosted_approvals: HostedApprovals,
) -> Vec<PromptItem<'a>> {
    let history: Vec<&'a HistoryEntry> = history.into_iter().collect();
    let mut normalizer = HistoryNormalizer {
        origin,
        hosted_approvals,
        wire_ids: wire_call_ids(&history, origin),
        results: first_results(&history),
        ..HistoryNormalizer::default()
    };
    for entry in history {
        normalizer.push_entry(entry);
    }
    normalizer.push_results();
    normalizer.push_user(&[]);
    normalizer.out
}

/// The id of each call in the request: the provider's own if the call came from there and the id is unique, else ours.
fn wire_call_ids<'a>(history: &[&'a HistoryEntry], origin: &str) -> HashMap<&'a CallId, &'a str> {
    let ids_of = |entry: &'a HistoryEntry| match entry {
        HistoryEntry::Call { call_id, provider_call_id, raw, .. } => {
            let provider_id = provider_call_id.as_deref().filter(|id| !id.is_empty());
            Some((call_id, provider_id.filter(|_| raw_if_from_origin(raw.as_ref(), origin).is_some())))
        }
        _ => None,
    };
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for (call_id, provider_id) in history.iter().copied().filter_map(ids_of) {
        for id in [Some(call_id.as_str()), provider_id].into_iter().flatten() {
            *uses.entry(id).or_default() += 1;
        }
    }
    let wire_id = |(call_id, provider_id): (&'a CallId, Option<&'a str>)| {
        (call_id, provider_id.filter(|id| uses.get(id) == Some(&1)).unwrap_or(call_id.as_str()))
    };
    history.iter().copied().filter_map(ids_of).map(wire_id).collect()
}

/// A result in the history.
#[derive(Clone, Copy)]
struct GivenResult<'a> {
    status: ResultStatus,
    content: &'a [ContentPart],
    acknowledged_checks: Option<&'a [Value]>,
}

fn first_results<'a>(history: &[&'a HistoryEntry]) -> HashMap<&'a CallId, GivenResult<'a>> {
    let mut results = HashMap::new();
    for entry in history {
        if let HistoryEntry::Result { call_id, status, content, acknowledged_checks } = entry {
            let (status, acknowledged_checks) = (*status, acknowledged_checks.as_deref());
            results.entry(call_id).or_insert(GivenResult { status, content, acknowledged_checks });
        }
    }
    results
}

/// Whether a provider asked with this item, whichever provider it was.
fn is_approval_request(raw: Option<&RawItem>) -> bool {
    raw.and_then(|raw| raw.item.get("type")).and_then(Value::as_str) == Some(APPROVAL_REQUEST_TYPE)
}

fn raw_if_from_origin<'a>(raw: Option<&'a RawItem>, origin: &str) -> Option<&'a Value> {
    raw.filter(|raw| raw.origin == origin).map(|raw| &raw.item)
}

/// The image of a hosted call, if the item has its bytes.
fn generated_image_part(item: &Value) -> Option<ContentPart> {
    let base64 = generated_image(item)?;
    let (_, media_type) = IMAGE_BASE64_PREFIXES.iter().find(|(prefix, _)| base64.starts_with(prefix))?;
    Some(ContentPart::image(format!("data:{media_type};base64,{base64}")))
}

#[derive(Default)]
struct HistoryNormalizer<'a, 'o> {
    origin: &'o str,
    hosted_approvals: HostedApprovals,
    wire_ids: HashMap<&'a CallId, &'a str>,
    results: HashMap<&'a CallId, GivenResult<'a>>,
    seen_calls: HashSet<&'a CallId>,
    unanswered_calls: Vec<(&'a CallId, PromptCall<'a>)>,
    generated_images: Vec<ContentPart>,
    out: Vec<PromptItem<'a>>,
}

impl<'a> HistoryNormalizer<'a, '_> {
    fn push_entry(&mut self, entry: &'a HistoryEntry) {
        match entry {
            HistoryEntry::Summary { text } => {
                self.push_results();
                self.out.extend(Some(text.as_str()).filter(|text| !text.trim().is_empty()).map(PromptItem::Summary));
            }
            HistoryEntry::System { text } => {
                self.push_results();
                self.out.extend(Some(text.as_str()).filter(|text| !text.trim().is_empty()).map(PromptItem::System));
            }
            HistoryEntry::User { content } => {
                self.push_results();
                self.push_user(content);
            }
            HistoryEntry::Reasoning { raw, .. } => {
                self.out.extend(raw_if_from_origin(Some(raw), self.origin).map(PromptItem::Reasoning));
            }
            HistoryEntry::Assistant { text, raw, .. } => {
                if !text.trim().is_empty() {
                    self.out.push(PromptItem::Assistant { text, raw: raw_if_from_origin(raw.as_ref(), self.origin) });
                }
            }
            HistoryEntry::Hosted { name, raw, .. } => match raw_if_from_origin(Some(raw), self.origin) {
                Some(raw) => self.out.push(PromptItem::Hosted { name, raw }),
                None => self.generated_images.extend(generated_image_part(&raw.item)),
            },
            HistoryEntry::GeneratedImages { content } => {
                self.generated_images.extend(content.iter().filter(|part| !is_blank_part(part)).cloned());
            }
            HistoryEntry::Call { call_id, name, arguments, raw, .. } => {
                // A repeated call is one call.
                if self.is_sendable_call(raw.as_ref()) && self.seen_calls.insert(call_id) {
                    let id = self.wire_ids.get(call_id).copied().unwrap_or(call_id.as_str());
                    let call = PromptCall { id, name, arguments, raw: raw_if_from_origin(raw.as_ref(), self.origin) };
                    self.out.push(PromptItem::Call(call.clone()));
                    self.unanswered_calls.push((call_id, call));
                }
            }
            HistoryEntry::Result { .. } => self.push_results(),
        }
    }

    /// A request for approval means nothing to another provider, and nothing ran: it is no call there.
    fn is_sendable_call(&self, raw: Option<&RawItem>) -> bool {
        let is_own = raw_if_from_origin(raw, self.origin).is_some();
        !is_approval_request(raw) || (is_own && self.hosted_approvals == HostedApprovals::OfOrigin)
    }

    /// Adds a user message. Providers accept no images in assistant messages, so generated images go here.
    fn push_user(&mut self, content: &'a [ContentPart]) {
        let images = std::mem::take(&mut self.generated_images);
        let images = images.into_iter().flat_map(|image| [ContentPart::text(IMAGE_CAPTION), image]).map(Cow::Owned);
        let content = content.iter().filter(|part| !is_blank_part(part)).map(Cow::Borrowed);
        let content: Vec<Cow<'a, ContentPart>> = images.chain(content).collect();
        self.out.extend((!content.is_empty()).then_some(PromptItem::User(content)));
    }

    /// Adds the results of the turn's calls, in the order of the calls.
    fn push_results(&mut self) {
        for (call_id, call) in std::mem::take(&mut self.unanswered_calls) {
            let found = self.results.get(call_id).copied();
            let unknown = GivenResult { status: ResultStatus::Unknown, content: &[], acknowledged_checks: None };
            let GivenResult { status, content, acknowledged_checks } = found.unwrap_or(unknown);
            let mut content: Vec<ContentPart> = content.iter().filter(|part| !is_blank_part(part)).cloned().collect();
            if content.is_empty() {
                content.push(ContentPart::text(if found.is_some() { EMPTY_RESULT } else { INTERRUPTED_RESULT }));
            }
            self.out.push(PromptItem::Result(PromptResult { call, status, content, acknowledged_checks }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ItemId;
    use serde_json::json;

    fn raw(origin: &str) -> Option<RawItem> {
        Some(RawItem { origin: origin.to_owned(), item: json!({"from": origin}) })
    }

    fn call(id: &str, theirs: &str, origin: &str) -> HistoryEntry {
        HistoryEntry::Call {
            call_id: CallId::from(id),
            name: "tool".to_owned(),
            arguments: "{}".to_owned(),
            provider_call_id: Some(theirs.to_owned()),
            raw: raw(origin),
        }
    }

    fn result(id: &str, text: &str) -> HistoryEntry {
        let content = vec![ContentPart::text(text)];
        let (status, acknowledged_checks) = (ResultStatus::Completed, None);
        HistoryEntry::Result { call_id: CallId::from(id), status, content, acknowledged_checks }
    }

    fn user(text: &str) -> HistoryEntry {
        HistoryEntry::User { content: vec![ContentPart::text(text)] }
    }

    /// One word per element.
    fn story(history: &[HistoryEntry]) -> String {
        let words = normalize_history(history, "here").into_iter().map(|told| match told {
            PromptItem::Summary(_) => "summary".to_owned(),
            PromptItem::System(_) => "system".to_owned(),
            PromptItem::User(_) => "user".to_owned(),
            PromptItem::Reasoning(_) => "reasoning".to_owned(),
            PromptItem::Assistant { raw, .. } => format!("assistant:{}", raw.is_some()),
            PromptItem::Hosted { .. } => "hosted".to_owned(),
            PromptItem::Call(call) => format!("call:{}:{}", call.id, call.raw.is_some()),
            PromptItem::Result(result) => format!("result:{}:{:?}", result.call.id, result.status),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_call_has_one_result_right_after_its_turn() {
        let history = [call("c1", "p1", "here"), call("c2", "p2", "here"), user("go on"), result("c1", "late")];
        assert_eq!(story(&history), "call:p1:true call:p2:true result:p1:Completed result:p2:Unknown user");
        let twice = [call("c1", "p1", "here"), call("c1", "p1", "here"), result("c1", "a"), result("c1", "b")];
        assert_eq!(story(&twice), "call:c1:true result:c1:Completed");
        assert_eq!(story(&[result("c9", "nobody asked"), user("hi")]), "user");
        let system = HistoryEntry::System { text: "Be brief.".to_owned() };
        assert_eq!(story(&[call("c1", "p1", "here"), system]), "call:p1:true result:p1:Unknown system");
    }

    #[test]
    fn a_providers_call_id_is_used_only_for_its_origin_and_if_unique() {
        let same = [call("c1", "p", "here"), result("c1", "a"), call("c2", "p", "here"), result("c2", "b")];
        assert_eq!(story(&same), "call:c1:true result:c1:Completed call:c2:true result:c2:Completed");
        assert_eq!(story(&[call("c1", "p", "there")]), "call:c1:false result:c1:Unknown");
        let clash = [call("c1", "c2", "here"), call("c2", "p2", "here")];
        assert_eq!(story(&clash), "call:c1:true call:p2:true result:c1:Unknown result:p2:Unknown");
    }

    #[test]
    fn an_image_generated_by_another_model_is_sent_with_the_next_user_message() {
        let drawing = |origin: &str, result: &str| HistoryEntry::Hosted {
            id: ItemId::from("i"),
            name: "image_generation".to_owned(),
            raw: RawItem {
                origin: origin.to_owned(),
                item: json!({"type": "image_generation_call", "result": result}),
            },
        };
        let shown = |history: &[HistoryEntry]| -> Vec<String> {
            let told = normalize_history(history, "here");
            let users =
                told.iter().filter_map(|told| if let PromptItem::User(parts) = told { Some(parts) } else { None });
            let word = |part: &Cow<'_, ContentPart>| match part.as_ref() {
                ContentPart::Text { text, .. } => text.clone(),
                ContentPart::ImageUrl { image_url, .. } => image_url.url.clone(),
                ContentPart::File { .. } => "file".to_owned(),
            };
            users.map(|parts| parts.iter().map(word).collect::<Vec<_>>().join(" ")).collect()
        };
        let (png, jpeg) = ("iVBORw0KGgoAAAA", "/9j/AAAA");
        let seen = format!("{IMAGE_CAPTION} data:image/png;base64,{png}");
        let history = [user("draw"), drawing("there", png), user("and?"), drawing("there", jpeg)];
        let last = format!("{IMAGE_CAPTION} data:image/jpeg;base64,{jpeg}");
        assert_eq!(shown(&history), ["draw".to_owned(), format!("{seen} and?"), last]);
        assert_eq!(shown(&[drawing("here", png), user("and?")]), ["and?"], "its own goes back as it came");
        let said =
            HistoryEntry::GeneratedImages { content: vec![ContentPart::image(format!("data:image/png;base64,{png}"))] };
        let history = [user("draw"), said.clone(), call("c1", "p1", "here"), result("c1", "a"), user("and?"), said];
        assert_eq!(shown(&history), ["draw".to_owned(), format!("{seen} and?"), seen], "one in a message never does");
        assert_eq!(shown(&[drawing("there", "/v1/blobs/ab12"), user("and?")]), ["and?"], "nobody has its bytes");
        let history = [call("c1", "p1", "here"), drawing("there", png), result("c1", "a"), user("on")];
        assert_eq!(story(&history), "call:p1:true result:p1:Completed user", "it parts no call from its result");
    }

    #[test]
    fn empty_entries_and_raw_items_of_other_origins_are_left_out() {
        let id = ItemId::from("i");
        let there = RawItem { origin: "there".to_owned(), item: json!({}) };
        let history = [
            HistoryEntry::Summary { text: " ".to_owned() },
            HistoryEntry::System { text: "\t".to_owned() },
            user("\n"),
            HistoryEntry::Reasoning { id: id.clone(), raw: there.clone() },
            HistoryEntry::Assistant { id: id.clone(), text: "words".to_owned(), raw: Some(there.clone()) },
            HistoryEntry::Assistant { id: id.clone(), text: "  ".to_owned(), raw: None },
            HistoryEntry::Hosted { id, name: "web_search".to_owned(), raw: there },
        ];
        assert_eq!(story(&history), "assistant:false");
        let history = [call("c1", "p1", "here"), result("c1", "")];
        assert!(
            matches!(&normalize_history(&history, "here")[1], PromptItem::Result(result) if result.content == [ContentPart::text(EMPTY_RESULT)])
        );
    }
}
