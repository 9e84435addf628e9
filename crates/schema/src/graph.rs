//! A schema as a graph of subschemas: which of them apply to the same value, which to the values inside it.
//!
//! Keywords of all drafts are read. A keyword that this draft ignores makes the count too high, never too low.

use crate::error::SchemaError;
use crate::limits::{
    COMPILED_PATTERNS_BYTES_MAX, EXPANDED_SUBSCHEMAS_MAX, IN_PLACE_DEPTH_MAX, PATTERNS_MAX, REFERENCE_HEIGHT_MAX,
    REFERENCES_MAX, SCHEMA_DEPTH_MAX,
};
use crate::pattern::measure_pattern;
use crate::reference::{References, join_pointer};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Text that is compared byte by byte counts as one keyword per this many bytes.
pub(crate) const BYTES_PER_WORK: usize = 64;
/// `unevaluatedProperties` and `unevaluatedItems` evaluate the subschemas beside them again to learn what they saw.
pub(crate) const UNEVALUATED_FACTOR: u64 = 4;

pub(crate) type NodeId = usize;

/// One subschema.
#[derive(Default)]
pub(crate) struct Node {
    /// What it costs by itself.
    pub(crate) weight: u64,
    /// Subschemas that apply to the same value.
    pub(crate) in_place: Vec<NodeId>,
    pub(crate) properties: HashMap<String, NodeId>,
    /// The states of each pattern, and what applies to the properties that it matches.
    pub(crate) pattern_properties: Vec<(u64, NodeId)>,
    pub(crate) additional_properties: Vec<NodeId>,
    pub(crate) property_names: Option<NodeId>,
    pub(crate) prefix_items: Vec<NodeId>,
    /// What applies to the other items, or may apply to any.
    pub(crate) items: Vec<NodeId>,
    /// The states of `pattern`.
    pub(crate) pattern_states: u64,
    pub(crate) reads_text: bool,
    pub(crate) unique_items: bool,
    pub(crate) unevaluated: bool,
    at: String,
}

pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// The size of all compiled patterns.
    pub(crate) pattern_bytes: usize,
}

impl Graph {
    pub(crate) const ROOT: NodeId = 0;

    /// Reads a schema, and refuses it where it exceeds the bounds.
    pub(crate) fn read(root: &Value) -> Result<Self, SchemaError> {
        check_depth(root)?;
        let references = References::collect(root)?;
        let mut reader = GraphReader {
            references,
            nodes: Vec::new(),
            ids: HashMap::new(),
            waiting: Vec::new(),
            pattern_count: 0,
            pattern_bytes: 0,
            reference_count: 0,
            reference_height: 0,
        };
        reader.node_of(root, String::new());
        while let Some((value, id, at)) = reader.waiting.pop() {
            let node = reader.read_node(value, at)?;
            if let Some(slot) = reader.nodes.get_mut(id) {
                *slot = node;
            }
        }
        let graph = Self { nodes: reader.nodes, pattern_bytes: reader.pattern_bytes };
        graph.check_expansion()?;
        Ok(graph)
    }

    /// Expands in place, from every subschema: recursion must consume a value, and expansion must stay small.
    fn check_expansion(&self) -> Result<(), SchemaError> {
        let mut sizes = vec![Expansion::Unknown; self.nodes.len()];
        for id in 0..self.nodes.len() {
            self.expand(id, 0, &mut sizes)?;
        }
        Ok(())
    }

