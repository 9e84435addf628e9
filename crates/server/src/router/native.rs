//! Routes of the native protocol and of agent runs.

use crate::openapi::{Api, date, thread_name};
use crate::pagination::Page;
use crate::routes::*;
use gateway::attachments::RAW_ATTACHMENT_PATH;
use gateway::native_json::{ApprovalObject, ListedTask, ListedThread, ShareObject, ThreadObject};
use model::error::ErrorCode::*;
use model::task::TaskObject;
use protocol::agent_runs::AgentRunEvent;
use protocol::agent_runs::CreateAgentRunRequest;
use protocol::task::EventFrame;
use protocol::task::{CancelRequest, CreateTaskRequest, DecideApprovalRequest, SendInputRequest, SubmittedToolResult};
use serde_json::json;

pub(super) fn add_routes(api: &mut Api) {
    api.group("tasks", "A run: one request and everything that follows from it.");
    add_task_routes(api);
    add_input_routes(api);
    api.group("threads", "A conversation: runs, one after the other, in one log.");
    add_thread_routes(api);
    api.group("agent runs", "The runs of a thread as nine types of events, and its messages by day.");
    add_agent_routes(api);
    add_attachment_routes(api);
}

fn add_task_routes(api: &mut Api) {
    api.post("/v1/tasks", task_create::handle, "createTask", "Start a run, or queue it in its thread")
        .description(
            "The response follows when the request is durable: from then on the run survives a crash, and does not \
             depend on the connection.",
        )
        .stream_format()
        .stream_until()
        .blob_urls()
        .starts_run()
        .body::<CreateTaskRequest>()
        .json::<TaskObject>(200, "With `wait`: the task, ended or paused. With `stream`: its events from the first on.")
        .events::<EventFrame>("")
        .accepted_task::<TaskObject>("The task, often still `queued`.")
        .empty(204, "With `stream`: the `Idempotency-Key` names a run that was cancelled before it started.")
        .response_header(200, "Location")
        .response_header(204, "Location")
        .errors(&[NotFound, ThreadBusy, UnknownPrevious, UnknownShare]);
    api.get("/v1/tasks", task_list::handle, "listTasks", "List runs, newest first")
        .description("`?thread_id=…&status=queued` is the queue of a thread; its last entry starts next.")
        .query("status", "One status, or several separated by commas.", json!({ "type": "string" }))
        .query("thread_id", "Only runs of this thread.", json!({ "type": "string" }))
        .paged()
        .json::<Page<ListedTask>>(200, "A page of runs.")
        .errors(&[NotFound]);
    api.get("/v1/tasks/{task}", task_get::handle, "getTask", "Get a task")
        .description("The fold of the durable events. To follow it, continue with `GET …/events?after=<seq>`.")
        .blob_urls()
        .json::<TaskObject>(200, "The task.");
    api.get("/v1/tasks/{task}/events", task_events::handle, "followTask", "Follow a task from any cursor")
        .description(
            "The events of the task and of its sub-agents, past ones first, then live. The stream ends after the \
             task's terminal event. A browser's `EventSource` resumes by itself; call `close()` on a terminal event.",
        )
        .stream_format()
        .stream_until()
        .blob_urls()
        .resumable_events::<EventFrame>("The events.")
        .empty(204, "The task has ended and has no events after the cursor. `EventSource` stops reconnecting.");
    api.post("/v1/tasks/{task}/cancel", task_cancel::handle, "cancelTask", "Cancel a task")
        .description(
            "A queued run leaves its queue without events. A sub-agent is cancelled with its descendants, and its run \
             continues: the result of the call is `incomplete` with the error `cancelled`.",
        )
        .idempotent()
        .optional_body::<CancelRequest>()
        .accepted_task::<TaskObject>("The task.")
        .errors(&[AlreadyEnded]);
}

