//! An archive in memory that fails on request.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use model::ports::{ArchiveError, BoxStream, RecordArchive};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Called with the name of an object before or after an operation; an error is that of the operation.
type Hook = Arc<dyn Fn(&str) -> Result<(), ArchiveError> + Send + Sync>;

#[derive(Default)]
pub(crate) struct MemoryArchive {
    objects: Mutex<BTreeMap<String, Bytes>>,
    hooks: Mutex<Hooks>,
    puts: Mutex<usize>,
    gets: Mutex<usize>,
}

#[derive(Clone, Default)]
struct Hooks {
    before_put: Option<Hook>,
    after_put: Option<Hook>,
    before_get: Option<Hook>,
    before_delete: Option<Hook>,
    /// A put never returns after it has stored the object.
    hangs: bool,
}

impl fmt::Debug for MemoryArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryArchive")
    }
}

pub(crate) fn unavailable() -> Result<(), ArchiveError> {
    Err(ArchiveError::Unavailable("gone fishing".to_owned()))
}

impl MemoryArchive {
    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn puts(&self) -> usize {
        *self.puts.lock().unwrap()
    }

    pub(crate) fn gets(&self) -> usize {
        *self.gets.lock().unwrap()
    }

    /// Changes or removes an object.
    pub(crate) fn tamper(&self, name: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
        let mut objects = self.objects.lock().unwrap();
        let object = objects.remove(name).expect("an object");
        if let Some(changed) = change(object.to_vec()) {
            objects.insert(name.to_owned(), changed.into());
        }
    }

    pub(crate) fn insert(&self, name: &str) {
        self.objects.lock().unwrap().insert(name.to_owned(), Bytes::from_static(b"foreign"));
    }

    pub(crate) fn before_put(&self, hook: impl Fn(&str) -> Result<(), ArchiveError> + Send + Sync + 'static) {
        self.hooks.lock().unwrap().before_put = Some(Arc::new(hook));
    }

    pub(crate) fn after_put(&self, hook: impl Fn(&str) -> Result<(), ArchiveError> + Send + Sync + 'static) {
        self.hooks.lock().unwrap().after_put = Some(Arc::new(hook));
    }

    pub(crate) fn before_get(&self, hook: impl Fn(&str) -> Result<(), ArchiveError> + Send + Sync + 'static) {
        self.hooks.lock().unwrap().before_get = Some(Arc::new(hook));
    }

    pub(crate) fn before_delete(&self, hook: impl Fn(&str) -> Result<(), ArchiveError> + Send + Sync + 'static) {
        self.hooks.lock().unwrap().before_delete = Some(Arc::new(hook));
    }

    pub(crate) fn hang_after_put(&self) {
        self.hooks.lock().unwrap().hangs = true;
    }

    /// All operations fail.
    pub(crate) fn fail(&self) {
        self.before_put(|_| unavailable());
        self.before_get(|_| unavailable());
        self.before_delete(|_| unavailable());
    }

    /// No operation fails any more.
    pub(crate) fn heal(&self) {
        *self.hooks.lock().unwrap() = Hooks::default();
    }

    /// Hooks may run statements, on a thread of their own.
    async fn call(&self, pick: impl FnOnce(&Hooks) -> Option<Hook>, name: &str) -> Result<(), ArchiveError> {
        let hook = pick(&self.hooks.lock().unwrap());
        let (Some(hook), name) = (hook, name.to_owned()) else { return Ok(()) };
        tokio::task::spawn_blocking(move || hook(&name)).await.unwrap()
    }
}

#[async_trait]
impl RecordArchive for MemoryArchive {
    async fn put(&self, name: &str, object: Bytes) -> Result<(), ArchiveError> {
        self.call(|hooks| hooks.before_put.clone(), name).await?;
        *self.puts.lock().unwrap() += 1;
        let replaced = self.objects.lock().unwrap().insert(name.to_owned(), object);
        assert!(replaced.is_none(), "{name} was used before");
        if self.hooks.lock().unwrap().hangs {
            std::future::pending::<()>().await;
        }
        self.call(|hooks| hooks.after_put.clone(), name).await
    }

    async fn get(&self, name: &str, bytes_max: usize) -> Result<Bytes, ArchiveError> {
        self.call(|hooks| hooks.before_get.clone(), name).await?;
        *self.gets.lock().unwrap() += 1;
        let object = self.objects.lock().unwrap().get(name).cloned().ok_or(ArchiveError::NotFound)?;
        if object.len() > bytes_max { Err(ArchiveError::TooLarge) } else { Ok(object) }
    }

    async fn delete(&self, name: &str) -> Result<(), ArchiveError> {
        self.call(|hooks| hooks.before_delete.clone(), name).await?;
        self.objects.lock().unwrap().remove(name);
        Ok(())
    }

    fn list(&self) -> BoxStream<'_, Result<String, ArchiveError>> {
        Box::pin(stream::iter(self.names().into_iter().map(Ok)))
    }
}
