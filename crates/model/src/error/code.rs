//! Every error code that clients, models and logs see. The table below is the only list of them; `docs/errors.md` is
//! generated from it.

/// Who sees an error. One that several see stands where it is seen first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// The answer to an HTTP request, or to a message on a WebSocket.
    Request,
    /// The `error` of a run or of a task.
    Run,
    /// The `error` of a model turn. If no retry helps, it is the run's error.
    Model,
    /// The `error` of a tool result. The model reads it, and the run goes on.
    Tool,
}

/// Declares [`ErrorCode`] from rows of: documentation, variant, wire string, HTTP status, `retryable` or `permanent`,
/// and the request field at fault if the code implies one.
macro_rules! error_codes {
    ($($scope:ident {
        $(#[doc = $doc:literal] $code:ident = $wire:literal $status:literal $retry:ident $($field:literal)?;)*
    })*) => {
        /// A stable error code. Two variants share a string where the same error has two HTTP statuses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = $doc] $code,)*)*
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$($(Self::$code,)*)*];

            /// The code on the wire, in records and in logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$code => $wire,)*)*
                }
            }

            /// The status of an HTTP response with this error. The errors of runs and tools have the status that a
            /// request would get which waits for the run.
            pub const fn http_status(self) -> u16 {
                match self {
                    $($(Self::$code => $status,)*)*
                }
            }

            /// Whether the same request may succeed later. Where an [`ErrorInfo`](super::ErrorInfo) says otherwise,
            /// it knows better.
            pub const fn is_retryable(self) -> bool {
                match self {
                    $($(Self::$code => error_codes!(@ $retry),)*)*
                }
            }

            /// The request field at fault, if the code alone says which.
            pub const fn field(self) -> Option<&'static str> {
                match self {
                    $($(Self::$code => error_codes!(@ field $($field)?),)*)*
                }
            }

            /// Who sees the error first.
            pub const fn scope(self) -> ErrorScope {
                match self {
                    $($(Self::$code => ErrorScope::$scope,)*)*
                }
            }

            /// One sentence for the documentation.
            pub const fn description(self) -> &'static str {
                match self {
                    $($(Self::$code => $doc.trim_ascii(),)*)*
                }
            }
        }
    };
    (@ retryable) => { true };
    (@ permanent) => { false };
    (@ field) => { None };
    (@ field $field:literal) => { Some($field) };
}

