//! A power failure: whatever the disk had not confirmed is lost.
//!
//! The data folder is on a file system in an image file that is written with direct I/O, so the image holds exactly
//! what the disk was made to store. The server is stopped in mid-stream, the image is copied, and the copy is what the
//! machine finds after the power failure. Needs root and loop devices; without them the test reports that it did not
//! run.

use crate::harness::Server;
use crate::kill::{check_recovered_logs, start_viewed_runs, stop_and_verify};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const NAME: &str = "nothing_seen_is_lost_in_a_power_cut";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_seen_is_lost_in_a_power_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..3 {
        let Some(disk) = Disk::new(folder.path(), round) else {
            // Straight to the file descriptor: the test harness would capture a print.
            let why = "it needs root, mkfs.ext4 and a free loop device";
            writeln!(std::io::stderr(), "SKIPPED {NAME}: {why}").expect("stderr is there");
            return;
        };
        let mut server = Server::demo();
        server.kill9();
        plug_in(&server, &disk);
        server.restart();
        let seen = start_viewed_runs(&server, 8).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.signal("-STOP");
        let after = disk.as_the_disk_has_it();
        server.kill9();
        let witnessed: usize = seen.iter().map(|(_, frames)| frames.lock().expect("not poisoned").len()).sum();
        assert!(witnessed > 50, "only {witnessed} frames were seen before the cut");
        plug_in(&server, &after);
        server.restart();
        check_recovered_logs(&server, &seen, &format!("power cut {round}")).await;
        stop_and_verify(&mut server);
        eprintln!("power cut {round}: {witnessed} frames were seen, all are there");
    }
}

/// From its next start the server's data folder is on this disk.
fn plug_in(server: &Server, disk: &Disk) {
    let folder = server.data_dir();
    if std::fs::remove_file(&folder).is_err() {
        std::fs::remove_dir_all(&folder).expect("the old folder can go");
    }
    let there = disk.mount.join("data");
    std::fs::create_dir_all(&there).expect("room for a folder");
    std::os::unix::fs::symlink(there, folder).expect("a link");
}

/// A file system in an image file.
struct Disk {
    image: std::path::PathBuf,
    mount: std::path::PathBuf,
    device: String,
}

impl Disk {
    fn new(folder: &Path, round: usize) -> Option<Self> {
        let image = folder.join(format!("disk{round}.img"));
        run("truncate", &["-s", "256M", text(&image)])?;
        run("mkfs.ext4", &["-q", "-F", text(&image)])?;
        Self::attach(image)
    }

    fn attach(image: std::path::PathBuf) -> Option<Self> {
        let device = run("losetup", &["--find", "--show", "--direct-io=on", text(&image)])?;
        let mount = image.with_extension("mount");
        std::fs::create_dir_all(&mount).ok()?;
        let disk = Self { image, mount, device };
        run("mount", &[&disk.device, text(&disk.mount)])?;
        Some(disk)
    }

    /// What the machine finds when the power is back.
    fn as_the_disk_has_it(&self) -> Self {
        let copy = self.image.with_extension("after");
        std::fs::copy(&self.image, &copy).expect("room for a copy");
        Self::attach(copy).expect("the copy can be mounted")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", text(&self.mount)]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
