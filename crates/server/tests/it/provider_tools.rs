//! Tools that the provider ran, as every protocol shows them: the outcome, the arguments and the output, each in its own
//! member.

use crate::blocks::socket::Socket;
use crate::fake_provider::dialect::{ProviderDialect, sse_event};
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::{Server, parse_frames};
use serde_json::{Value, json};

/// A provider's stream with a call, and what the protocols make of that call.
struct ProviderTool {
    agent: &'static str,
    name: &'static str,
    server: &'static str,
    arguments: Value,
    output: &'static str,
    succeeded: bool,
    /// The members of the item in Responses that are not its id.
    item: Value,
}

const CODE_INTERPRETER: &str = include_str!("../../../upstream/tests/it/streams/responses/code-interpreter.sse");
const WEB_SEARCH: &str = include_str!("../../../upstream/tests/it/streams/messages/web-search.sse");
const CODE: &str = "import math\ntotal_0 = math.sqrt(0)\ntotal_1 = math.sqrt(1)\ntotal_2 = math.sqrt(2)\n\
    total_3 = math.sqrt(3)\ntotal_4 = math.sqrt(4)\ntotal_5 = math.sqrt(5)\ntotal_5";
const QUESTION: &str = r#"{"question":"how?"}"#;

/// A Responses stream with an MCP call that fails, and a text.
fn failed_mcp_call() -> String {
    let call = |members: Value| {
        let mut item = json!({"id": "mcp_1", "type": "mcp_call", "name": "ask", "server_label": "deep", "output": null,
            "approval_request_id": null});
        item.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        item
    };
    let event = |kind: &str, members: Value| {
        let mut event = json!({"type": format!("response.{kind}"), "output_index": 0});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        sse_event(&event)
    };
    let item = |kind: &str, members: Value| event(&format!("output_item.{kind}"), json!({"item": call(members)}));
    let d = ProviderDialect::Responses;
    [
        d.answer_start(),
        item("added", json!({"status": "in_progress", "arguments": "", "error": null})),
        event("mcp_call.in_progress", json!({"item_id": "mcp_1"})),
        event("mcp_call_arguments.delta", json!({"item_id": "mcp_1", "delta": QUESTION})),
        event("mcp_call_arguments.done", json!({"item_id": "mcp_1", "arguments": QUESTION})),
        event("mcp_call.failed", json!({"item_id": "mcp_1"})),
        item("done", json!({"status": "failed", "arguments": QUESTION, "error": "no page"})),
        d.message_start(1),
        d.text_delta(1, "No."),
        d.message_end(1, "No."),
        d.terminal_event(false, 9, 4),
    ]
    .concat()
}

async fn provider_server() -> (RecordingUpstream, Server) {
    let upstream = RecordingUpstream::start(|dialect, body| match (dialect, body["model"].as_str()) {
        (ProviderDialect::Responses, Some("code")) => CODE_INTERPRETER.to_owned(),
        (ProviderDialect::Responses, Some("mcp")) => failed_mcp_call(),
        (ProviderDialect::Messages, _) => WEB_SEARCH.to_owned(),
        other => panic!("nobody asks {other:?}"),
    })
    .await;
    let agents = "[agents.code]\nmodel = \"responses/code\"\n[agents.mcp]\nmodel = \"responses/mcp\"\n\
        [agents.search]\nmodel = \"messages/search\"\n";
    let server = Server::with_config(&(upstream.providers() + agents), "");
    (upstream, server)
}

fn provider_tools() -> [ProviderTool; 3] {
    [
        ProviderTool {
            agent: "mcp",
            name: "ask",
            server: "deep",
            arguments: json!({"question": "how?"}),
            output: "no page",
            succeeded: false,
            item: json!({"type": "mcp_call", "status": "failed", "name": "ask", "server_label": "deep",
                "arguments": QUESTION, "error": "no page", "output": null, "approval_request_id": null}),
        },
        ProviderTool {
            agent: "code",
            name: "code_interpreter",
            server: "headwater",
            arguments: json!({ "code": CODE }),
            output: "[image https://example.org/plot.png]\n2.236",
            succeeded: true,
            item: json!({"type": "code_interpreter_call", "status": "completed", "code": CODE,
                "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "2.236"},
                {"type": "image", "url": "https://example.org/plot.png"}]}),
        },
        ProviderTool {
            agent: "search",
            name: "web_search",
            server: "headwater",
            arguments: json!({"query": "claude shannon birth date"}),
            output: "Claude Shannon - Wikipedia https://en.wikipedia.org/wiki/Claude_Shannon\n\
                Information theory https://example.org/information-theory",
            succeeded: true,
            item: json!({"type": "web_search_call", "status": "completed",
                "action": {"type": "search", "query": "claude shannon birth date", "sources": [
                    {"type": "url", "url": "https://en.wikipedia.org/wiki/Claude_Shannon"},
                    {"type": "url", "url": "https://example.org/information-theory"}]}}),
        },
    ]
}

