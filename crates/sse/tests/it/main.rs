//! The integration tests of `sse`, in one binary.

#[cfg(test)]
mod codec;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod seed;
