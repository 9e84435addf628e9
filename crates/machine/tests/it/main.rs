//! The run loop, input by input: the order of records is that of the reference sequences.

#![cfg(test)]

mod laws;
mod sequences;
mod sim;
