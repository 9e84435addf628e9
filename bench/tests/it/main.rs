//! What can be measured without a clock.

#[cfg(test)]
mod delta_cost;
#[cfg(test)]
mod turn_cost;
