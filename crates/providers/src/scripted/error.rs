//! Errors of scenario files: file, line, scenario, turn and step, and what is expected instead.

use super::limits::SCENARIO_FILE_BYTES_MAX;
use std::fmt;
use std::io;

/// Why a scenario file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("{origin}: {source}")]
    Read { origin: String, source: io::Error },
    #[error("{origin}: longer than {SCENARIO_FILE_BYTES_MAX} bytes")]
    TooLong { origin: String },
    #[error("{origin}:{line}: {message}")]
    Syntax {
        origin: String,
        /// Counted from 1.
        line: usize,
        message: String,
    },
    #[error("{origin}:{line}: {position}{fault}")]
    Fault {
        origin: String,
        /// Counted from 1.
        line: usize,
        position: ScenarioPosition,
        fault: ScenarioFault,
    },
}

/// Numbers count from 1; 0 means outside of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioPosition {
    /// Index of the scenario in the file.
    pub scenario: usize,
    /// Index of the turn in the scenario.
    pub turn: usize,
    /// Index of the step in the turn.
    pub step: usize,
}

impl fmt::Display for ScenarioPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, turn, step } = self;
        match (scenario, turn, step) {
            (0, _, _) => Ok(()),
            (_, 0, _) => write!(f, "scenario {scenario}: "),
            (_, _, 0) => write!(f, "scenario {scenario}, turn {turn}: "),
            _ => write!(f, "scenario {scenario}, turn {turn}, step {step}: "),
        }
    }
}

/// What is wrong with a part of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioFault {
    #[error("unknown key `{key}`; expected {}", join_quoted(allowed, "or"))]
    UnknownKey { key: String, allowed: &'static [&'static str] },
    #[error("`{key}` is missing")]
    MissingKey { key: &'static str },
    #[error("a step has exactly one of {}; this one has {}", join_quoted(allowed, "or"), join_quoted(found, "and"))]
    NotOneStepKey {
        /// The keys of which a step needs one.
        allowed: &'static [&'static str],
        found: Vec<String>,
    },
    #[error("`{key}` must be {wanted}, not {found}")]
    WrongType { key: String, wanted: &'static str, found: String },
    #[error("`{key}` must not be empty")]
    Empty { key: String },
    #[error("`{key}` exceeds the maximum of {max}")]
    TooLarge { key: String, max: u64 },
    #[error("`{key}` is `{found}`; expected {}", join_quoted(allowed, "or"))]
    UnknownValue { key: &'static str, found: String, allowed: &'static [&'static str] },
    #[error("`match` is not a regular expression: {message}")]
    InvalidRegex { message: String },
    #[error("`match` captures `{name}`, which is reserved")]
    ReservedName { name: String },
    #[error("`{key}` names `{name}`, which `match` does not capture")]
    UnknownPlaceholder { key: String, name: String },
    #[error("nothing follows an `error`: it ends the turn")]
    StepAfterError,
    #[error("a turn that ends with an `error` has no `stop`")]
    StopWithError,
    #[error("a turn with `when` needs one without it after it, for when it does not hold")]
    MissingFallbackTurn,
    #[error("`when` is empty; expected {}", join_quoted(allowed, "and"))]
    EmptyCondition { allowed: &'static [&'static str] },
    #[error("never played: scenario {by} has no `match`, so it always comes first")]
    Shadowed {
        /// The scenario that always matches.
        by: usize,
    },
}

/// Such as "`a`, `b` or `c`".
fn join_quoted(names: &[impl AsRef<str>], conjunction: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {conjunction} {last}", rest.join(", ")),
    }
}
