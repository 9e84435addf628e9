//! The process that cleans up when the test process ends, even by SIGKILL.
//!
//! It reads from a pipe that only the test process holds open: the kernel closes the pipe when that process ends, and
//! the guardian kills what is left of the server and removes its folder. A signal at the death of the parent would be
//! less: it would leave the folder of every test process, because the shared server, a static, is never dropped.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Dropping it cleans up as well, and waits for that.
#[derive(Debug)]
pub(crate) struct Guardian {
    process: Child,
}

impl Guardian {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("guardian.sh"), "guardian"]).arg(folder).current_dir("/");
        // In a group of its own, so that Ctrl-C ends the tests and not the guardian.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap_or_else(|error| panic!("cannot start sh: {error}"));
        Self { process }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // An error means that it is gone.
        let _ = self.process.wait();
    }
}
