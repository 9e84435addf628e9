//! Daily usage of a user.

use crate::broker_fixture::{broker_server, wait_outcome};
use serde_json::json;

#[tokio::test]
async fn daily_usage_is_the_sum_of_all_runs_including_deleted_ones() {
    let hw = broker_server("");
    let today = hw.get("/v1/usage").await.json();
    assert_eq!((&today["usage"]["input_tokens"], &today["cost"]), (&json!(0), &json!(0.0)));
    let mut threads = Vec::new();
    for _ in 0..3 {
        let task = hw.create_task(json!({"model": "broker", "input": "hello"})).await;
        wait_outcome(&hw, &task).await;
        threads.push(task["thread_id"].as_str().unwrap().to_owned());
    }
    let gone = hw.request(reqwest::Method::DELETE, &format!("/v1/threads/{}", threads[0]), &[], None).await;
    assert_eq!(gone.status, 204);
    let now = hw.get("/v1/usage").await.json();
    assert_eq!((&now["usage"]["input_tokens"], &now["usage"]["output_tokens"]), (&json!(30), &json!(15)));
    // Ten tokens at 1,000 and five at 2,000 for a million, three times.
    assert_eq!(now["cost"], json!(0.06));
    let day = now["day"].as_str().unwrap();
    assert_eq!(hw.get(&format!("/v1/usage?day={day}")).await.json(), now);
    let past = hw.get("/v1/usage?day=2001-02-03").await.json();
    assert_eq!(
        (&past["day"], &past["usage"]["input_tokens"], &past["cost"]),
        (&json!("2001-02-03"), &json!(0), &json!(0.0))
    );
    for bad in ["2001-02-30", "yesterday", "", "2001-2-3"] {
        assert_eq!(hw.get(&format!("/v1/usage?day={bad}")).await.problem(), (422, "invalid_query".to_owned()), "{bad}");
    }
}

#[tokio::test]
async fn usage_of_another_user_is_not_visible() {
    let hw = broker_server("[auth]\nmode = \"keys\"");
    let key = |user: &str| String::from_utf8(hw.run_cli(&["keys", "create", "--user", user]).stdout).unwrap();
    let (ann, bob) = (key("ann").trim().to_owned(), format!("Bearer {}", key("bob").trim()));
    let hw = hw.with_key(&ann);
    let task = hw.create_task(json!({"model": "broker", "input": "hello"})).await;
    wait_outcome(&hw, &task).await;
    assert_eq!(hw.get("/v1/usage").await.json()["usage"]["input_tokens"], 10);
    let seen = hw.request(reqwest::Method::GET, "/v1/usage", &[("authorization", &bob)], None).await;
    assert_eq!(seen.json()["usage"]["input_tokens"], 0);
}
