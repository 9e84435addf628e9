//! Unpacked segments in memory, so that reading one page by page does not fetch it for every page. The least recently used
//! ones make room.

use crate::block_coding::measure_record;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What an entry takes besides its bytes, approximately.
const ENTRY_OVERHEAD_BYTES: usize = 256;

/// The unpacked bytes of a segment.
#[derive(Debug)]
pub(super) struct UnpackedSegment {
    pub(super) raw: Bytes,
    /// Where each record begins, up to the first that is not whole.
    pub(super) offsets: Vec<u32>,
}

impl UnpackedSegment {
    pub(super) fn new(raw: Bytes, records: u64) -> Self {
        let (mut offsets, mut offset) = (Vec::new(), 0_usize);
        while (offsets.len() as u64) < records
            && let (Some(bytes), Ok(start)) = (raw.get(offset..).and_then(measure_record), u32::try_from(offset))
        {
            offsets.push(start);
            offset += bytes;
        }
        Self { raw, offsets }
    }

    fn size_bytes(&self) -> usize {
        self.raw.len() + self.offsets.len() * size_of::<u32>() + ENTRY_OVERHEAD_BYTES
    }
}

#[derive(Debug)]
pub(super) struct SegmentCache {
    bytes_max: usize,
    bytes: usize,
    uses: u64,
    /// By object, with the number of the last use.
    entries: HashMap<String, (u64, Arc<UnpackedSegment>)>,
    by_use: BTreeMap<u64, String>,
}

impl SegmentCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, uses: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    pub(super) fn get(&mut self, object: &str) -> Option<Arc<UnpackedSegment>> {
        let (used, segment) = self.entries.get_mut(object)?;
        self.uses += 1;
        if let Some(name) = self.by_use.remove(used) {
            self.by_use.insert(self.uses, name);
        }
        *used = self.uses;
        Some(Arc::clone(segment))
    }

    /// Adds a segment, unless it is larger than the whole cache.
    pub(super) fn insert(&mut self, object: &str, segment: Arc<UnpackedSegment>) {
        let bytes = segment.size_bytes();
        if bytes > self.bytes_max {
            return;
        }
        self.remove(object);
        while self.bytes + bytes > self.bytes_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.bytes -= self.entries.remove(&oldest).map_or(0, |(_, segment)| segment.size_bytes());
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, object.to_owned());
        self.entries.insert(object.to_owned(), (self.uses, segment));
    }

    pub(super) fn remove(&mut self, object: &str) {
        if let Some((used, segment)) = self.entries.remove(object) {
            self.by_use.remove(&used);
            self.bytes -= segment.size_bytes();
        }
    }

    /// Removes the segments whose objects' names begin with this.
    pub(super) fn remove_prefix(&mut self, prefix: &str) {
        let names: Vec<String> = self.entries.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        names.iter().for_each(|name| self.remove(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(bytes: usize) -> Arc<UnpackedSegment> {
        Arc::new(UnpackedSegment { raw: Bytes::from(vec![0; bytes - ENTRY_OVERHEAD_BYTES]), offsets: Vec::new() })
    }

    fn names(cache: &SegmentCache) -> Vec<&str> {
        let mut names: Vec<&str> = cache.entries.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_least_recently_used_make_room() {
        let mut cache = SegmentCache::new(3_000);
        for name in ["1/a", "1/b", "2/c"] {
            cache.insert(name, segment(1_000));
        }
        assert!(cache.get("1/a").is_some());
        cache.insert("2/d", segment(1_500));
        assert_eq!(names(&cache), ["1/a", "2/d"]);
        cache.insert("2/d", segment(500));
        assert_eq!((cache.bytes, names(&cache)), (1_500, vec!["1/a", "2/d"]));
        cache.insert("3/e", segment(3_001));
        assert!(cache.get("3/e").is_none(), "larger than the cache");
        assert_eq!(cache.bytes, 1_500);
        cache.remove_prefix("2/");
        assert_eq!((cache.bytes, names(&cache)), (1_000, vec!["1/a"]));
        cache.remove("1/a");
        assert_eq!((cache.bytes, cache.by_use.len()), (0, 0));
    }
}
