//! Errors of scenario files: file, line, scenario, turn and step, and what is expected instead.

use super::limits::SCENARIO_FILE_BYTES_MAX;
use std::fmt;
use std::io;

/// Why a scenario file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{origin}: {source}")]
    Read {
        /// The file.
        origin: String,
        /// The cause.
        source: io::Error,
    },
    /// The file exceeds its limit.
    #[error("{origin}: longer than {SCENARIO_FILE_BYTES_MAX} bytes")]
    TooLong {
        /// The file.
        origin: String,
    },
    /// The file is not TOML.
    #[error("{origin}:{line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// Counted from 1.
        line: usize,
        /// From the TOML parser.
        message: String,
    },
    /// The file is TOML, but not a valid scenario.
    #[error("{origin}:{line}: {position}{fault}")]
    Fault {
        /// The file.
        origin: String,
        /// Counted from 1.
        line: usize,
        /// The scenario, turn and step.
        position: ScenarioPosition,
        /// What is wrong there.
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
    /// A key that is not allowed here.
    #[error("unknown key `{key}`; expected {}", join_quoted(allowed, "or"))]
    UnknownKey {
        /// The key.
        key: String,
        /// The allowed ones.
        allowed: &'static [&'static str],
    },
    /// A required key is missing.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A step has no kind, or several.
    #[error("a step has exactly one of {}; this one has {}", join_quoted(allowed, "or"), join_quoted(found, "and"))]
    NotOneStepKey {
        /// The keys of which a step needs one.
        allowed: &'static [&'static str],
        /// The keys of this step.
        found: Vec<String>,
    },
    /// A value of the wrong type.
    #[error("`{key}` must be {wanted}, not {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The expected type.
        wanted: &'static str,
        /// The actual type or value.
        found: String,
    },
    /// An empty array or string.
    #[error("`{key}` must not be empty")]
    Empty {
        /// The key.
        key: String,
    },
    /// A number or a string beyond its limit.
    #[error("`{key}` exceeds the maximum of {max}")]
    TooLarge {
        /// The key.
        key: String,
        /// The limit.
        max: u64,
    },
    /// A string that is none of the allowed ones.
    #[error("`{key}` is `{found}`; expected {}", join_quoted(allowed, "or"))]
    UnknownValue {
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// The allowed ones.
        allowed: &'static [&'static str],
    },
    /// A regular expression that does not compile.
    #[error("`match` is not a regular expression: {message}")]
    InvalidRegex {
        /// From the compiler.
        message: String,
    },
    /// A capture with the name of a built-in placeholder.
    #[error("`match` captures `{name}`, which is reserved")]
    ReservedName {
        /// The name.
        name: String,
    },
    /// A placeholder without a value.
    #[error("`{key}` names `{name}`, which `match` does not capture")]
    UnknownPlaceholder {
        /// Where it is used.
        key: String,
        /// The name.
        name: String,
    },
    /// An unreachable step.
    #[error("nothing follows an `error`: it ends the turn")]
    StepAfterError,
    /// A turn that fails and has a stop reason.
    #[error("a turn that ends with an `error` has no `stop`")]
    StopWithError,
    /// A conditional turn without an unconditional one after it.
    #[error("a turn with `when` needs one without it after it, for when it does not hold")]
    MissingFallbackTurn,
    /// A condition without content.
    #[error("`when` is empty; expected {}", join_quoted(allowed, "and"))]
    EmptyCondition {
        /// The allowed keys.
        allowed: &'static [&'static str],
    },
    /// An unreachable scenario.
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