    fn expand(&self, id: NodeId, depth: usize, sizes: &mut Vec<Expansion>) -> Result<(u64, usize), SchemaError> {
        let Some(node) = self.nodes.get(id) else { return Ok((0, 0)) };
        match sizes.get(id) {
            Some(Expansion::Known(size, height)) => return Ok((*size, *height)),
            Some(Expansion::Open) => return Err(SchemaError::Endless { at: node.at.clone() }),
            Some(Expansion::Unknown) | None => {}
        }
        if depth > IN_PLACE_DEPTH_MAX {
            return Err(SchemaError::NestsTooFar { at: node.at.clone() });
        }
        set(sizes, id, Expansion::Open);
        let (mut size, mut height) = (0_u64, 0);
        for child in &node.in_place {
            let (child_size, child_height) = self.expand(*child, depth + 1, sizes)?;
            size = size.saturating_add(child_size);
            height = height.max(child_height + 1);
        }
        let factor = if node.unevaluated { UNEVALUATED_FACTOR } else { 1 };
        let size = size.saturating_mul(factor).saturating_add(1);
        if size > EXPANDED_SUBSCHEMAS_MAX {
            return Err(SchemaError::ExpandsTooFar { at: node.at.clone() });
        }
        if height > IN_PLACE_DEPTH_MAX {
            return Err(SchemaError::NestsTooFar { at: node.at.clone() });
        }
        set(sizes, id, Expansion::Known(size, height));
        Ok((size, height))
    }
}

/// The expansion of a subschema: how many subschemas, and how deep.
#[derive(Clone, Copy)]
enum Expansion {
    Unknown,
    Open,
    Known(u64, usize),
}

fn set(sizes: &mut [Expansion], id: NodeId, size: Expansion) {
    if let Some(slot) = sizes.get_mut(id) {
        *slot = size;
    }
}

struct GraphReader<'a> {
    references: References<'a>,
    nodes: Vec<Node>,
    /// By address: a subschema that several references reach is one node.
    ids: HashMap<*const Value, NodeId>,
    waiting: Vec<(&'a Value, NodeId, String)>,
    pattern_count: usize,
    pattern_bytes: usize,
    reference_count: usize,
    reference_height: usize,
}

impl<'a> GraphReader<'a> {
    fn node_of(&mut self, value: &'a Value, at: String) -> NodeId {
        let next = self.nodes.len();
        let id = *self.ids.entry(std::ptr::from_ref(value)).or_insert(next);
        if id == next {
            self.nodes.push(Node::default());
            self.waiting.push((value, id, at));
        }
        id
    }

    fn read_node(&mut self, value: &'a Value, at: String) -> Result<Node, SchemaError> {
        let mut node = Node { weight: 1, at, ..Node::default() };
        let Value::Object(members) = value else { return Ok(node) };
        for (keyword, value) in members {
            node.weight += 1;
            let at = join_pointer(&node.at, keyword);
            self.read_keyword(&mut node, keyword, value, at)?;
        }
        Ok(node)
    }

