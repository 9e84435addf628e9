//! Routes of AG-UI, and those of CopilotKit's clients, which are the same with other paths.

use crate::openapi::{Api, Operation, thread_name};
use crate::routes::{agui, copilotkit};
use model::error::ErrorCode::*;
use protocol::vendor_objects::*;
use serde_json::json;

const AGENT: &str = "An agent, or `provider%2Fmodel`.";

pub(super) fn add_routes(api: &mut Api) {
    api.group("ag-ui", "Runs and threads in AG-UI.");
    add_agui_routes(api);
    api.group("copilotkit", "AG-UI for CopilotKit, which takes the server for its runtime.");
    add_copilotkit_routes(api);
}

fn add_agui_routes(api: &mut Api) {
    run_operation(api.post("/agui/{agent}", agui::run::handle, "runAgent", "Run an agent"));
    connect_operation(api.post(
        "/agui/{agent}/connect",
        agui::connect::handle,
        "connectAgent",
        "Follow the active run",
    ));
    stop_operation(api.post("/agui/{agent}/stop/{thread}", agui::stop::handle, "stopAgent", "Stop a run"))
        .json::<AgUiStopped>(200, "Whether there was a run to stop.");
    api.get("/agui/{agent}/threads/{thread}/events", agui::events::handle, "followAgent", "Follow a thread")
        .description(
            "Without a cursor it begins with the thread as it is: a snapshot of its state and messages, without ids. The \
             stream never ends.",
        )
        .path_param("agent", AGENT, json!({ "type": "string" }))
        .path_param("thread_id", "", thread_name())
        .query("protocolVersion", "The version of the events, 0.0.59 by default.", json!({ "type": "string" }))
        .blob_urls()
        .resumable_events::<AgUiStreamEvent>("")
        .errors(&[UnsupportedVersion]);
}

fn add_copilotkit_routes(api: &mut Api) {
    api.get("/copilotkit/info", copilotkit::info, "getCopilotKitInfo", "List the agents that you may call")
        .json::<CopilotKitInfo>(200, "The agents.");
    run_operation(api.post("/copilotkit/agent/{agent}/run", copilotkit::run, "runCopilotKitAgent", "Run an agent"));
    let connect = api.post(
        "/copilotkit/agent/{agent}/connect",
        agui::connect::handle,
        "connectCopilotKitAgent",
        "Follow the active run",
    );
    connect_operation(connect);
    let stop =
        api.post("/copilotkit/agent/{agent}/stop/{thread}", copilotkit::stop, "stopCopilotKitAgent", "Stop a run");
    stop_operation(stop).json::<AgUiStopped>(200, "Whether there was a run to stop.");
    let call = api.post("/copilotkit", copilotkit::call_method, "callCopilotKit", "Call one of these with one path");
    streams_run(call.body::<CopilotKitRequest>())
        .description(
            "`method` is `info`, `agent/run`, `agent/connect` or `agent/stop`; `params` has `agentId` and `threadId`.",
        )
        .json::<CopilotKitInfo>(200, "For `info`; `agent/stop` says whether there was a run to stop.");
}

fn run_operation(operation: Operation<'_>) {
    streams_run(operation.path_param("agent", AGENT, json!({ "type": "string" })).body::<AgUiRunInput>()).description(
        "Starts a run; answers the interrupts of one (`resume`) or the calls of its tools that the client runs (tool \
         messages); or attaches to the run of the same `runId`. The stream ends where the run pauses or ends.",
    );
}

fn streams_run(operation: Operation<'_>) -> Operation<'_> {
    operation
        .blob_urls()
        .events::<AgUiStreamEvent>("")
        .errors(&[
            UnsupportedVersion,
            RequestTooLarge,
            ImageTooLarge,
            NoInput,
            UnknownPrevious,
            ModelNotFound,
            NotFound,
        ])
        .errors(&[ModelNotAllowed, InstructionsNotAllowed, TooManyRuns, QuotaExceeded, InboxFull, ThreadParked])
        .errors(&[UnmatchedApproval, CallNotFound, InvalidArguments, AlreadyDecided, Expired, AlteredHistory])
        .errors(&[IdempotencyKeyReused, NothingPending, ThreadBusy])
}

fn connect_operation(operation: Operation<'_>) {
    operation
        .description(
            "A snapshot of the thread's state and messages, then the active run until it pauses or ends. Nothing for a \
             thread that does not exist.",
        )
        .path_param("agent", AGENT, json!({ "type": "string" }))
        .body::<AgUiConnectInput>()
        .blob_urls()
        .events::<AgUiStreamEvent>("")
        .errors(&[UnsupportedVersion, ModelNotFound, ModelNotAllowed]);
}

fn stop_operation(operation: Operation<'_>) -> Operation<'_> {
    operation
        .path_param("agent", AGENT, json!({ "type": "string" }))
        .path_param("thread_id", "", thread_name())
        .optional_body::<AgUiStop>()
        .errors(&[InboxFull])
}
