//! The data folder is for its owner alone, whatever the umask is.

use crate::harness::{Server, headwater_command};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// The folder and everything in it that others could read, with its mode.
fn readable_by_others(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let all = std::iter::once(dir.to_owned()).chain(entries);
    let open = all.filter(|path| mode(path) & 0o077 != 0);
    open.map(|path| format!("{} {:04o}", path.display(), mode(&path))).collect()
}

#[test]
fn a_new_folder_and_its_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let binary = headwater_command(dir.path()).get_program().to_owned();
    let create = "umask 022; exec \"$0\" keys create --user ann --data-dir data";
    let mut command = Command::new("sh");
    let output = command.args(["-c", create]).arg(binary).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let data = dir.path().join("data");
    assert!(data.join("headwater.db").exists());
    assert_eq!(readable_by_others(&data), Vec::<String>::new());
    assert_eq!((mode(&data), mode(&data.join("headwater.db"))), (0o700, 0o600));
}

#[tokio::test]
async fn an_open_folder_is_closed_with_a_warning() {
    let mut hw = Server::demo();
    hw.start_run("hello").await;
    assert_eq!(readable_by_others(&hw.data_dir()), Vec::<String>::new(), "with the write-ahead log");
    // A crash leaves the write-ahead log behind.
    hw.kill9();
    fs::set_permissions(hw.data_dir(), Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(hw.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        let open = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, Permissions::from_mode(open)).unwrap();
    }
    hw.restart();
    assert_eq!(readable_by_others(&hw.data_dir()), Vec::<String>::new());
    let log = hw.log();
    for name in ["data ", "headwater.db ", "headwater.db-wal "] {
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(name)), "{name}: {log}");
    }
    hw.start_run("hello").await;
}
