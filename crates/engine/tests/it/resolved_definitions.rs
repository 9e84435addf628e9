//! A run whose agent uses MCP servers starts when their tools are known, and keeps them.

use crate::fake_ports::ResolverBehavior;
use crate::fixtures::{definitions, with_agent};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use model::definition::{CommandTool, Definitions, McpProgram, McpScope, McpServer, McpTransport};
use model::reference::REFERENCE_INSTRUCTIONS;
use model::task::TaskStatus;

/// The agent `demo` uses a server.
fn definitions_with_server() -> Definitions {
    let transport = McpTransport::Command(CommandTool::default());
    let program = McpProgram { transport, scope: McpScope::User, start_timeout_ms: 1_000 };
    let server = McpServer {
        program,
        allow: None,
        deny: Vec::new(),
        approval: Default::default(),
        timeout_ms: None,
        output_bytes_max: None,
        required: true,
        idempotent: Vec::new(),
        on_crash: Default::default(),
        resources: false,
        prompts: false,
        pin: Default::default(),
    };
    let mut definitions = with_agent(definitions(), "demo", |demo| demo.tools.push("mcp:s".to_owned()));
    definitions.mcp.insert("s".to_owned(), server);
    definitions
}

async fn engine_with_server(kind: StoreKind, behavior: ResolverBehavior) -> TestEngine {
    let test_engine = TestEngine::with_definitions(kind, definitions_with_server()).await;
    set_behavior(&test_engine, behavior);
    test_engine
}

fn set_behavior(test_engine: &TestEngine, behavior: ResolverBehavior) {
    *test_engine.env.resolver.behavior.lock().expect("nobody panicked") = behavior;
}

fn request_count(test_engine: &TestEngine) -> usize {
    test_engine.env.resolver.requests.lock().expect("nobody panicked").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_keeps_the_tools_that_it_started_with() {
    for kind in STORE_KINDS {
        let test_engine = engine_with_server(kind, ResolverBehavior::Instruct("With tools.")).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        let told = |test_engine: &TestEngine| test_engine.models.last_request().instructions;
        let wanted = format!("With tools.\n\n{REFERENCE_INSTRUCTIONS}");
        assert_eq!(told(&test_engine), wanted, "{kind:?}");
        // Whatever the servers say now: the run has its own.
        set_behavior(&test_engine, ResolverBehavior::Fail);
        let test_engine = test_engine.restart().await;
        test_engine.approve(&paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(told(&test_engine), wanted, "{kind:?}: after a restart");
        assert_eq!(request_count(&test_engine), 1, "{kind:?}: they are asked once for each run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_fails_whose_servers_are_required_and_missing() {
    for kind in STORE_KINDS {
        let test_engine = engine_with_server(kind, ResolverBehavior::Fail).await;
        let run = test_engine.start_run(None, "hello").await;
        let failed = test_engine.wait_settled(&run).await;
        assert_eq!(failed.status, TaskStatus::Failed, "{kind:?}");
        let error = failed.error.expect("it says why");
        assert_eq!((error.code.as_str(), error.message.as_str()), ("mcp_unavailable", "The MCP server `s` is gone."));
        assert_eq!(test_engine.models.requests().len(), 0, "{kind:?}: no model was asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_other_agents_do_not_wait() {
    for kind in STORE_KINDS {
        let test_engine = engine_with_server(kind, ResolverBehavior::Hang).await;
        let run = test_engine.start_run_of("helper", None, "hello").await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(request_count(&test_engine), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_its_tools_is_queued_and_can_be_cancelled_or_crash() {
    for kind in STORE_KINDS {
        let test_engine = engine_with_server(kind, ResolverBehavior::Hang).await;
        let run = test_engine.start_run(None, "hello").await;
        test_engine.wait_for(|| request_count(&test_engine) == 1).await;
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Queued, "{kind:?}");
        assert!(test_engine.read_log(&run.thread).await.is_empty(), "{kind:?}: nothing is recorded so far");
        let test_engine = test_engine.restart().await;
        test_engine.wait_for(|| request_count(&test_engine) == 2).await;
        test_engine.cancel(&run.task, Default::default()).await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        set_behavior(&test_engine, ResolverBehavior::Instruct("With tools."));
        let next = test_engine.start_run(Some(&run.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
    }
}
