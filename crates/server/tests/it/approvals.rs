//! A call that needs approval: requested once, decided once, run at most once.

use crate::broker_fixture::{
    approval_path, broker_server, decide, placed_orders, start_paused, tool_results, wait_outcome,
};
use crate::harness::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};

async fn listed(hw: &Server, query: &str) -> Vec<Value> {
    hw.get(&format!("/v1/approvals{query}")).await.json()["data"].as_array().unwrap().clone()
}

fn approve() -> Value {
    json!({"decision": "approve"})
}

#[tokio::test]
async fn an_approved_call_runs_once_and_the_run_continues() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let question = &task["pending"][0];
    assert_eq!((&question["kind"], &question["task_id"]), (&json!("approval"), &task["task_id"]));
    let open = listed(&hw, "?status=pending").await;
    assert_eq!(open.len(), 1);
    let asked = &open[0];
    for name in ["thread_id", "call_id", "key"] {
        let known = if name == "thread_id" { &task[name] } else { &question[name] };
        assert_eq!(&asked[name], known, "{name}");
    }
    assert_eq!((&asked["run_id"], &asked["task_id"]), (&task["task_id"], &task["task_id"]));
    assert_eq!((&asked["name"], &asked["status"]), (&json!("order"), &json!("pending")));
    assert_eq!(asked["arguments"], json!({"symbol": "VNM", "quantity": 100}));
    assert_eq!(asked["expires_at"].as_u64().unwrap() - asked["requested_at"].as_u64().unwrap(), 300_000);
    assert_eq!((&asked["decision"], &asked["decided_by"]), (&Value::Null, &Value::Null));
    assert_eq!(placed_orders(&hw), Vec::<Value>::new(), "nothing is done before somebody said yes");

    let reply = decide(&hw, &task, json!({"decision": "approve", "message": "fine"})).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let decided = reply.json();
    assert_eq!((&decided["status"], &decided["decided_by"]), (&json!("approved"), &json!("user")));
    assert_eq!(decided["decision"], json!({"type": "approve", "always": false, "message": "fine"}));
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert_eq!((&ended["status"], &ended["pending"]), (&json!("completed"), &json!([])));
    assert!(words.contains("bought"), "{words}");
    assert_eq!(placed_orders(&hw), [json!({"symbol": "VNM", "quantity": 100})]);
    assert_eq!((listed(&hw, "?status=pending").await, listed(&hw, "").await), (vec![], vec![decided]));
}

#[tokio::test]
async fn a_rejected_call_does_not_run_and_the_model_gets_the_reason() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let reply = decide(&hw, &task, json!({"decision": "reject", "message": "Too many."})).await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("rejected")));
    let (ended, words) = wait_outcome(&hw, &task).await;
    let result = tool_results(&ended)[0];
    assert_eq!((&result["status"], &result["error"]["code"]), (&json!("rejected"), &json!("rejected")));
    assert!(words.contains("Too many."), "{words}");
    assert_eq!((&ended["status"], placed_orders(&hw).len()), (&json!("completed"), 0));
}

