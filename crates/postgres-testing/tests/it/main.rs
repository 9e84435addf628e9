//! The server that tests get: it answers, survives its faults, and does not outlive the process that started it.

#![cfg(test)]

mod databases;
mod faults;
mod lifetime;
mod pooler;
mod tls;
mod wait;
