//! What can be measured without a clock.

#[cfg(test)]
mod delta_cost;