#[tokio::test]
async fn edited_arguments_are_validated_run_and_shown_next_to_the_models() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    for (arguments, code) in [
        (json!({"symbol": "VNM"}), "invalid_arguments"),
        (json!({"symbol": "VNM", "quantity": "ten"}), "invalid_arguments"),
        (json!({"symbol": "VNM", "quantity": 0}), "invalid_arguments"),
        (json!([1]), "invalid_body"),
        (json!("x"), "invalid_body"),
        (Value::Null, "invalid_body"),
    ] {
        let reply = decide(&hw, &task, json!({"decision": "edit", "arguments": arguments})).await;
        assert_eq!(reply.problem(), (422, code.to_owned()), "{arguments}");
    }
    let large = json!({"decision": "reject", "message": "x".repeat(300_000)});
    assert_eq!(decide(&hw, &task, large).await.problem(), (413, "request_too_large".to_owned()));
    assert_eq!(listed(&hw, "?status=pending").await.len(), 1, "it is still open");

    let other = json!({"symbol": "VNM", "quantity": 10});
    let reply = decide(&hw, &task, json!({"decision": "edit", "arguments": other})).await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("edited")));
    assert_eq!(reply.json()["arguments"], json!({"symbol": "VNM", "quantity": 100}), "what was asked stays");
    let (ended, _) = wait_outcome(&hw, &task).await;
    let call = ended["output"].as_array().unwrap().iter().find(|item| item["type"] == "tool_call").unwrap();
    let ran: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&ran, &call["original_arguments"]), (&other, &json!(r#"{"symbol":"VNM","quantity":100}"#)));
    let frames = hw.frames(&format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap()), None).await;
    let started = frames.iter().find(|frame| frame.event == "task.tool.started").unwrap();
    let ran: Value = serde_json::from_str(started.data["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((ran, placed_orders(&hw)), (other.clone(), vec![other]));
}

/// `always` holds for its run: the next run asks again.
#[tokio::test]
async fn always_requests_no_further_approval_in_this_run() {
    let hw = broker_server("");
    let first = start_paused(&hw, json!({"input": "again"})).await;
    assert_eq!(decide(&hw, &first, json!({"decision": "approve", "always": true})).await.status, 200);
    assert_eq!(wait_outcome(&hw, &first).await.0["status"], "completed");
    assert_eq!((placed_orders(&hw).len(), listed(&hw, "").await.len()), (2, 1));
    // It holds for this run only: each call of the next one is asked about again.
    let second = start_paused(&hw, json!({"input": "again", "thread_id": first["thread_id"]})).await;
    assert_eq!(decide(&hw, &second, approve()).await.status, 200);
    let path = format!("/v1/tasks/{}", second["task_id"].as_str().unwrap());
    hw.wait_until("it asks again", async || {
        let now = hw.get(&path).await.json();
        now["status"] == "paused" && now["pending"][0]["key"] != second["pending"][0]["key"]
    })
    .await;
    let again = hw.get(&path).await.json();
    assert_eq!(decide(&hw, &again, approve()).await.status, 200);
    wait_outcome(&hw, &second).await;
    assert_eq!(placed_orders(&hw).len(), 4);
}

/// A decision based on outdated state gets the first decision, or is refused with it.
#[tokio::test]
async fn a_repeated_decision_gets_the_same_answer_and_the_opposite_is_refused() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let first = decide(&hw, &task, approve()).await;
    assert_eq!(first.status, 200, "{}", first.text);
    for moment in ["while it runs", "when it has ended"] {
        let again = decide(&hw, &task, approve()).await;
        assert_eq!((again.status, again.json()), (200, first.json()), "{moment}");
        for other in [
            json!({"decision": "reject"}),
            json!({"decision": "approve", "always": true}),
            json!({"decision": "edit", "arguments": {"symbol": "X", "quantity": 1}}),
        ] {
            let refused = decide(&hw, &task, other).await;
            assert_eq!(refused.problem(), (409, "already_decided".to_owned()), "{moment}");
            assert_eq!(refused.json()["approval"], first.json(), "{moment}");
        }
        wait_outcome(&hw, &task).await;
    }
    assert_eq!(placed_orders(&hw).len(), 1);
}

/// Of concurrent conflicting decisions one counts, and the others are told which.
#[tokio::test]
async fn one_of_fifty_concurrent_decisions_wins() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let ask = async |n: usize| -> Reply {
        let decision = if n.is_multiple_of(2) { "approve" } else { "reject" };
        decide(&hw, &task, json!({"decision": decision, "message": format!("says {n}")})).await
    };
    let replies = futures_util::future::join_all((0..50).map(ask)).await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert_eq!((won.len(), lost.len()), (1, 49));
    let decided = won[0].json();
    for reply in lost {
        assert_eq!(reply.problem(), (409, "already_decided".to_owned()));
        assert_eq!(reply.json()["approval"], decided);
    }
    let (ended, words) = wait_outcome(&hw, &task).await;
    let yes = decided["status"] == "approved";
    let status = if yes { "completed" } else { "rejected" };
    assert_eq!((&tool_results(&ended)[0]["status"], placed_orders(&hw).len()), (&json!(status), usize::from(yes)));
    assert_eq!(words.contains("bought"), yes, "{words}");
}

