//! A server that cannot start reports why in one line and changes nothing.

use crate::harness::{Server, headwater_command};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Starts a server that fails, and returns its output.
fn refused(dir: &Path, args: &[&str]) -> String {
    let before = contents(dir);
    let output = headwater_command(dir).args(["serve", "--listen", "127.0.0.1:0"]).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(contents(dir), before, "{said}");
    said
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            let bytes = if kind.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            found.insert(path.display().to_string(), bytes);
            if kind.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn a_bad_config_or_address_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(dir.path().join("c.toml"), text).unwrap();
    write("[server]\nlisten = 5\n");
    assert!(refused(dir.path(), &["--config", "c.toml"]).contains("c.toml:2: server.listen: "));
    write("[agents.a]\nmodel = \"x/y\"\n");
    assert!(refused(dir.path(), &["--config", "c.toml"]).contains("c.toml:2: agents.a.model: "));
    assert!(refused(dir.path(), &["--config", "missing.toml"]).contains("missing.toml: "));
    write("[auth]\nmode = \"none\"\n");
    let said = refused_plain(dir.path(), &["serve", "--config", "c.toml", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("would let everybody in"), "{said}");
    let said = refused_plain(dir.path(), &["serve", "--listen", "somewhere"]);
    assert!(said.contains("not an address"), "{said}");
    assert_eq!(contents(dir.path()).len(), 1);
}

fn refused_plain(dir: &Path, args: &[&str]) -> String {
    let output = headwater_command(dir).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    said
}

#[test]
fn a_config_in_the_working_directory_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("headwater.toml"), "not even toml [").unwrap();
    // It reaches the data folder, so it did not read the file.
    fs::write(dir.path().join("data"), "").unwrap();
    assert!(refused(dir.path(), &["--data-dir", "data"]).contains("not a folder"));
}

#[test]
fn a_used_port_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused_plain(dir.path(), &["serve", "--listen", &address]);
    assert!(said.contains(&address), "{said}");
    assert!(contents(dir.path()).is_empty(), "no folder was made");
}

#[test]
fn foreign_folders_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "mine").unwrap();
    assert!(refused(dir.path(), &["--data-dir", "file"]).contains("is not a folder"));
    assert!(refused(dir.path(), &["--data-dir", "file/below"]).contains("is not a folder"));
    fs::create_dir(dir.path().join("other")).unwrap();
    fs::write(dir.path().join("other/headwater.db"), "this is something else entirely").unwrap();
    assert!(refused(dir.path(), &["--data-dir", "other"]).contains("not a database of Headwater"));
}

/// A folder of a later version is refused with a clear message, and stays intact for its own version.
#[tokio::test]
async fn a_folder_in_use_or_of_a_later_version_is_refused() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 1 fast").await;
    hw.wait_ended(task["task_id"].as_str().unwrap()).await;
    let data = hw.data_dir();
    let dir = data.parent().unwrap().to_owned();
    let said = refused_plain(&dir, &["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]);
    assert!(said.contains("in use by another process"), "{said}");
    let look = hw.run_cli(&["verify"]);
    assert_eq!(look.status.code(), Some(2), "a server has it");
    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    let look = hw.run_cli(&["verify"]);
    assert_eq!(look.status.code(), Some(0), "{}", String::from_utf8_lossy(&look.stdout));

    // The version is at byte 60 of every SQLite file.
    let path = data.join("headwater.db");
    let mut bytes = fs::read(&path).unwrap();
    let good = bytes.clone();
    bytes[60..64].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let said = refused(&dir, &["--data-dir", "data"]);
    assert!(said.contains("has format 999"), "{said}");
    assert_eq!(hw.run_cli(&["verify"]).status.code(), Some(2));
    fs::write(&path, good).unwrap();
    hw.restart();
    assert_eq!(hw.count_threads_and_records().await.0, 1, "nothing was lost on the way");
}

#[test]
fn an_unwritable_folder_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    // Permissions do not apply to root: then the test proves nothing.
    if fs::write(locked.join("probe"), "").is_ok() {
        fs::remove_file(locked.join("probe")).unwrap();
        let said = refused(dir.path(), &["--data-dir", "/proc/headwater"]);
        assert!(said.contains("/proc/headwater"), "{said}");
        return;
    }
    assert!(refused(dir.path(), &["--data-dir", "locked/data"]).contains("locked"));
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn verify_and_keys_create_no_folders() {
    let dir = tempfile::tempdir().unwrap();
    for (args, code) in [(vec!["verify"], 2), (vec!["keys", "list"], 1), (vec!["keys", "revoke", "key_1"], 1)] {
        let output = headwater_command(dir.path()).args(&args).args(["--data-dir", "none"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{args:?}: {said}");
    }
    assert!(contents(dir.path()).is_empty());
}
