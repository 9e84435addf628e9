//! Planted defects: what would go wrong if a law were broken.
//!
//! With the test-only feature `defects`, the environment variable `HEADWATER_DEFECT` switches one of them on, and a
//! named test must turn red (`cargo xtask defects`). Without the feature every question is answered `false` at compile
//! time and nothing of this is in the binary.

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Viewers are shown records before the commit (law 7).
    PublishBeforeCommit,
    /// SQLite is not asked to wait for the disk (law 7).
    SynchronousNormal,
    /// A resume begins one record too late (law 5).
    CursorOffByOne,
    /// Any epoch may append (law 8).
    EpochUnchecked,
    /// A task ends twice (law 9).
    TerminalTwice,
    /// One piece of text is not logged (law 3).
    DeltaDropped,
}

impl Defect {
    /// The name by which the environment switches it on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PublishBeforeCommit => "publish-before-commit",
            Self::SynchronousNormal => "synchronous-normal",
            Self::CursorOffByOne => "cursor-off-by-one",
            Self::EpochUnchecked => "epoch-unchecked",
            Self::TerminalTwice => "terminal-twice",
            Self::DeltaDropped => "delta-dropped",
        }
    }

    /// Is it planted?
    #[cfg(not(feature = "defects"))]
    #[must_use]
    pub const fn is_planted(self) -> bool {
        false
    }

    /// Is it planted?
    #[cfg(feature = "defects")]
    #[must_use]
    pub fn is_planted(self) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            #[expect(clippy::disallowed_methods, reason = "a test-only switch, not a setting")]
            std::env::var("HEADWATER_DEFECT").ok()
        });
        chosen.as_deref() == Some(self.name())
    }
}
