//! Tests of the bounds from outside.

mod bounds;
mod cache;
mod worst_cases;
