//! Fetching from outside: real sockets, real bytes, and listeners that nobody may reach.

#![cfg(test)]

mod answers;
mod canary;
mod guard;
mod limits;
mod names;
mod namespace;
mod network;
mod pdf;
mod pdf_maker;
mod pdf_words;
mod random;
mod reading;
mod redirects;
mod site;