fn add_input_routes(api: &mut Api) {
    api.post("/v1/tasks/{task}/input", task_input::handle, "addInput", "Send more input to a run")
        .description(
            "The model reads it at its next turn. If the run has ended, the input starts the thread's next run.",
        )
        .starts_run()
        .body::<SendInputRequest>()
        .accepted_task::<TaskObject>("The task that receives the input.")
        .errors(&[Unsupported]);
    api.post("/v1/tasks/{task}/approvals/{key}", task_approve::handle, "decideApproval", "Decide an approval request")
        .description(
            "Takes effect once: the same decision again gives the same response, another one 409 with the decision that \
             counts. The task may be the run's or that of the sub-agent that made the call.",
        )
        .idempotent()
        .body::<DecideApprovalRequest>()
        .json::<ApprovalObject>(200, "The request with its decision.")
        .errors(&[ApprovalNotFound, AlreadyDecided, Expired, AlreadyEnded, InvalidArguments, RequestTooLarge]);
    api.post("/v1/tasks/{task}/tool_results", task_tool_results::handle, "giveToolResults", "Submit tool results")
    .description(
        "Results of client tools. A run waits for them from the end of the turn that called them (`task.step.done`). \
     When nothing else can proceed it pauses, and `pending` names them. Either all results of a request are \
             accepted or none. The task may be the run's or that of the sub-agent that made the calls.",
    )
    .idempotent()
    .body::<Vec<SubmittedToolResult>>()
    .accepted_task::<TaskObject>("The task.")
    .errors(&[NothingPending, RequestTooLarge, ImageTooLarge]);
    api.get("/v1/approvals", approval_list::handle, "listApprovals", "List approval requests, newest first")
        .query("status", "Only undecided requests; all by default.", json!({ "enum": ["pending"] }))
        .blob_urls()
        .paged()
        .json::<Page<ApprovalObject>>(200, "A page of approval requests.");
}

