//! Tools from outside: real programs, real sockets.

#![cfg(test)]

mod builtin;
mod command;
mod ends;
mod hooks;
mod house;
mod http;
mod http_ends;
mod secrets;
mod site;
