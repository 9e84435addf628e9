//! Forking a thread that is too long to be copied whole.

use super::{KEYS, ShareUser, token};
use crate::auth::create_key;
use crate::fake_provider::dialect::ProviderDialect;
use crate::fake_provider::loopback::{Loopback, ReceivedRequest, ResponseAction, stream_head};
use crate::harness::Server;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn a_fork_of_a_long_thread_keeps_its_end_with_a_note_for_the_model() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&asked);
    let upstream = Loopback::start(move |request: ReceivedRequest| {
        hears.lock().unwrap().push(request.body.to_string());
        vec![stream_head(), ResponseAction::Send(ProviderDialect::Chat.full_answer("well said").into_bytes())]
    })
    .await;
    let far = format!(
        "{KEYS}\nmodels = true\n[providers.far]\nkind = \"openai-chat\"\nbase_url = \"{}\"",
        upstream.url("/v1")
    );
    let hw = Server::demo_with(&far);
    let (ann, ben) = (ShareUser::new(&hw, &create_key(&hw, "ann")), ShareUser::new(&hw, &create_key(&hw, "ben")));
    let say = async |seat: &ShareUser<'_>, mut body: Value| {
        body["model"] = json!("far/m");
        body["wait"] = json!(true);
        let reply = seat.post("/v1/tasks", body).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.text);
        reply.json()["thread_id"].as_str().unwrap().to_owned()
    };
    // Each has content that a fork sends to the model, and content that it does not.
    let long = |name: &str, kilobytes: usize| format!("{name} {}", "x".repeat(kilobytes * 1024));
    let mut thread = None;
    let note = "is left out: it is too long";
    for (said, heard, left) in [
        (long("alpha", 60), vec!["alpha"], vec![note]),
        (long("beta", 60), vec!["beta", note], vec!["alpha"]),
        ("gamma".to_owned(), vec!["beta", "gamma", note], vec!["alpha"]),
        (long("delta", 150), vec![note], vec!["alpha", "beta", "gamma", "delta"]),
        ("epsilon".to_owned(), vec!["epsilon", note], vec!["delta"]),
    ] {
        thread = Some(say(&ann, json!({"input": said, "thread_id": thread})).await);
        let share = ann.share(thread.as_deref().unwrap(), json!({"mode": "live"})).await;
        say(&ben, json!({"input": "go on", "share": token(&share)})).await;
        let last = asked.lock().unwrap().last().unwrap().clone();
        let name = said.get(..5).unwrap();
        for words in heard {
            assert!(last.contains(words), "{name}: the model hears {words}");
        }
        for words in left {
            assert!(!last.contains(words), "{name}: the model does not hear {words}");
        }
    }
}
