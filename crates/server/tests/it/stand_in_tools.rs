//! A tool that a client declares under the name of one of the agent's own: in that run it stands in for it.

use crate::broker_fixture::{broker_server, placed_orders};
use crate::fake_provider::dialect::DIALECTS;
use crate::fake_provider::recording_upstream::RecordingUpstream;
use crate::harness::Server;
use crate::responses::{create_response, output_text, parse_error};
use serde_json::{Value, json};

fn function(name: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"symbol": {"type": "string"}}});
    json!({"type": "function", "name": name, "description": "mine", "parameters": parameters})
}

fn item<'a>(response: &'a Value, kind: &str) -> &'a Value {
    let found = response["output"].as_array().unwrap().iter().find(|item| item["type"] == kind);
    found.unwrap_or_else(|| panic!("{kind} in {response}"))
}

#[tokio::test]
async fn the_clients_tool_is_called_and_nothing_is_asked_or_run_here() {
    let hw = broker_server("");
    let asked = create_response(&hw, json!({"model": "broker", "input": "buy", "tools": [function("order")]})).await;
    let call = item(&asked, "function_call");
    assert_eq!((&call["name"], &call["arguments"]), (&json!("order"), &json!(r#"{"symbol":"VNM","quantity":100}"#)));
    assert!(!asked.to_string().contains("mcp_approval_request"), "{asked}");
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "the client bought"}]);
    let body =
        json!({"model": "broker", "previous_response_id": asked["id"], "input": output, "tools": [function("order")]});
    let ended = create_response(&hw, body).await;
    assert!(output_text(&ended).contains("the client bought"), "{ended}");
    assert_eq!(placed_orders(&hw).len(), 0, "the server's tool did not run");
    // The next run declares none: the agent has its own again.
    let next = create_response(&hw, json!({"model": "broker", "input": "buy"})).await;
    assert_eq!(item(&next, "mcp_approval_request")["name"], "order");
}

#[tokio::test]
async fn a_pending_call_keeps_its_tool_whatever_the_answer_declares() {
    let hw = broker_server("");
    // The server's own call waits for approval, and the answer declares a tool of that name.
    let asked = create_response(&hw, json!({"model": "broker", "input": "buy"})).await;
    let question = item(&asked, "mcp_approval_request");
    let approval = json!([{"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true}]);
    let body = json!({"model": "broker", "previous_response_id": asked["id"], "input": approval, "tools": [function("order")]});
    let ended = create_response(&hw, body).await;
    assert!(output_text(&ended).contains("bought"), "{ended}");
    assert_eq!(placed_orders(&hw).len(), 1);
    // The client's call waits for its result, and the answer declares the tool no more.
    let asked = create_response(&hw, json!({"model": "broker", "input": "buy", "tools": [function("order")]})).await;
    let call = item(&asked, "function_call");
    let output = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "mine"}]);
    let body = json!({"model": "broker", "previous_response_id": asked["id"], "input": output});
    assert!(output_text(&create_response(&hw, body).await).contains("mine"));
    assert_eq!(placed_orders(&hw).len(), 1, "the server has run one of the two");
}

#[tokio::test]
async fn sub_agents_keep_their_own_tools() {
    let hw = broker_server("");
    let body = json!({"model": "broker", "input": "ask the clerk", "tools": [function("order")]});
    let asked = create_response(&hw, body).await;
    assert_eq!(item(&asked, "mcp_approval_request")["name"], "order", "{asked}");
}

#[tokio::test]
async fn names_of_agents_stay_refused_and_so_do_all_where_the_operator_says() {
    let hw = Server::demo();
    let refused = (400, "invalid_body".to_owned(), json!("tools"));
    for name in ["ask_for_help", "transfer_to_specialist"] {
        let reply = hw.post("/v1/responses", json!({"model": "demo", "input": "hi", "tools": [function(name)]})).await;
        assert_eq!(parse_error(&reply), refused, "{name}");
    }
    let strict = Server::with_config(
        "[agents.strict]\nmodel = \"mine/m\"\ntools = [\"get_weather\", \"execute_trade\"]\nclient_tools = \"refuse\"\n\
         [tools.get_weather]\nkind = \"builtin\"\n[tools.execute_trade]\nkind = \"builtin\"\n\
         [providers.mine]\nkind = \"scripted\"\nfile = \"scenarios.toml\"\n",
        "[[scenario]]\n[[scenario.turn]]\nsteps = [{ call = 'execute_trade', arguments = '{\"symbol\":\"A\",\"quantity\":1}' }]\n\
         [[scenario.turn]]\nsteps = [{ text = 'done' }]\n",
    );
    let body = |name: &str| json!({"model": "strict", "input": "hi", "tools": [function(name)]});
    assert_eq!(parse_error(&strict.post("/v1/responses", body("get_weather")).await), refused);
    let asked = create_response(&strict, body("another")).await;
    let question = item(&asked, "mcp_approval_request");
    let approval = json!([{"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true}]);
    let mut answer = body("get_weather");
    answer["previous_response_id"] = asked["id"].clone();
    answer["input"] = approval;
    assert_eq!(parse_error(&strict.post("/v1/responses", answer.clone()).await), refused, "also in an answer");
    answer["tools"] = json!([]);
    assert_eq!(output_text(&create_response(&strict, answer).await), "done", "the refused answer decided nothing");
}

#[tokio::test]
async fn every_model_is_told_the_clients_declaration_once() {
    let upstream = RecordingUpstream::start(|dialect, _| dialect.full_answer("ok")).await;
    let config = upstream.agents("tools = [\"get_weather\"]") + "[tools.get_weather]\nkind = \"builtin\"\n";
    let hw = Server::with_config(&config, "");
    for dialect in DIALECTS {
        let body =
            json!({"model": dialect.name(), "input": "hi", "tools": [function("get_weather"), function("other")]});
        create_response(&hw, body).await;
        let request = upstream.last_request(dialect);
        assert_eq!(dialect.tool_names(&request), ["get_weather", "other"]);
        let tools = request["tools"].to_string();
        assert_eq!(tools.matches("\"mine\"").count(), 2, "{tools}");
        assert!(tools.contains("symbol") && !tools.contains("location"), "{tools}");
    }
}
