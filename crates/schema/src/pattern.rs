//! Patterns: translated as the validator does, and measured.

use crate::error::SchemaError;
use crate::limits::{COMPILED_PATTERN_BYTES_MAX, PATTERN_BYTES_MAX};
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};

/// What a pattern costs.
#[derive(Clone, Copy)]
pub(crate) struct PatternCost {
    /// The number of states: the most steps that one byte of text can take.
    pub(crate) states: u64,
    /// The size of the compiled pattern.
    pub(crate) bytes: usize,
}

/// Compiles a pattern within the bounds.
pub(crate) fn measure_pattern(pattern: &str, at: &str) -> Result<PatternCost, SchemaError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(SchemaError::PatternTooLong { at: at.to_owned() });
    }
    let unsupported = || SchemaError::PatternNotSupported { at: at.to_owned() };
    let translated = jsonschema_regex::to_rust_regex(pattern).map_err(|()| unsupported())?;
    let config = Config::new().nfa_size_limit(Some(COMPILED_PATTERN_BYTES_MAX)).which_captures(WhichCaptures::Implicit);
    let hir = regex_syntax::parse(&translated).map_err(|_| unsupported())?;
    let nfa = Compiler::new()
        .configure(config)
        .build_from_hir(&hir)
        .map_err(|_| SchemaError::PatternTooExpensive { at: at.to_owned() })?;
    Ok(PatternCost { states: nfa.states().len() as u64, bytes: nfa.memory_usage() })
}
