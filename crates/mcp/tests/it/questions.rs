//! Servers that ask people: with the result of a call (2026-07-28), or in the middle of it (2025-11-25).

use crate::fixtures::{PATIENCE, TestServers, call_request, error, text, wait_until};
use futures_util::StreamExt as _;
use model::definition::{Definitions, McpProgram, McpScope};
use model::ports::{BoxStream, ToolRunner as _};
use model::question::{InputRequired, QuestionAnswer, ToolAnswers, ToolQuestion};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use serde_json::{Value, json};
use tokio::time::timeout;

async fn next(events: &mut BoxStream<'static, ToolEvent>) -> ToolEvent {
    timeout(PATIENCE, events.next()).await.expect("it does not hang").expect("the stream goes on")
}

async fn asked(events: &mut BoxStream<'static, ToolEvent>) -> ToolQuestion {
    match next(events).await {
        ToolEvent::Question(asked) => asked,
        other => panic!("{other:?} is no question"),
    }
}

async fn end(events: &mut BoxStream<'static, ToolEvent>) -> ToolOutput {
    match next(events).await {
        ToolEvent::End(output) => output,
        other => panic!("{other:?} is no end"),
    }
}

fn accept() -> QuestionAnswer {
    QuestionAnswer::Accepted(json!({"name": "Ann"}).into())
}

fn ask(run: &Definitions, how: &str) -> ToolRequest {
    call_request(run, "ask", &json!({"how": how}).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateless_server_asks_with_its_result_and_is_called_again_with_the_answers() {
    let servers = TestServers::new();
    let run = servers.run_with("modern").await;
    let events = servers.events_of(ask(&run, "")).await;
    let [ToolEvent::InputRequired(InputRequired { questions, state, .. })] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((questions.len(), questions[0].id.as_str(), state.as_deref()), (1, "who", Some("held")));
    assert_eq!(questions[0].question.message, "Who are you?");
    assert_eq!(questions[0].question.schema.as_ref().unwrap()["required"], json!(["name"]));
    for (answer, result) in [
        (accept(), json!({"action": "accept", "content": {"name": "Ann"}})),
        (QuestionAnswer::Declined(Some("no".to_owned())), json!({"action": "decline"})),
        (QuestionAnswer::Cancelled, json!({"action": "cancel"})),
    ] {
        let answers = ToolAnswers { state: state.clone(), answers: [("who".to_owned(), answer)].into() };
        let output = servers.events_of(ToolRequest { answers: Some(answers), ..ask(&run, "") }).await;
        let Some(ToolEvent::End(output)) = output.last() else { panic!("{output:?}") };
        assert_eq!(serde_json::from_str::<Value>(text(output)).unwrap(), json!({"who": result}));
    }
    let told: Value = serde_json::from_str(servers.lines("asked").last().unwrap()).unwrap();
    assert_eq!(told["requestState"], "held");
    assert_eq!(servers.pids().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_wants_to_be_called_again_is_but_not_for_ever() {
    let servers = TestServers::new();
    let run = servers.run_with("modern").await;
    let output = servers.call(&run, "ask", r#"{"how":"later"}"#).await;
    assert_eq!(text(&output), "now");
    let output = servers.call(&run, "ask", r#"{"how":"for_ever"}"#).await;
    assert_eq!(error(&output).0, "too_many_questions");
    assert_eq!(servers.lines("asked").len(), 2 + 11);
    let output = servers.call(&run, "ask", r#"{"how":"model"}"#).await;
    assert_eq!(error(&output).0, "mcp_unsupported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_for_the_answer_while_its_time_stands_still() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    for (answer, result) in [
        (accept(), json!({"action": "accept", "content": {"name": "Ann"}})),
        (QuestionAnswer::Declined(None), json!({"action": "decline"})),
        (QuestionAnswer::Cancelled, json!({"action": "cancel"})),
    ] {
        let request = ask(&run, "");
        let call = request.call_id.clone();
        let mut events = servers.tools.call_tool(ToolRequest { deadline: request.deadline - 19_000, ..request });
        let ToolQuestion { id, question } = asked(&mut events).await;
        assert_eq!(question.message, "Who are you?");
        if answer == accept() {
            // Longer than the call may take without people.
            assert!(timeout(std::time::Duration::from_millis(1_100), events.next()).await.is_err(), "it waits");
        }
        servers.tools.answer_question(&call, "another", QuestionAnswer::Cancelled);
        servers.tools.answer_question(&call, &id, answer);
        let answered: Value = serde_json::from_str(text(&end(&mut events).await)).unwrap();
        assert_eq!(answered["result"], result);
        assert_eq!(events.next().await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_ends_with_its_server_or_when_it_is_withdrawn() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let mut events = servers.tools.call_tool(ask(&run, "withdraw"));
    let first = next(&mut events).await;
    // The result may overtake the question.
    if matches!(first, ToolEvent::Question(_)) {
        let second = next(&mut events).await;
        if second == ToolEvent::QuestionWithdrawn {
            assert_eq!(text(&end(&mut events).await), "never mind");
        } else {
            assert!(matches!(second, ToolEvent::End(_)), "{second:?}");
        }
    }
    let mut events = servers.tools.call_tool(ask(&run, "die"));
    asked(&mut events).await;
    let pid = *servers.pids().last().unwrap();
    wait_until("it has asked", || !servers.lines("asked").is_empty()).await;
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    let lost = next(&mut events).await;
    assert!(matches!(lost, ToolEvent::Lost(_)), "{lost:?}");
}

/// Nothing on the wire says which call asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_asked_is_called_once_at_a_time() {
    let servers = TestServers::new();
    let run = servers.run_with("friendly").await;
    let first = ask(&run, "");
    let mut asking = servers.tools.call_tool(first.clone());
    let question = asked(&mut asking).await;
    let echo = ToolRequest { call_id: "call_R3".into(), ..call_request(&run, "echo", r#"{"text":"hi"}"#) };
    let mut other = servers.tools.call_tool(echo);
    assert!(timeout(std::time::Duration::from_millis(100), other.next()).await.is_err(), "it waits for the first call");
    servers.tools.answer_question(&first.call_id, &question.id, accept());
    end(&mut asking).await;
    assert_eq!(text(&end(&mut other).await), "hi");
}

/// A question of a program that several users share could reach the wrong one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_server_may_not_ask() {
    let servers = TestServers::new();
    let mut server = servers.server("friendly");
    server.program = McpProgram { scope: McpScope::Shared, ..server.program };
    let run = servers.resolve(server).await.unwrap();
    let initialize: Value = serde_json::from_str(&servers.lines("initialize")[0]).unwrap();
    assert_eq!(initialize["capabilities"], json!({}));
    let answer: Value = serde_json::from_str(text(&servers.call(&run, "ask", "{}").await)).unwrap();
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}