    fn read_keyword(
        &mut self,
        node: &mut Node,
        keyword: &str,
        value: &'a Value,
        at: String,
    ) -> Result<(), SchemaError> {
        match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                let target = self.follow_reference(reference, &at)?;
                node.in_place.push(target);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                node.in_place.extend(self.list_nodes(list, &at));
            }
            ("not" | "if" | "then" | "else", value) => node.in_place.push(self.node_of(value, at)),
            ("dependentSchemas" | "dependencies", Value::Object(members)) => {
                let schemas = members.iter().filter(|(_, value)| !value.is_array());
                let schemas = schemas.map(|(name, value)| self.node_of(value, join_pointer(&at, name)));
                node.in_place.extend(schemas.collect::<Vec<_>>());
                node.weight += count_values(value);
            }
            ("properties", Value::Object(members)) => {
                let properties = members.iter();
                node.properties = properties
                    .map(|(name, value)| (name.clone(), self.node_of(value, join_pointer(&at, name))))
                    .collect();
            }
            ("patternProperties", Value::Object(members)) => {
                for (pattern, value) in members {
                    let at = join_pointer(&at, pattern);
                    let states = self.read_pattern(pattern, &at)?;
                    node.pattern_properties.push((states, self.node_of(value, at)));
                }
            }
            ("additionalProperties" | "unevaluatedProperties", value) => {
                node.unevaluated |= keyword == "unevaluatedProperties";
                node.additional_properties.push(self.node_of(value, at));
            }
            ("propertyNames", value) => node.property_names = Some(self.node_of(value, at)),
            ("prefixItems" | "items", Value::Array(list)) => node.prefix_items = self.list_nodes(list, &at),
            ("items" | "additionalItems" | "contains" | "unevaluatedItems", value) => {
                node.unevaluated |= keyword == "unevaluatedItems";
                node.items.push(self.node_of(value, at));
            }
            ("pattern", Value::String(pattern)) => node.pattern_states = self.read_pattern(pattern, &at)?,
            ("minLength" | "maxLength" | "contentEncoding" | "contentMediaType" | "enum" | "const", value) => {
                node.reads_text = true;
                node.weight += count_values(value);
            }
            ("required" | "dependentRequired", value) => node.weight += count_values(value),
            ("uniqueItems", value) => node.unique_items = *value == Value::Bool(true),
            _ => {}
        }
        Ok(())
    }

    fn list_nodes(&mut self, list: &'a [Value], at: &str) -> Vec<NodeId> {
        list.iter().enumerate().map(|(index, value)| self.node_of(value, format!("{at}/{index}"))).collect()
    }

    fn read_pattern(&mut self, pattern: &str, at: &str) -> Result<u64, SchemaError> {
        self.pattern_count += 1;
        if self.pattern_count > PATTERNS_MAX {
            return Err(SchemaError::TooManyPatterns);
        }
        let cost = measure_pattern(pattern, at)?;
        self.pattern_bytes += cost.bytes;
        if self.pattern_bytes > COMPILED_PATTERNS_BYTES_MAX {
            return Err(SchemaError::PatternsTooExpensive);
        }
        Ok(cost.states)
    }

    fn follow_reference(&mut self, reference: &str, at: &str) -> Result<NodeId, SchemaError> {
        self.reference_count += 1;
        if self.reference_count > REFERENCES_MAX {
            return Err(SchemaError::TooManyReferences);
        }
        let (target, place) = self.references.resolve(reference, at)?;
        if !self.ids.contains_key(&std::ptr::from_ref(target)) {
            self.reference_height += height(target);
            if self.reference_height > REFERENCE_HEIGHT_MAX {
                return Err(SchemaError::ReferencesTooHigh { height: self.reference_height });
            }
        }
        Ok(self.node_of(target, place))
    }
}

/// Bounds the nesting before anything recurses.
fn check_depth(root: &Value) -> Result<(), SchemaError> {
    let mut waiting = vec![(root, 0, String::new())];
    while let Some((value, depth, at)) = waiting.pop() {
        if depth > SCHEMA_DEPTH_MAX {
            return Err(SchemaError::TooDeep { at });
        }
        match value {
            Value::Object(members) => {
                waiting.extend(members.iter().map(|(name, value)| (value, depth + 1, join_pointer(&at, name))));
            }
            Value::Array(list) => {
                waiting
                    .extend(list.iter().enumerate().map(|(index, value)| (value, depth + 1, format!("{at}/{index}"))));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// The nesting of a value whose depth is bounded.
fn height(value: &Value) -> usize {
    let members: &mut dyn Iterator<Item = &Value> = match value {
        Value::Object(members) => &mut Map::values(members),
        Value::Array(list) => &mut list.iter(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 1,
    };
    members.map(height).max().unwrap_or_default() + 1
}

/// The number of values that a comparison with a value may touch.
pub(crate) fn count_values(value: &Value) -> u64 {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| text_work(name) + count_values(value)).sum::<u64>() + 1
        }
        Value::Array(list) => list.iter().map(count_values).sum::<u64>() + 1,
        Value::String(text) => text_work(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

pub(crate) fn text_work(text: &str) -> u64 {
    (text.len() / BYTES_PER_WORK + 1) as u64
}
