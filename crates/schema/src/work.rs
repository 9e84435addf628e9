//! Counts the work that arguments cause, before it is done.
//!
//! The count takes the same paths as the validator and never leaves one out, so it is an upper bound; and it stops at
//! the limit, so it costs no more than what it allows.

use crate::graph::{Graph, Node, NodeId, UNEVALUATED_FACTOR, count_values, text_work};
use crate::limits::{EVALUATION_DEPTH_MAX, PATTERN_STEPS_MAX, WORK_MAX};
use serde_json::Value;

/// Arguments cause more work than is allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WorkExceeded;

/// What a subschema applies to: a value, or the name of a property.
#[derive(Clone, Copy)]
enum Instance<'a> {
    Value(&'a Value),
    Name(&'a str),
}

struct WorkCounter<'a> {
    graph: &'a Graph,
    work: u64,
    pattern_steps: u64,
}

/// The number of keywords that are evaluated when `graph` is applied to `value`.
pub(crate) fn count_work(graph: &Graph, value: &Value) -> Result<u64, WorkExceeded> {
    let mut counter = WorkCounter { graph, work: 0, pattern_steps: 0 };
    counter.apply(Graph::ROOT, Instance::Value(value), 0, 1)?;
    Ok(counter.work)
}

impl WorkCounter<'_> {
    /// Counts one subschema; `times` is how often the validator evaluates it.
    fn apply(&mut self, id: NodeId, instance: Instance<'_>, depth: usize, times: u64) -> Result<(), WorkExceeded> {
        let graph = self.graph;
        let Some(node) = graph.nodes.get(id) else { return Ok(()) };
        if depth > EVALUATION_DEPTH_MAX {
            return Err(WorkExceeded);
        }
        self.add_work(node.weight.saturating_mul(times))?;
        let in_place_times = if node.unevaluated { times.saturating_mul(UNEVALUATED_FACTOR) } else { times };
        for child in &node.in_place {
            self.apply(*child, instance, depth + 1, in_place_times)?;
        }
        match instance {
            Instance::Name(text) => self.apply_to_text(node, text, times),
            Instance::Value(Value::String(text)) => self.apply_to_text(node, text, times),
            Instance::Value(Value::Object(members)) => {
                for (name, value) in members {
                    self.apply_to_property(node, name, value, depth, times)?;
                }
                Ok(())
            }
            Instance::Value(Value::Array(list)) => self.apply_to_items(node, list, depth, times),
            Instance::Value(Value::Null | Value::Bool(_) | Value::Number(_)) => Ok(()),
        }
    }

    fn apply_to_text(&mut self, node: &Node, text: &str, times: u64) -> Result<(), WorkExceeded> {
        if node.reads_text {
            self.add_work(text_work(text).saturating_mul(times))?;
        }
        self.add_pattern_steps(node.pattern_states, text, times)
    }

    fn apply_to_property(
        &mut self,
        node: &Node,
        name: &str,
        value: &Value,
        depth: usize,
        times: u64,
    ) -> Result<(), WorkExceeded> {
        self.add_work(times)?;
        if let Some(id) = node.property_names {
            self.apply(id, Instance::Name(name), depth + 1, times)?;
        }
        for (states, id) in &node.pattern_properties {
            self.add_pattern_steps(*states, name, times)?;
            self.apply(*id, Instance::Value(value), depth + 1, times)?;
        }
        let declared = node.properties.get(name).copied();
        let others = node.additional_properties.iter().copied().filter(|_| declared.is_none() || node.unevaluated);
        for id in declared.into_iter().chain(others) {
            self.apply(id, Instance::Value(value), depth + 1, times)?;
        }
        Ok(())
    }

    fn apply_to_items(&mut self, node: &Node, list: &[Value], depth: usize, times: u64) -> Result<(), WorkExceeded> {
        if node.unique_items {
            // Few items are compared pairwise, many are hashed.
            for item in list {
                self.add_work(count_values(item).saturating_mul(16).saturating_mul(times))?;
            }
        }
        for (index, item) in list.iter().enumerate() {
            self.add_work(times)?;
            for id in node.prefix_items.get(index).into_iter().chain(&node.items) {
                self.apply(*id, Instance::Value(item), depth + 1, times)?;
            }
        }
        Ok(())
    }

    fn add_work(&mut self, work: u64) -> Result<(), WorkExceeded> {
        self.work = self.work.saturating_add(work);
        if self.work > WORK_MAX { Err(WorkExceeded) } else { Ok(()) }
    }

    fn add_pattern_steps(&mut self, states: u64, text: &str, times: u64) -> Result<(), WorkExceeded> {
        let steps = states.saturating_mul(text.len() as u64).saturating_mul(times);
        self.pattern_steps = self.pattern_steps.saturating_add(steps);
        if self.pattern_steps > PATTERN_STEPS_MAX { Err(WorkExceeded) } else { Ok(()) }
    }
}