/// The elements of this type.
fn of_type<'a>(list: &'a Value, kind: &str) -> Vec<&'a Value> {
    list.as_array().unwrap().iter().filter(|element| element["type"] == kind).collect()
}

#[tokio::test]
async fn blocks_show_the_outcome_the_arguments_and_the_output() {
    let (_upstream, hw) = provider_server().await;
    let mut socket = Socket::connect(&hw).await;
    for tool in provider_tools() {
        socket
            .send_json(&json!({"type": "chat", "session_id": tool.agent, "content": "go", "agent": tool.agent}))
            .await;
        let events = json!(socket.read_until("message_stop").await);
        let starts = of_type(&events, "content_block_start").into_iter();
        let blocks: Value = starts.map(|event| event["content_block"].clone()).collect();
        let ([called], [result]) = (&of_type(&blocks, "tool_use")[..], &of_type(&blocks, "tool_result")[..]) else {
            panic!("{blocks}")
        };
        assert_eq!((&called["name"], &called["input"]), (&json!(tool.name), &tool.arguments));
        let status = if tool.succeeded { "success" } else { "error" };
        assert_eq!((&result["content"], &result["status"]), (&json!(tool.output), &json!(status)));
        assert_eq!((&result["tool_use_id"], &result["name"]), (&called["id"], &called["name"]));
    }
}

#[tokio::test]
async fn agent_runs_and_their_history_show_the_outcome_the_arguments_and_the_output() {
    let (_upstream, hw) = provider_server().await;
    for tool in provider_tools() {
        let body = json!({"message": "go", "threadId": tool.agent, "agent": tool.agent});
        let reply = hw.post("/api/v1/agent/runs", body).await;
        assert_eq!(reply.status, 202, "{}", reply.text);
        let mut stream = hw.open_stream(&format!("/api/v1/agent/runs/{}/events", tool.agent)).await;
        let frames = parse_frames(stream.read_until("\"RUN_FINISHED\"").await);
        let frame = frames.iter().find(|frame| frame.event == "TOOL_CALL_RESULT").unwrap();
        let history = hw.get(&format!("/api/v1/agent/history?threadId={}", tool.agent)).await.json();
        let messages = history["snapshot"]["messages"].as_array().unwrap();
        let message = messages.iter().find(|message| message["role"] == "tool").unwrap();
        assert_eq!(message["content"], tool.output);
        for told in [&frame.data["toolAgentOutput"], &message["metadata"]["toolAgentOutput"]] {
            let status = if tool.succeeded { "success" } else { "failure" };
            assert_eq!((&told["tool_name"], &told["tool_call_args"]), (&json!(tool.name), &tool.arguments), "{told}");
            assert_eq!((&told["status"], &told["result_summary"]), (&json!(status), &json!(tool.output)), "{told}");
            let error = if tool.succeeded { Value::Null } else { json!(tool.output) };
            assert_eq!(told["error"]["message"], error, "{told}");
        }
    }
}

#[tokio::test]
async fn messages_and_responses_show_the_outcome_the_arguments_and_the_output() {
    let (_upstream, hw) = provider_server().await;
    for tool in provider_tools() {
        let body = json!({"model": tool.agent, "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]});
        let message = hw.post("/v1/messages", body).await.json();
        let content = &message["content"];
        let ([called], [result]) = (&of_type(content, "mcp_tool_use")[..], &of_type(content, "mcp_tool_result")[..])
        else {
            panic!("{message}")
        };
        assert_eq!((&called["name"], &called["input"]), (&json!(tool.name), &tool.arguments));
        assert_eq!(called["server_name"], tool.server);
        let output = json!([{"type": "text", "text": tool.output}]);
        assert_eq!((&result["content"], &result["is_error"]), (&output, &json!(!tool.succeeded)));
        assert_eq!(result["tool_use_id"], called["id"]);

        let response = hw.post("/v1/responses", json!({"model": tool.agent, "input": "go"})).await.json();
        let [item] = &of_type(&response["output"], tool.item["type"].as_str().unwrap())[..] else {
            panic!("{response}")
        };
        let mut item = (*item).clone();
        item.as_object_mut().unwrap().remove("id");
        assert_eq!(item, tool.item);
    }
}