fn add_thread_routes(api: &mut Api) {
    api.get("/v1/threads", thread_list::handle, "listThreads", "List threads, newest first")
        .paged()
        .query(
            "name",
            "Only threads that a protocol knows by this name: the `session_id` of blocks, the `threadId` of agent runs, \
             the id of a conversation. Not together with `limit` and `before`.",
            json!({ "type": "string" }),
        )
        .json::<Page<ListedThread>>(200, "A page of threads.");
    api.get("/v1/threads/{thread}", thread_get::handle, "getThread", "Get a thread")
        .json::<ThreadObject>(200, "The thread.");
    api.delete("/v1/threads/{thread}", thread_delete::handle, "deleteThread", "Delete a thread with everything in it")
        .description("Cancels its runs, closes its streams, and deletes files that no other thread uses.")
        .empty(204, "The thread is deleted.");
    api.get("/v1/threads/{thread}/events", thread_events::handle, "followThread", "Follow a thread from any cursor")
        .description("The events of all runs of the thread. The stream never ends.")
        .stream_format()
        .blob_urls()
        .resumable_events::<EventFrame>("The events.");
    api.get("/v1/threads/{thread}/shares", share_list::handle, "listShares", "List the shares of a thread")
        .json::<share_list::ShareList>(200, "All shares, revoked ones included, oldest first.");
    api.post("/v1/threads/{thread}/shares", share_create::handle, "createShare", "Share a thread")
        .description(
            "The token, sent like a key, gives read access to this thread: its routes, those of its tasks and responses, \
             its agent runs and history, and `resume` on `/ws`. Other resources are 404, and changes 403 \
             `share_read_only`.",
        )
        .body::<share_create::ShareRequest>()
        .json::<ShareObject>(201, "The share with its `token`, which is shown only here.")
        .errors(&[TooManyShares]);
    api.delete("/v1/threads/{thread}/shares/{share}", share_revoke::handle, "revokeShare", "Revoke a share")
        .description("Streams that its token opened end within 5 seconds.")
        .empty(204, "The share is revoked.");
    api.get("/v1/blobs/{hash}", blob_get::handle, "readBlob", "Get an image or a file of a thread")
        .description(
            "What `/v1/blobs/…` in events and objects refers to. It never changes, and is deleted with the last thread \
             that uses it. Browsers display images and download other files. A signed URL (`?blobs=signed` of the \
             request that showed it) needs no key.",
        )
        .query("user", "In a signed URL: the user for whom it was signed.", json!({ "type": "string" }))
        .query("expires", "In a signed URL: seconds since the Unix epoch.", json!({ "type": "string" }))
        .query("signature", "In a signed URL. It cannot be altered.", json!({ "type": "string" }))
        .path_param("hash", "The SHA-256 of the bytes.", json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" }))
        .header("If-None-Match", "The `ETag` of a cached copy.")
        .file("The bytes.")
        .response_header(200, "ETag")
        .empty(304, "The cached copy is current.")
        .errors(&[FilesUnavailable, UrlNotValid, UrlExpired]);
}

fn add_agent_routes(api: &mut Api) {
    api.post("/api/v1/agent/runs", agent_run_create::handle, "startAgentRun", "Send a message to an agent")
        .description(
            "Starts a run, or queues it in its thread. With `Accept: text/event-stream` the response is the thread's \
             stream, which starts with this run or with an older one that has not ended.",
        )
        .blob_urls()
        .starts_run()
        .body::<CreateAgentRunRequest>()
        .events::<AgentRunEvent>("The events.")
        .json::<AgentRunNames>(202, "The run is durable.")
        .response_header(200, "Location")
        .response_header(202, "Location")
        .errors(&[NotFound]);
    api.get("/api/v1/agent/runs/{thread}/events", agent_run_events::handle, "followAgentRuns", "Follow a thread")
        .description(
            "The stream never ends. Without a cursor it starts with the oldest run that has not ended, else with the \
             latest.",
        )
        .path_param("thread_id", "A thread's id, or the client's name for it.", thread_name())
        .blob_urls()
        .resumable_events::<AgentRunEvent>("The events.");
    api.post("/api/v1/agent/runs/{thread}/cancel", agent_run_cancel::handle, "cancelAgentRun", "Cancel the active run")
        .description("The next queued run starts then.")
        .path_param("thread_id", "A thread's id, or the client's name for it.", thread_name())
        .idempotent()
        .optional_body::<CancelRequest>()
        .json::<AgentRunNames>(202, "The run that is cancelled.")
        .errors(&[AlreadyEnded]);
    api.get("/api/v1/agent/history", agent_history::handle, "readAgentHistory", "Read messages by day")
        .description(
            "The newest day with messages, oldest message first. While `hasMore`, the day before follows with \
             `before` set to this `day`.",
        )
        .query(
            "threadId",
            "A thread's id, or any protocol's name for it. The thread of the user's newest run by default.",
            thread_name(),
        )
        .query("tz", "The time zone of days, by its IANA name. UTC by default.", json!({ "type": "string" }))
        .query("before", "Only days before this one.", date())
        .blob_urls()
        .json::<agent_history::HistoryResponse>(200, "The messages of the day.")
        .errors(&[NotFound]);
}

fn add_attachment_routes(api: &mut Api) {
    api.post("/api/v1/agent/attachments", attachment_create::handle, "createAttachment", "Upload a file")
        .description(
            "The bytes as the body, or as the one file of a form. The bytes determine the type; `Content-Type` counts \
             only where it says more about a text (`text/csv`, `text/markdown`, `application/json`). An interrupted \
             upload leaves nothing.",
        )
        .query("name", "The file's name; takes precedence over the `filename` of a form.", json!({ "type": "string" }))
        .upload()
        .json::<attachment_create::UploadedFile>(201, "The file is durable.")
        .errors(&[InvalidFraming, BodyTimeout, BodyTooLarge, QuotaExceeded, UnsupportedEncoding, InvalidForm])
        .errors(&[EmptyFile, ImageTooLarge, TooManyUploads, FilesUnavailable]);
    api.get("/api/v1/agent/attachments/signed-url", attachment_signed_url::handle, "signAttachment", "Sign a URL")
        .description(
            "A URL of the file, valid for a while: of the external bucket that has the file, or of this server.",
        )
        .required_query("bucket", "")
        .required_query("path", "")
        .json::<attachment_signed_url::SignedUrlResponse>(200, "The URL. It needs no key.")
        .errors(&[InvalidPath, NotFound, BucketNotFound, FilesUnavailable]);
    api.public_get(RAW_ATTACHMENT_PATH, attachment_raw::handle, "readAttachment", "Download a file by its signed URL")
        .description("The URL cannot be altered. Browsers display images and download other files.")
        .required_query("bucket", "")
        .required_query("path", "")
        .required_query("expires", "Seconds since the Unix epoch.")
        .required_query("signature", "")
        .file("The file.")
        .errors(&[InvalidPath, InvalidQuery, UrlNotValid, NotFound, UrlExpired])
        .errors(&[Internal, FilesUnavailable, StorageUnavailable]);
}
