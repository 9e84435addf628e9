//! A small file system in memory that can be filled and freed.

use crate::machine::succeeds;
use anyhow::Context;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SIZE: &str = "size=48m";
const FILL_STEP: usize = 64 * 1024;

pub(crate) struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    pub(crate) fn mount() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("siege-disk-").tempdir()?;
        let target = folder.path().to_str().context("a strange folder")?;
        anyhow::ensure!(succeeds("mount", &["-t", "tmpfs", "-o", SIZE, "tmpfs", target]), "cannot mount a file system");
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Some(target) = self.folder.path().to_str() {
            // Lazily: a program of a tool may still have its folder there.
            succeeds("umount", &["-l", target]);
        }
    }
}

/// The file that fills the file system of a data folder.
pub(crate) fn filler_path(data: &Path) -> PathBuf {
    data.with_file_name("filler")
}

/// Writes until there is no room for another byte.
pub(crate) fn fill_disk(filler: &Path) -> anyhow::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(filler)?;
    let mut step = FILL_STEP;
    while step > 0 {
        let zeros = vec![0; step];
        while file.write_all(&zeros).is_ok() {}
        step /= 2;
    }
    Ok(())
}
