//! A rule on a call's arguments that decides whether a person must approve the call.
//!
//! ```text
//! quantity > 100 and symbol != "VNM"
//! not (side in ["buy", 'sell']) or exists order.limits[0]
//! tags contains "urgent"
//! ```
//!
//! A comparison has an argument's path on its left (`args.` or `arguments.` may stand before it) and a literal on its
//! right. `not` binds more tightly than `and`, `and` more tightly than `or`.
//!
//! A rule guards something, so a rule that cannot be evaluated requires approval. A comparison with a missing path or
//! with a value of another type is unknown: neither true nor false. It stays unknown through `not`, `and` and `or`,
//! unless the other operand decides the result. Only `exists` is false for a missing path.

mod parser;

use crate::json::ExactValue;
use crate::limits::{RULE_BYTES_MAX, RULE_DEPTH_MAX};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// A rule on a call's arguments, such as `quantity > 100 and symbol != "VNM"`. Serialised as its source text.
#[derive(Clone, Debug)]
pub struct ApprovalRule {
    text: String,
    expr: Expr,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRuleError {
    #[error("a rule has at most {RULE_BYTES_MAX} bytes")]
    TooLong,
    #[error("column {column}: brackets and `not` go at most {RULE_DEPTH_MAX} deep")]
    TooDeep {
        /// In characters, counted from 1.
        column: usize,
    },
    #[error("column {column}: expected {expected}, found {found}")]
    Expected {
        /// In characters, counted from 1.
        column: usize,
        expected: &'static str,
        found: String,
    },
}

#[derive(Clone, Debug)]
enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    Exists(ArgumentPath),
    Compare(ArgumentPath, Op, ExactValue),
    In(ArgumentPath, Vec<ExactValue>),
    Contains(ArgumentPath, ExactValue),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The path of an argument.
#[derive(Clone, Debug)]
struct ArgumentPath(Vec<PathSegment>);

#[derive(Clone, Debug)]
enum PathSegment {
    Key(String),
    Index(usize),
}

enum PathLookup<'a> {
    Found(&'a ExactValue),
    /// The key is absent from an existing object or array.
    Missing,
    /// The path leads into a scalar.
    NotTraversable,
}

/// True, false, or unknown.
type Tristate = Option<bool>;

impl ApprovalRule {
    pub fn parse(text: &str) -> Result<Self, ApprovalRuleError> {
        Ok(Self { text: text.to_owned(), expr: parser::parse_rule(text)? })
    }

    /// Whether a person must approve a call with these arguments. An unknown result counts as yes.
    #[must_use]
    pub fn requires_approval(&self, arguments: &ExactValue) -> bool {
        !arguments.is_object() || self.expr.evaluate(arguments).unwrap_or(true)
    }

    /// The names of the arguments that the rule reads, with repetitions.
    pub fn argument_names(&self) -> impl Iterator<Item = &str> {
        let mut paths = Vec::new();
        self.expr.collect_paths(&mut paths);
        paths.into_iter().filter_map(|path| match path.0.first() {
            Some(PathSegment::Key(name)) => Some(name.as_str()),
            Some(PathSegment::Index(_)) | None => None,
        })
    }
}

impl Expr {
    fn evaluate(&self, arguments: &ExactValue) -> Tristate {
        match self {
            // `all(x)` is `not any(not x)`.
            Self::All(parts) => any_true(parts.iter().map(|part| negate(part.evaluate(arguments)))).map(|none| !none),
            Self::Any(parts) => any_true(parts.iter().map(|part| part.evaluate(arguments))),
            Self::Not(part) => negate(part.evaluate(arguments)),
            Self::Exists(path) => match path.lookup(arguments) {
                PathLookup::Found(_) => Some(true),
                PathLookup::Missing => Some(false),
                PathLookup::NotTraversable => None,
            },
            Self::Compare(path, op, literal) => {
                path.lookup_value(arguments).and_then(|value| op.evaluate(value, literal))
            }
            Self::In(path, literals) => {
                let value = path.lookup_value(arguments)?;
                any_true(literals.iter().map(|literal| values_equal(value, literal)))
            }
            Self::Contains(path, literal) => match (path.lookup_value(arguments)?, literal) {
                (ExactValue::String(text), ExactValue::String(part)) => Some(text.contains(part.as_str())),
                (ExactValue::Array(list), literal) => any_true(list.iter().map(|value| values_equal(value, literal))),
                _ => None,
            },
        }
    }

    fn collect_paths<'a>(&'a self, out: &mut Vec<&'a ArgumentPath>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.collect_paths(out)),
            Self::Not(part) => part.collect_paths(out),
            Self::Exists(path) | Self::Compare(path, ..) | Self::In(path, _) | Self::Contains(path, _) => {
                out.push(path);
            }
        }
    }
}

impl Op {
    fn evaluate(self, value: &ExactValue, literal: &ExactValue) -> Tristate {
        match self {
            Self::Equal => values_equal(value, literal),
            Self::NotEqual => negate(values_equal(value, literal)),
            Self::Less => compare_values(value, literal).map(Ordering::is_lt),
            Self::LessOrEqual => compare_values(value, literal).map(Ordering::is_le),
            Self::Greater => compare_values(value, literal).map(Ordering::is_gt),
            Self::GreaterOrEqual => compare_values(value, literal).map(Ordering::is_ge),
        }
    }
}

impl ArgumentPath {
    fn lookup<'a>(&self, arguments: &'a ExactValue) -> PathLookup<'a> {
        let mut here = arguments;
        for step in &self.0 {
            let next = match (step, here) {
                (PathSegment::Key(key), ExactValue::Object(members)) => members.get(key),
                (PathSegment::Index(index), ExactValue::Array(list)) => list.get(*index),
                _ => return PathLookup::NotTraversable,
            };
            let Some(next) = next else { return PathLookup::Missing };
            here = next;
        }
        PathLookup::Found(here)
    }

    fn lookup_value<'a>(&self, arguments: &'a ExactValue) -> Option<&'a ExactValue> {
        match self.lookup(arguments) {
            PathLookup::Found(value) => Some(value),
            PathLookup::Missing | PathLookup::NotTraversable => None,
        }
    }
}

fn negate(truth: Tristate) -> Tristate {
    truth.map(|truth| !truth)
}

/// True if any is true; otherwise unknown if any is unknown; otherwise false.
fn any_true(truths: impl Iterator<Item = Tristate>) -> Tristate {
    let mut sum = Some(false);
    for truth in truths {
        match truth {
            Some(true) => return truth,
            Some(false) => {}
            None => sum = None,
        }
    }
    sum
}

fn values_equal(value: &ExactValue, literal: &ExactValue) -> Tristate {
    match (value, literal) {
        (value, ExactValue::Null) => Some(value.is_null()),
        (ExactValue::Bool(value), ExactValue::Bool(literal)) => Some(value == literal),
        (value, literal) => compare_values(value, literal).map(Ordering::is_eq),
    }
}

fn compare_values(value: &ExactValue, literal: &ExactValue) -> Option<Ordering> {
    match (value, literal) {
        (ExactValue::Number(value), ExactValue::Number(literal)) => Some(value.compare(literal)),
        (ExactValue::String(value), ExactValue::String(literal)) => Some(value.cmp(literal)),
        _ => None,
    }
}

/// Rules are equal if their source texts are.
impl PartialEq for ApprovalRule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ApprovalRule {}

impl fmt::Display for ApprovalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ApprovalRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ApprovalRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