impl ErrorCode {
    /// The code with this wire string; the first one where two share it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

error_codes! {
    Request {
        /// The body is not valid JSON, has a duplicate key, or is nested too deeply.
        InvalidJson = "invalid_json" 400 permanent;
        /// A string in the body contains a NUL character.
        NulCharacter = "nul_character" 422 permanent;
        /// The body is JSON but does not have the shape that the route accepts.
        InvalidBody = "invalid_body" 422 permanent;
        /// A query parameter is unknown, repeated or has an invalid value.
        InvalidQuery = "invalid_query" 422 permanent;
        /// The file path is malformed.
        InvalidPath = "invalid_path" 400 permanent;
        /// The multipart form is malformed.
        InvalidForm = "invalid_form" 422 permanent;
        /// The body ended before its announced length, or its framing is invalid.
        InvalidFraming = "invalid_framing" 400 permanent;
        /// The `Idempotency-Key` header is malformed.
        InvalidIdempotencyKey = "invalid_idempotency_key" 400 permanent;
        /// The cursor cannot be parsed.
        InvalidCursor = "invalid_cursor" 400 permanent;
        /// The WebSocket handshake is malformed.
        InvalidHandshake = "invalid_handshake" 400 permanent;
        /// The WebSocket message is not text.
        InvalidMessage = "invalid_message" 415 permanent;
        /// The request is of a version of its protocol that the server does not have.
        UnsupportedVersion = "unsupported_version" 400 permanent "protocolVersion";
        /// The `Content-Encoding` is not supported.
        UnsupportedEncoding = "unsupported_encoding" 415 permanent;
        /// The `Content-Type` is not supported.
        UnsupportedMediaType = "unsupported_media_type" 415 permanent;
        /// The route cannot produce a media type that the `Accept` header allows.
        NotAcceptable = "not_acceptable" 406 permanent;
        /// The route does not support this method.
        MethodNotAllowed = "method_not_allowed" 405 permanent;
        /// The route speaks WebSocket only.
        UpgradeRequired = "upgrade_required" 426 permanent;
        /// The requested byte range lies outside the file.
        RangeNotSatisfiable = "range_not_satisfiable" 416 permanent;
        /// The operation is not supported for this resource.
        Unsupported = "unsupported" 422 permanent;
        /// The body exceeds the size limit.
        BodyTooLarge = "body_too_large" 413 permanent;
        /// The body did not arrive in time.
        BodyTimeout = "body_timeout" 408 retryable;
        /// Input, tools and metadata together exceed what one record can hold.
        RequestTooLarge = "request_too_large" 413 permanent;
        /// The image has too many pixels.
        ImageTooLarge = "image_too_large" 422 permanent;
        /// The uploaded file is empty.
        EmptyFile = "empty_file" 422 permanent;
        /// The user's files or conversations hold as many bytes as they may.
        QuotaExceeded = "quota_exceeded" 413 permanent;
        /// The request has no API key or a malformed one, or its ticket or share token is not valid.
        Unauthorized = "unauthorized" 401 permanent;
        /// There is no such API key.
        InvalidApiKey = "invalid_api_key" 401 permanent;
        /// The API key was revoked.
        RevokedApiKey = "revoked_api_key" 401 permanent;
        /// The `Host` header names a host that the server does not answer for.
        HostNotAllowed = "host_not_allowed" 421 permanent;
        /// The web page's origin may not use the server.
        OriginNotAllowed = "origin_not_allowed" 403 permanent;
        /// The operator does not allow this user to call the agent or model.
        ModelNotAllowed = "model_not_allowed" 403 permanent "model";
        /// The operator does not allow instructions of clients for this agent: `instructions`, and system and developer messages.
        InstructionsNotAllowed = "instructions_not_allowed" 403 permanent;
        /// A share grants read access only.
        ShareReadOnly = "share_read_only" 403 permanent;
        /// The share token is unknown, expired or revoked.
        UnknownShare = "unknown_share" 422 permanent "share";
        /// The signature of the file's URL is not valid.
        UrlNotValid = "url_not_valid" 403 permanent;
        /// The signed URL has expired.
        UrlExpired = "url_expired" 410 permanent;
        /// The resource does not exist, or belongs to another user.
        NotFound = "not_found" 404 permanent;
        /// There is no such bucket.
        BucketNotFound = "bucket_not_found" 404 permanent;
        /// There is no such agent and no such model.
        ModelNotFound = "model_not_found" 404 permanent;
        /// The previous response does not exist, or belongs to another user.
        PreviousResponseNotFound = "previous_response_not_found" 400 permanent "previous_response_id";
        /// The run never asked for this approval.
        ApprovalNotFound = "approval_not_found" 404 permanent;
        /// The input answers an approval that no run asked for.
        UnmatchedApproval = "approval_not_found" 400 permanent;
        /// The input has a result for a call that no run made.
        CallNotFound = "call_not_found" 400 permanent;
        /// There is no such agent.
        UnknownAgent = "unknown_agent" 422 permanent "model";
        /// The thread has no such run to continue.
        UnknownPrevious = "unknown_previous" 422 permanent "previous";
        /// The request has no input, and the thread has nothing to continue.
        NoInput = "no_input" 422 permanent;
        /// The connection has no session yet.
        NoSession = "no_session" 409 permanent;
        /// The thread is busy with another run.
        ThreadBusy = "thread_busy" 409 retryable;
        /// The server failed each time that it resumed the thread, and does not try again. It can be read and deleted.
        ThreadParked = "thread_parked" 409 permanent;
        /// The run does not wait for a result of this call.
        NothingPending = "nothing_pending" 409 permanent;
        /// Other requests kept changing the same object.
        Conflict = "conflict" 409 retryable;
        /// The approval has been decided before.
        AlreadyDecided = "already_decided" 409 permanent;
        /// The request shows a call that it answers in another form than the run asked it.
        AlteredHistory = "altered_history" 409 permanent;
        /// The time for this decision is over.
        Expired = "expired" 409 permanent;
        /// The run or task has ended.
        AlreadyEnded = "already_ended" 409 permanent;
        /// The idempotency key was used with another request.
        IdempotencyKeyReused = "idempotency_key_reused" 409 permanent;
        /// The cursor is ahead of the log.
        CursorAhead = "cursor_ahead" 409 permanent;
        /// The cursor belongs to another log.
        CursorForeign = "cursor_foreign" 409 permanent;
        /// The thread has the maximum number of shares.
        TooManyShares = "too_many_shares" 409 permanent;
        /// The user has too many open streams.
        TooManyStreams = "too_many_streams" 429 retryable;
        /// The user has too many unused tickets.
        TooManyTickets = "too_many_tickets" 429 retryable;
        /// Too many large bodies, or too many bytes, are being received from the user.
        TooManyUploads = "too_many_uploads" 429 retryable;
        /// The user has too many live runs.
        TooManyRuns = "too_many_runs" 429 retryable;
        /// The user sends too many requests, or the address too many invalid keys.
        TooManyRequests = "too_many_requests" 429 retryable;
        /// The socket has reached its maximum age.
        SocketExpired = "websocket_connection_limit_reached" 400 permanent;
        /// Too many commands wait for the thread.
        InboxFull = "inbox_full" 429 retryable;
        /// The answer of an authorization server belongs to no authorization in progress, or the server refused it.
        InvalidAuthorization = "invalid_authorization" 400 permanent;
        /// The authorization server of an MCP server cannot be found, asked or trusted.
        AuthorizationUnavailable = "authorization_unavailable" 502 retryable;
        /// The server has too many open connections, or too many bytes of requests in memory.
        ServerBusy = "server_busy" 503 retryable;
        /// The server is shutting down.
        Stopping = "stopping" 503 retryable;
        /// The database is not available.
        StorageUnavailable = "storage_unavailable" 503 retryable;
        /// A stored record is damaged.
        StorageCorrupt = "storage_corrupt" 500 permanent;
        /// The file storage is not available.
        FilesUnavailable = "files_unavailable" 503 retryable;
        /// The server has a bug; the log has the details.
        Internal = "internal" 500 permanent;
    }
    Run {
        /// The run failed; the message says why.
        RunFailed = "run_failed" 500 permanent;
        /// The run, the task or the call was cancelled.
        Cancelled = "cancelled" 500 permanent;
        /// The server stopped too often while the run was in progress.
        Interrupted = "interrupted" 500 retryable;
        /// The server failed three times while it started or resumed the run, and did not try again.
        RecoveryFailed = "recovery_failed" 500 permanent;
        /// An MCP server cannot be started, or does not answer; the call fails, or the run if its agent requires the server.
        McpUnavailable = "mcp_unavailable" 503 retryable;
        /// An MCP server wants a credential of the user that is missing, expired or refused; the message says where to authorize.
        McpUnauthorized = "mcp_unauthorized" 403 permanent;
        /// The input hook failed.
        HookFailed = "hook_failed" 500 permanent;
        /// The model kept calling tools that do not exist or with invalid arguments.
        InvalidToolCalls = "invalid_tool_calls" 500 permanent;
        /// The run reached its time limit.
        Deadline = "deadline" 500 permanent;
        /// A limit ended the run or the message.
        Limit = "limit" 500 permanent;
        /// The task reached its maximum number of steps.
        MaxSteps = "max_steps" 500 permanent;
        /// The model reached its maximum number of output tokens.
        MaxTokens = "max_tokens" 500 permanent;
        /// The budget of the run, of the user or of the day is used up.
        Budget = "budget" 500 permanent;
        /// The provider's content filter stopped the answer.
        ContentFilter = "content_filter" 500 permanent;
        /// The task failed and gave no reason.
        Failed = "failed" 500 permanent;
        /// The call was not finished.
        Incomplete = "incomplete" 500 permanent;
    }
    Model {
        /// The provider failed.
        ProviderError = "provider_error" 500 retryable;
        /// The provider's rate limit is reached, or the account has no credit left.
        RateLimited = "rate_limited" 429 retryable;
        /// The provider is overloaded.
        Overloaded = "overloaded" 503 retryable;
        /// The provider does not accept the API key.
        ProviderAuth = "provider_auth" 500 permanent;
        /// The provider rejects the request.
        ProviderRefused = "provider_refused" 500 permanent;
        /// The conversation exceeds the model's context window.
        ContextTooLong = "context_too_long" 500 permanent;
        /// The provider does not accept items that it returned earlier.
        HistoryRefused = "history_refused" 500 permanent;
        /// The provider sent something that cannot be parsed.
        ProviderProtocolError = "provider_protocol_error" 500 retryable;
        /// The provider's response ended early.
        UpstreamIncomplete = "upstream_incomplete" 500 retryable;
        /// The provider did not respond in time.
        UpstreamTimeout = "upstream_timeout" 500 retryable;
        /// The provider cannot be reached.
        UpstreamUnreachable = "upstream_unreachable" 500 retryable;
        /// No provider is configured for the model.
        UnknownProvider = "unknown_provider" 500 permanent;
        /// The server stopped in the middle of the turn.
        Lost = "lost" 500 retryable;
        /// The server restarted; the turn is repeated.
        Recovered = "recovered" 500 retryable;
        /// No cassette matches the request.
        NoCassette = "no_cassette" 500 permanent;
        /// No scenario matches the request.
        NoScenario = "no_scenario" 500 permanent;
        /// A placeholder of the scenario has no usable value.
        ScenarioValue = "scenario_value" 500 permanent;
    }
    Tool {
        /// There is no such tool.
        UnknownTool = "unknown_tool" 500 permanent;
        /// The arguments do not match the tool's schema.
        InvalidArguments = "invalid_arguments" 422 permanent;
        /// The call was not approved.
        Rejected = "rejected" 500 permanent;
        /// Nobody decided about the call in time.
        ApprovalTimeout = "approval_timeout" 500 permanent;
        /// The tool reported a failure.
        ToolFailed = "tool_failed" 500 permanent;
        /// The tool ended without a result.
        ToolError = "tool_error" 500 permanent;
        /// The tool did not end in time.
        ToolTimeout = "tool_timeout" 500 permanent;
        /// The server stopped while the tool ran; its effects are unknown.
        OutcomeUnknown = "outcome_unknown" 500 permanent;
        /// The client reported a failure of its tool.
        ClientError = "client_error" 500 permanent;
        /// The tool's output exceeds the size limit.
        OutputTooLarge = "output_too_large" 500 permanent;
        /// The tool's output cannot be parsed, or is not what the output schema of its MCP server promises.
        InvalidOutput = "invalid_output" 500 permanent;
        /// The tool's configuration is not usable.
        InvalidTool = "invalid_tool" 500 permanent;
        /// A secret that the tool needs is missing.
        MissingSecret = "missing_secret" 500 permanent;
        /// The program could not be started or ended with an error.
        CommandFailed = "command_failed" 500 permanent;
        /// The tool's server responded with an error.
        HttpError = "http_error" 500 permanent;
        /// The tool's server cannot be reached.
        Unreachable = "unreachable" 500 permanent;
        /// The MCP server describes the tool in another way than when the run started, or has it no more; it was not called.
        ToolChanged = "tool_changed" 500 permanent;
        /// The MCP server sent something that is not a message of its protocol, or one that is too long.
        McpProtocolError = "mcp_protocol_error" 500 permanent;
        /// The MCP server sent too many messages at once and was stopped.
        McpFlood = "mcp_flood" 500 permanent;
        /// The MCP server asked for something that Headwater does not do, such as a model's answer in mid-call.
        McpUnsupported = "mcp_unsupported" 500 permanent;
        /// The tool asks people again and again; its call was ended.
        TooManyQuestions = "too_many_questions" 500 permanent;
        /// The question of the tool cannot be asked: it is too long, or its schema cannot be used.
        InvalidQuestion = "invalid_question" 500 permanent;
        /// The expression cannot be evaluated.
        CalculationFailed = "calculation_failed" 500 permanent;
        /// The model used the same call id twice.
        DuplicateCallId = "duplicate_call_id" 500 permanent;
        /// Several hand-offs in one turn: only the first one counts.
        HandoffIgnored = "handoff_ignored" 500 permanent;
        /// Agents are nested too deeply.
        DepthLimit = "depth_limit" 500 permanent;
        /// The run has started the maximum number of sub-agents.
        DescendantsLimit = "descendants_limit" 500 permanent;
    }
}