#[tokio::test]
async fn after_the_time_out_every_decision_is_refused() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "brief"})).await;
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert_eq!(tool_results(&ended)[0]["error"]["code"], "approval_timeout");
    assert!(words.contains("No decision within 1 s"), "{words}");
    // It is closed for every reader, with the initiator that closed it.
    let closed = listed(&hw, "").await;
    assert_eq!((closed.len(), listed(&hw, "?status=pending").await), (1, vec![]));
    assert_eq!((&closed[0]["status"], &closed[0]["decided_by"]), (&json!("rejected"), &json!("timeout")));
    assert_eq!(closed[0]["decision"], json!({"type": "reject", "always": false}));
    assert!(closed[0]["decided_at"].as_u64() >= closed[0]["expires_at"].as_u64(), "{}", closed[0]);
    // The time-out rejected it; a later rejection by a user is not the same decision.
    for decision in ["approve", "reject"] {
        let late = decide(&hw, &task, json!({"decision": decision})).await;
        assert_eq!(late.problem(), (409, "already_decided".to_owned()), "{decision}");
        assert_eq!(late.json()["approval"], closed[0], "{decision}");
    }
    assert_eq!(placed_orders(&hw).len(), 0);
}

#[tokio::test]
async fn a_cancel_closes_pending_approvals() {
    let hw = broker_server("");
    for mode in ["immediate", "after_turn"] {
        let task = start_paused(&hw, json!({"input": "buy"})).await;
        let id = task["task_id"].as_str().unwrap();
        let cancel = hw.post(&format!("/v1/tasks/{id}/cancel"), json!({"mode": mode})).await;
        assert_eq!(cancel.status, 202, "{}", cancel.text);
        assert_eq!(wait_outcome(&hw, &task).await.0["status"], "cancelled", "{mode}");
        for decision in ["approve", "reject"] {
            let late = decide(&hw, &task, json!({"decision": decision})).await;
            assert_eq!(late.problem(), (409, "already_decided".to_owned()), "{mode}");
            assert_eq!(late.json()["approval"]["decided_by"], "system", "{mode}");
        }
    }
    assert_eq!((listed(&hw, "?status=pending").await.len(), placed_orders(&hw).len()), (0, 0));
}

/// An approval is bound to its user, its run and its call: under any other id it does not exist.
#[tokio::test]
async fn an_approval_belongs_to_its_user_and_its_run() {
    let hw = broker_server("[auth]\nmode = \"keys\"");
    let key = |user: &str| String::from_utf8(hw.run_cli(&["keys", "create", "--user", user]).stdout).unwrap();
    let (ann, bob) = (key("ann").trim().to_owned(), format!("Bearer {}", key("bob").trim()));
    let hw = hw.with_key(&ann);
    let (task, other) =
        (start_paused(&hw, json!({"input": "buy"})).await, start_paused(&hw, json!({"input": "buy"})).await);

    let headers = [("authorization", bob.as_str()), ("content-type", "application/json")];
    let foreign =
        hw.request(Method::POST, &approval_path(&task), &headers, Some(approve().to_string().into_bytes())).await;
    assert_eq!(foreign.problem(), (404, "not_found".to_owned()));
    let seen = hw.request(Method::GET, "/v1/approvals", &headers[..1], None).await;
    assert_eq!(seen.json(), json!({"data": [], "has_more": false}));

    let (id, strange) = (task["task_id"].as_str().unwrap(), other["pending"][0]["key"].as_str().unwrap());
    for key in [strange, "apr_1", "call_1", "%20"] {
        let reply = hw.post(&format!("/v1/tasks/{id}/approvals/{key}"), approve()).await;
        assert_eq!(reply.problem(), (404, "approval_not_found".to_owned()), "{key}");
    }
    assert_eq!(listed(&hw, "?status=pending").await.len(), 2, "nothing was decided");
}

