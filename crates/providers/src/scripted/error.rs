//! Why a scenario file was refused: which file, which line, which scenario, turn and step, and what would be right.

use super::limits::SCENARIO_FILE_BYTES_MAX;
use std::fmt;
use std::io;

/// Why a scenario file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not there, or not ours to read.
    #[error("{origin}: {source}")]
    Read {
        /// The file.
        origin: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is too long to be read at all.
    #[error("{origin}: longer than {SCENARIO_FILE_BYTES_MAX} bytes")]
    TooLong {
        /// The file.
        origin: String,
    },
    /// It is not TOML.
    #[error("{origin}:{line}: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// It is TOML, but not a scenario.
    #[error("{origin}:{line}: {place}{fault}")]
    Fault {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// Where in the play.
        place: ScenarioPosition,
        /// What is wrong there.
        fault: ScenarioFault,
    },
}

/// Where in the play, each number from 1 and 0 for "not in one".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioPosition {
    /// Which scenario of the file.
    pub scenario: usize,
    /// Which turn of the scenario.
    pub turn: usize,
    /// Which step of the turn.
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
    /// A key that has no meaning here.
    #[error("`{key}` has no place here; there may be {}", join_quoted(allowed, "or"))]
    UnknownKey {
        /// The key.
        key: String,
        /// Those that have.
        allowed: &'static [&'static str],
    },
    /// A key that must be there.
    #[error("`{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A step that does nothing, or two things.
    #[error("a step has exactly one of {}; this one has {}", join_quoted(allowed, "or"), join_quoted(found, "and"))]
    NotOneStepKey {
        /// The keys that a step is told by.
        allowed: &'static [&'static str],
        /// Those that are there.
        found: Vec<String>,
    },
    /// A value of the wrong kind.
    #[error("`{key}` must be {wanted}, not {found}")]
    WrongType {
        /// The key.
        key: String,
        /// What would be right.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// A list or a text with nothing in it.
    #[error("`{key}` must not be empty")]
    Empty {
        /// The key.
        key: String,
    },
    /// A number or a text beyond its bound.
    #[error("`{key}` is more than {max}, which is the most")]
    TooLarge {
        /// The key.
        key: String,
        /// The bound.
        max: u64,
    },
    /// A word that is none of those that have a meaning.
    #[error("`{key}` is `{found}`; it may be {}", join_quoted(allowed, "or"))]
    UnknownValue {
        /// The key.
        key: &'static str,
        /// The word.
        found: String,
        /// Those that have.
        allowed: &'static [&'static str],
    },
    /// An expression that does not compile.
    #[error("`match` is not a regular expression: {message}")]
    InvalidRegex {
        /// What the compiler says.
        message: String,
    },
    /// A capture with the name of something else.
    #[error("`match` captures `{name}`, which already means something")]
    ReservedName {
        /// The name.
        name: String,
    },
    /// A placeholder that nothing gives a value.
    #[error("`{key}` names `{name}`, which `match` does not capture")]
    UnknownPlaceholder {
        /// Where it is named.
        key: String,
        /// The name.
        name: String,
    },
    /// A step that can never be reached.
    #[error("nothing follows an `error`: it ends the turn")]
    StepAfterError,
    /// A turn that both fails and ends.
    #[error("a turn that ends with an `error` has no `stop`")]
    StopWithError,
    /// A turn for a case, and none for the others.
    #[error("a turn with `when` needs one without it after it, for when it does not hold")]
    MissingFallbackTurn,
    /// A turn for no case.
    #[error("`when` says nothing; there may be {}", join_quoted(allowed, "and"))]
    EmptyCondition {
        /// What it may say.
        allowed: &'static [&'static str],
    },
    /// A scenario that can never be reached.
    #[error("never played: scenario {by} has no `match`, so it always comes first")]
    Shadowed {
        /// The scenario that always matches.
        by: usize,
    },
}

/// Names for people: `a`, `b` or `c`.
fn join_quoted(names: &[impl AsRef<str>], word: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} {word} {last}", rest.join(", ")),
    }
}
