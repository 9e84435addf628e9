//! Tests of the bounds from outside.

#![cfg(test)]

mod bounds;
mod cache;
mod worst_cases;
