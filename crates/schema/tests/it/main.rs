//! Tests of the bounds from outside.

#![cfg(test)]

mod bounds;
mod cache;
mod corpus;
mod worst_cases;