#[tokio::test]
async fn an_approval_survives_a_kill_and_its_call_runs_exactly_once() {
    let mut hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let before = listed(&hw, "?status=pending").await;
    hw.kill9();
    hw.restart();
    assert_eq!((listed(&hw, "?status=pending").await, before.len()), (before.clone(), 1));
    assert_eq!(hw.get(&format!("/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.json(), task);
    assert_eq!(decide(&hw, &task, approve()).await.status, 200);
    let (ended, words) = wait_outcome(&hw, &task).await;
    assert_eq!((&ended["status"], placed_orders(&hw).len()), (&json!("completed"), 1));
    assert!(words.contains("bought"), "{words}");
}

#[tokio::test]
async fn a_decision_survives_a_kill() {
    let mut hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let decided = decide(&hw, &task, json!({"decision": "reject", "message": "No."})).await;
    assert_eq!(decided.status, 200);
    hw.kill9();
    hw.restart();
    let again = decide(&hw, &task, json!({"decision": "reject", "message": "No."})).await;
    assert_eq!((again.status, again.json()), (200, decided.json()));
    assert_eq!(decide(&hw, &task, approve()).await.problem(), (409, "already_decided".to_owned()));
    let (_, words) = wait_outcome(&hw, &task).await;
    assert!(words.contains("No."), "{words}");
}

/// A sub-agent's approval that is decided after a crash runs the sub-agent's tool exactly once.
#[tokio::test]
async fn a_sub_agents_approval_is_decided_under_its_own_id_or_its_runs() {
    let mut hw = broker_server("");
    for (round, own) in [(1, true), (2, false)] {
        let task = start_paused(&hw, json!({"input": "ask the clerk"})).await;
        let question = &task["pending"][0];
        let clerk = question["task_id"].as_str().unwrap();
        assert!(clerk.starts_with("call_"), "{task}");
        hw.kill9();
        hw.restart();
        let asked = if own { clerk } else { task["task_id"].as_str().unwrap() };
        let path = format!("/v1/tasks/{asked}/approvals/{}", question["key"].as_str().unwrap());
        let said = hw.post(&format!("/v1/tasks/{clerk}/input"), json!({"input": "hurry"})).await;
        assert_eq!(said.problem(), (422, "unsupported".to_owned()));
        let reply = hw.post(&path, approve()).await;
        assert_eq!((reply.status, &reply.json()["task_id"]), (200, &json!(clerk)), "{}", reply.text);
        let (ended, words) = wait_outcome(&hw, &task).await;
        assert_eq!((&ended["status"], placed_orders(&hw).len()), (&json!("completed"), round));
        assert!(words.contains("The clerk") && words.contains("bought"), "{words}");
    }
}

#[tokio::test]
async fn the_idempotency_key_of_a_decision_is_bound_to_its_body() {
    let hw = broker_server("");
    let task = start_paused(&hw, json!({"input": "buy"})).await;
    let post = async |body: Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
        hw.request(Method::POST, &approval_path(&task), &headers, Some(body.to_string().into_bytes())).await
    };
    let first = post(approve()).await;
    let again = post(approve()).await;
    assert_eq!((first.status, again.status, again.json()), (200, 200, first.json()));
    let other = post(json!({"decision": "reject"})).await;
    assert_eq!(other.problem(), (409, "idempotency_key_reused".to_owned()));
    wait_outcome(&hw, &task).await;
    assert_eq!(placed_orders(&hw).len(), 1);
}

#[tokio::test]
async fn approvals_are_listed_newest_first_in_pages() {
    let hw = broker_server("");
    let mut keys = Vec::new();
    for _ in 0..3 {
        let task = start_paused(&hw, json!({"input": "buy"})).await;
        keys.insert(0, task["pending"][0]["key"].clone());
    }
    let page = hw.get("/v1/approvals?status=pending&limit=2").await.json();
    let named =
        |page: &Value| page["data"].as_array().unwrap().iter().map(|row| row["key"].clone()).collect::<Vec<_>>();
    assert_eq!((named(&page), &page["has_more"]), (keys[..2].to_vec(), &json!(true)));
    let rest = hw.get(&format!("/v1/approvals?before={}", keys[1].as_str().unwrap())).await.json();
    assert_eq!((named(&rest), &rest["has_more"]), (keys[2..].to_vec(), &json!(false)));
    for query in ["status=decided", "status=", "stat=pending", "limit=0", "before=%00"] {
        let reply = hw.get(&format!("/v1/approvals?{query}")).await;
        assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{query}");
    }
}

#[tokio::test]
async fn ambiguous_arguments_are_neither_shown_for_approval_nor_run() {
    let hw = broker_server("");
    let started = hw.post("/v1/tasks", json!({"model": "broker", "input": "one thing twice", "wait": true})).await;
    let (ended, words) = wait_outcome(&hw, &started.json()).await;
    assert_eq!(
        (&ended["status"], &tool_results(&ended)[0]["error"]["code"]),
        (&json!("completed"), &json!("invalid_arguments"))
    );
    assert!(words.contains("duplicate key \"quantity\""), "{words}");
    assert_eq!((listed(&hw, "").await.len(), placed_orders(&hw).len()), (0, 0));
}
