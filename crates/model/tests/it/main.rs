//! The integration tests of `model`, in one binary.

#[cfg(test)]
mod smoke;
