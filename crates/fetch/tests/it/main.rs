//! The fetcher over real sockets, with real bytes, and listeners that must not be reached.

#![cfg(test)]

mod canary;
mod corpus;
mod fetched_files;
mod guard;
mod guarded;
mod limits;
mod names;
mod namespace;
mod network;
mod pdf;
mod pdf_maker;
mod pdf_text;
mod random;
mod reading;
mod redirects;
mod site;
