//! Planted defects: each breaks one law, to prove that a test notices.
//!
//! With the test-only feature `defects`, the environment variable `HEADWATER_DEFECT` enables one of them, and a named
//! test must fail (`cargo xtask defects`). Without the feature every check is `false` at compile time and the binary
//! contains none of this.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Subscribers receive records before the commit (law 7).
    PublishBeforeCommit,
    /// SQLite does not wait for the disk (law 7).
    SynchronousNormal,
    /// A resumed stream starts one record too late (law 5).
    CursorOffByOne,
    EpochUnchecked,
    TerminalTwice,
    /// One text delta is not logged (law 3).
    DeltaDropped,
    /// A record is read again as soon as it is written: every delta costs more.
    RecordParsedAgain,
    /// Merged deltas count as one frame: a client that resumes by count gets the wrong rest (law 5).
    MergedDeltaCountsOnce,
    /// A viewer of another node's thread misses a record now and then (law 5).
    TailSkipsARecord,
    /// A lost notification is not made up for: nodes follow each other by notifications alone.
    TailsNotPolled,
    /// A thread is taken over although the lease of its node is valid (law 8).
    ClaimIgnoresLease,
    /// PostgreSQL's writer reports an append as durable and then commits it (law 7).
    CommitAcknowledgedEarly,
    /// A tool runs before its start is durable (law 10).
    ToolBeforeDurable,
    /// The write-ahead log is not copied into the database: it grows until the disk is full.
    LogNeverCopied,
    /// What a crash has left in SQLite's append log is not read: events that were seen are gone (law 7).
    AppendLogNotRead,
    /// What is appended to it is not synced (law 7).
    AppendLogNotSynced,
    /// A start takes a released thread over although it was claimed since: two executors, of which one is fenced (law 8).
    ReleaseOutlivesClaim,
    /// What is polled only when it was woken is not woken: a connection does not notice that it has to close.
    WakeUpLost,
    /// One task that holds a worker holds all others.
    WorkersStayInReserve,
    /// A record is deleted from the database and not stored in the archive (law 3).
    ArchiveSkipsARecord,
}

impl Defect {
    /// The value of the environment variable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PublishBeforeCommit => "publish-before-commit",
            Self::SynchronousNormal => "synchronous-normal",
            Self::CursorOffByOne => "cursor-off-by-one",
            Self::EpochUnchecked => "epoch-unchecked",
            Self::TerminalTwice => "terminal-twice",
            Self::DeltaDropped => "delta-dropped",
            Self::RecordParsedAgain => "record-parsed-again",
            Self::MergedDeltaCountsOnce => "merged-delta-counts-once",
            Self::TailSkipsARecord => "tail-skips-a-record",
            Self::TailsNotPolled => "tails-not-polled",
            Self::ClaimIgnoresLease => "claim-ignores-lease",
            Self::CommitAcknowledgedEarly => "commit-acknowledged-early",
            Self::ToolBeforeDurable => "tool-before-durable",
            Self::LogNeverCopied => "log-never-copied",
            Self::AppendLogNotRead => "append-log-not-read",
            Self::AppendLogNotSynced => "append-log-not-synced",
            Self::ReleaseOutlivesClaim => "release-outlives-claim",
            Self::WakeUpLost => "wake-up-lost",
            Self::WorkersStayInReserve => "workers-stay-in-reserve",
            Self::ArchiveSkipsARecord => "archive-skips-a-record",
        }
    }

    #[cfg(not(feature = "defects"))]
    pub const fn is_planted(self) -> bool {
        false
    }

    #[cfg(feature = "defects")]
    pub fn is_planted(self) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            #[expect(clippy::disallowed_methods, reason = "a test-only switch, not a setting")]
            std::env::var("HEADWATER_DEFECT").ok()
        });
        chosen.as_deref() == Some(self.name())
    }
}
