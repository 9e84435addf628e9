//! The run loop, input by input: the order of records is that of the reference sequences.

mod laws;
mod sequences;
mod sim;
