//! Endpoints that ask people, and are called again with the answer.

use crate::site::{Site, answer};
use crate::test_toolbox::{address, request, start};
use futures_util::StreamExt;
use model::definition::ToolExecutor;
use model::event::Question;
use model::json::ExactValue;
use model::question::{InputRequired, OnDecline, QuestionAnswer, ToolAnswers, ToolQuestion};
use model::tool::{ToolEvent, ToolRequest};
use serde_json::{Value, json};

const ASKS: &str =
    concat!(r#"{"type":"question","message":"Which seat?","schema":{"type":"object"},"state":"held"}"#, "\n");

fn answered(site: &Site, given: QuestionAnswer) -> ToolRequest {
    let answers = [("question".to_owned(), given)].into();
    let call = request(ToolExecutor::Http(address("get", site.url("/"))), "{}");
    ToolRequest { answers: Some(ToolAnswers { state: Some("held".to_owned()), answers }), ..call }
}

#[tokio::test]
async fn an_endpoint_asks_and_is_told_the_answer_in_a_header() {
    let site = Site::answering(answer("200 OK", "application/x-ndjson", ASKS)).await;
    let first = start(request(ToolExecutor::Http(address("get", site.url("/"))), "{}")).next().await;
    let question =
        Question { message: "Which seat?".to_owned(), schema: Some(json!({"type": "object"})), ..Question::default() };
    let asked = InputRequired {
        questions: vec![ToolQuestion { id: "question".to_owned(), question }],
        state: Some("held".to_owned()),
        on_decline: OnDecline::CallAgain,
    };
    assert_eq!(first, Some(ToolEvent::InputRequired(asked)));
    assert_eq!(site.only().header("headwater-answer"), None);

    let content = json!({"seat": "12A", "note": "Fenster, bitte – danke 🙂"});
    let seat: ExactValue = serde_json::from_str(&content.to_string()).unwrap();
    let decline = QuestionAnswer::Declined(Some("no".to_owned()));
    for (given, told) in [
        (
            QuestionAnswer::Accepted(seat),
            json!({"type": "answer", "action": "accept", "content": content, "state": "held"}),
        ),
        (decline, json!({"type": "answer", "action": "decline", "message": "no", "state": "held"})),
        (QuestionAnswer::Cancelled, json!({"type": "answer", "action": "cancel", "state": "held"})),
    ] {
        let site = Site::answering(answer("200 OK", "text/plain", "Booked.")).await;
        let events: Vec<ToolEvent> = start(answered(&site, given)).collect().await;
        assert!(matches!(events.as_slice(), [ToolEvent::End(output)] if output.error.is_none()), "{events:?}");
        let header = site.only().header("headwater-answer").unwrap().to_owned();
        assert!(header.is_ascii(), "{header}");
        assert_eq!(serde_json::from_str::<Value>(&header).unwrap(), told);
    }
}

#[tokio::test]
async fn an_answer_that_no_header_can_hold_is_an_error_and_nothing_is_sent() {
    let site = Site::answering(answer("200 OK", "text/plain", "Booked.")).await;
    let long: ExactValue = serde_json::from_str(&json!({"text": "x".repeat(9000)}).to_string()).unwrap();
    let events: Vec<ToolEvent> = start(answered(&site, QuestionAnswer::Accepted(long))).collect().await;
    let [ToolEvent::End(output)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(output.error.as_ref().unwrap().code, "invalid_tool");
    assert_eq!(site.seen().len(), 0);
}
