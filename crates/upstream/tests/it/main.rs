//! The integration tests of `upstream`, in one binary.

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod dialect;
#[cfg(test)]
mod growing_thread;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod seed;
#[cfg(test)]
mod streams;
