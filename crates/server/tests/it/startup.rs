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
fn every_verb_finds_the_config_of_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("headwater.toml"), "not even toml [").unwrap();
    assert!(refused(dir.path(), &[]).starts_with("headwater: headwater.toml:1: "));
    for verb in [
        vec!["keys", "list"],
        vec!["keys", "create", "--user", "ann"],
        vec!["verify"],
        vec!["compact"],
        vec!["replay", "task_1"],
    ] {
        let output = headwater_command(dir.path()).args(&verb).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.starts_with("headwater: headwater.toml:1: "), "{verb:?}: {said}");
    }
    let output = headwater_command(dir.path()).arg("check-config").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(1) && said.starts_with("headwater.toml:1: "), "{said}");
    // An argument wins over the environment, and both over the file that is there.
    fs::write(dir.path().join("good.toml"), "[auth]\nmode = \"keys\"\n").unwrap();
    for (args, variable) in [(vec!["--config", "good.toml"], "headwater.toml"), (vec![], "good.toml")] {
        let mut command = headwater_command(dir.path());
        let output = command.arg("check-config").args(args).env("HEADWATER_CONFIG", variable).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "headwater: config: good.toml\n");
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(contents(dir.path()).len(), 2, "a refused command leaves no folder behind");
}

/// The key works on the server that is started the same way.
#[test]
fn keys_are_those_of_the_folder_that_the_config_names() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[server]\ndata_dir = \"own\"\n[auth]\nmode = \"keys\"\n[providers.p]\nkind = \"openai-chat\"\n";
    // A secret that only the server's environment has is of no concern here.
    fs::write(dir.path().join("headwater.toml"), format!("{config}api_key = \"env:NO_SUCH_KEY\"\n")).unwrap();
    let keys = |args: &[&str]| {
        let output = headwater_command(dir.path()).arg("keys").args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, _, said) = keys(&["create", "--user", "a b"]);
    assert!(code == Some(1) && said.contains("not a valid user name"), "{said}");
    assert!(!dir.path().join("own").exists(), "a refused command leaves no folder behind");
    let (code, key, said) = keys(&["create", "--user", "ann"]);
    assert!(code == Some(0) && key.starts_with("hw_"), "{said}");
    assert!(said.starts_with("headwater: config: headwater.toml\n") && !said.contains("does not use keys"), "{said}");
    assert!(dir.path().join("own/headwater.db").exists() && !dir.path().join("headwater-data").exists());
    assert!(keys(&["list"]).1.contains("\tann\t"));
    fs::write(dir.path().join("headwater.toml"), "[server]\ndata_dir = \"other\"\n").unwrap();
    let (_, _, said) = keys(&["create", "--user", "ann"]);
    assert!(said.contains("the config does not use keys: set [auth] mode = \"keys\""), "{said}");
}

#[test]
fn a_server_says_which_config_it_runs() {
    let hw = Server::demo();
    assert!(hw.log().contains("headwater: config: headwater.toml\n"), "{}", hw.log());
    let dir = tempfile::tempdir().unwrap();
    let output = headwater_command(dir.path()).arg("check-config").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("headwater: config: the embedded demo (there is no ./headwater.toml"), "{said}");
}

#[test]
fn a_used_port_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused_plain(dir.path(), &["serve", "--listen", &address]);
    assert!(said.contains(&address) && said.contains("choose another port with --listen"), "{said}");
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
        assert!(said.contains("the data folder none does not exist"), "{said}");
    }
    assert!(contents(dir.path()).is_empty());
}

#[test]
fn init_writes_a_config_that_works_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str], key: &str| {
        let output = headwater_command(dir.path()).args(args).env(key, "a-key-of-some-length").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    for (key, model) in [("NO_KEY", "local/llama3.2"), ("OPENAI_API_KEY", "openai/gpt-5-mini")] {
        let file = format!("{key}.toml");
        let (code, said) = run(&["init", &file], key);
        assert!(code == Some(0) && said.contains(model), "{said}");
        let (code, said) = run(&["check-config", "--config", &file], key);
        assert!(code == Some(0) && said.starts_with("ok: 1 agent, 2 tools, "), "{said}");
    }
    assert_eq!(run(&["init"], "NO_KEY").0, Some(0));
    let written = fs::read_to_string(dir.path().join("headwater.toml")).unwrap();
    fs::write(dir.path().join("headwater.toml"), format!("# mine\n{written}")).unwrap();
    let (code, said) = run(&["init"], "NO_KEY");
    assert!(code == Some(1) && said.contains("headwater.toml exists and is left as it is"), "{said}");
    assert!(fs::read_to_string(dir.path().join("headwater.toml")).unwrap().starts_with("# mine\n"));
}

#[test]
fn listings_are_also_json() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| headwater_command(dir.path()).args(args).output().unwrap();
    let json = |args: &[&str]| serde_json::from_slice::<serde_json::Value>(&run(args).stdout).unwrap();
    run(&["keys", "create", "--user", "ann"]);
    let keys = json(&["keys", "list", "--json"]);
    assert_eq!(
        (&keys[0]["user"], &keys[0]["revoked_at"], keys.as_array().unwrap().len()),
        (&"ann".into(), &().into(), 1)
    );
    let report = json(&["verify", "--json"]);
    assert_eq!(
        (&report["clean"], &report["problems"], &report["files"]),
        (&true.into(), &serde_json::json!([]), &0.into())
    );
    fs::write(dir.path().join("c.toml"), "[limit]\n").unwrap();
    let checked = json(&["check-config", "--json", "--config", "c.toml"]);
    let finding = serde_json::json!({"severity": "error", "file": "c.toml", "line": 1, "key": "limit",
        "message": "unknown key `limit`; did you mean `limits`?"});
    assert_eq!((&checked["ok"], &checked["findings"]), (&false.into(), &serde_json::json!([finding])));
}

#[test]
fn completions_and_manual_pages_know_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let print = |args: &[&str]| {
        let output = headwater_command(dir.path()).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let verbs = ["serve", "verify", "keys", "check-config", "init", "openapi", "tail", "chat", "replay"];
    for page in [vec!["completions", "bash"], vec!["completions", "zsh"], vec!["completions", "fish"], vec!["man"]] {
        let text = print(&page).replace('\\', "");
        for verb in verbs {
            assert!(text.contains(verb), "{page:?}: {verb}");
        }
        assert!(!text.contains("read-pdf") || page[0] == "completions", "{page:?}");
    }
    assert!(print(&["man", "serve"]).contains("HEADWATER_LISTEN"));
}
