//! Compiled schemas, each compiled once.

use crate::error::{ArgumentsError, SchemaError};
use crate::tool_schema::ToolSchema;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory of all cached schemas.
const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of cached schemas. Refused ones count: they need not be read again to be refused again.
const CACHE_SCHEMAS_MAX: usize = 512;
/// The number of remembered pairs of schema and arguments that match.
const ACCEPTED_MAX: usize = 1024;

type TextDigest = [u8; 32];

/// Compiles schemas and keeps the latest. Clones share them. Whether something is cached changes the time that an answer
/// takes and nothing else.
#[derive(Clone, Default)]
pub struct SchemaCache(Arc<Mutex<CacheState>>);

#[derive(Default)]
struct CacheState {
    schemas: HashMap<TextDigest, Result<Arc<ToolSchema>, SchemaError>>,
    /// In the order in which they are dropped.
    oldest: VecDeque<TextDigest>,
    bytes: usize,
    accepted: VecDeque<TextDigest>,
}

impl SchemaCache {
    /// Compiles a schema, or finds it.
    ///
    /// # Errors
    /// As [`ToolSchema::compile`].
    pub fn compile(&self, schema: &Value) -> Result<Arc<ToolSchema>, SchemaError> {
        self.compile_digested(schema, digest_value(schema))
    }

    /// Validates arguments against a schema. The same pair is validated once.
    ///
    /// # Errors
    /// When the schema is refused, or the arguments are.
    pub fn validate(&self, schema: &Value, arguments: &Value) -> Result<(), ArgumentsError> {
        let digest = digest_value(schema);
        let pair: TextDigest =
            Sha256::new().chain_update(digest).chain_update(digest_value(arguments)).finalize().into();
        if self.lock().accepted.contains(&pair) {
            return Ok(());
        }
        self.compile_digested(schema, digest)?.validate(arguments)?;
        let mut state = self.lock();
        if state.accepted.len() >= ACCEPTED_MAX {
            state.accepted.pop_front();
        }
        state.accepted.push_back(pair);
        Ok(())
    }

    fn compile_digested(&self, schema: &Value, digest: TextDigest) -> Result<Arc<ToolSchema>, SchemaError> {
        if let Some(known) = self.lock().schemas.get(&digest) {
            return known.clone();
        }
        // Without the lock: others may find theirs meanwhile.
        let compiled = ToolSchema::compile(schema).map(Arc::new);
        self.lock().insert(digest, compiled.clone());
        compiled
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn insert(&mut self, digest: TextDigest, compiled: Result<Arc<ToolSchema>, SchemaError>) {
        self.bytes += size_bytes(&compiled);
        match self.schemas.insert(digest, compiled) {
            Some(same) => self.bytes = self.bytes.saturating_sub(size_bytes(&same)),
            None => self.oldest.push_back(digest),
        }
        while self.bytes > CACHE_BYTES_MAX || self.oldest.len() > CACHE_SCHEMAS_MAX {
            let Some(dropped) = self.oldest.pop_front().and_then(|digest| self.schemas.remove(&digest)) else { return };
            self.bytes = self.bytes.saturating_sub(size_bytes(&dropped));
        }
    }
}

impl fmt::Debug for SchemaCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaCache").field("schemas", &self.lock().schemas.len()).finish()
    }
}

fn size_bytes(compiled: &Result<Arc<ToolSchema>, SchemaError>) -> usize {
    compiled.as_ref().map_or(0, |schema| schema.size_bytes())
}

/// The digest of a value's text, which is not kept.
fn digest_value(value: &Value) -> TextDigest {
    Sha256::digest(value.to_string()).into()
}
