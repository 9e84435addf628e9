//! The store from outside: the law on both backends, and what is SQLite's own.

#![cfg(test)]

mod damage;
mod files;
mod folder;
mod laws;
mod logged;
mod restarts;
mod writer;
