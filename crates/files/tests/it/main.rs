//! Files from outside: real folders.

#![cfg(test)]

mod depot;
mod keys;
mod kinds;
mod names;
mod pictures;
mod places;
mod seals;
