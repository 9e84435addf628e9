//! `headwater verify` and files: it reports missing, changed and unknown files.

use super::{image_part, run_with_parts, unique_png};
use crate::attachments::{stored_files, str_field, upload_file};
use crate::harness::Server;
use std::path::{Path, PathBuf};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// Stops the server and runs verify: the exit code and the output.
pub(super) fn kill_and_run_verify(hw: &mut Server, args: &[&str]) -> (Option<i32>, String) {
    hw.kill9();
    run_verify(hw, args)
}

fn run_verify(hw: &Server, args: &[&str]) -> (Option<i32>, String) {
    let output = hw.run_cli(&[&["verify"], args].concat());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The output without damage.
pub(super) fn undamaged_report(lines: &[&str]) -> String {
    lines.iter().chain(&["no damage found"]).map(|line| format!("{line}\n")).collect()
}

fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn verify_detects_damaged_files_and_nothing_else() {
    let mut hw = Server::demo();
    let bytes = unique_png("blob");
    run_with_parts(&hw, None, &[image_part(&bytes)]).await;
    let file = upload_file(&hw, "", b"words").await;
    let root = hw.data_dir().join("files");
    let file = root.join(str_field(&file, "path"));
    let blob = stored_files(&hw).into_iter().find(|path| *path != file).unwrap();
    let (code, said) = kill_and_run_verify(&mut hw, &[]);
    assert_eq!((code, said.lines().next()), (Some(0), Some("2 files")), "{said}");

    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let stray = root.join("agent-inputs/local/00000000000000000000000000000000.txt");
    let mut altered = bytes.clone();
    *altered.last_mut().unwrap() ^= 1;
    let link = root.join("blobs/link");
    type Damage<'a> = (&'a dyn Fn(), &'a dyn Fn(), String);
    let damages: [Damage<'_>; 7] = [
        (&|| std::fs::remove_file(&blob).unwrap(), &|| overwrite(&blob, &bytes), format!("{} is missing", name(&blob))),
        (
            &|| std::fs::remove_file(&file).unwrap(),
            &|| overwrite(&file, b"words"),
            format!("{} is missing", name(&file)),
        ),
        (&|| overwrite(&blob, &altered), &|| overwrite(&blob, &bytes), format!("blob {} does not match", name(&blob))),
        (&|| overwrite(&file, b"word"), &|| overwrite(&file, b"words"), "has 4 bytes instead of 5".to_owned()),
        (
            &|| overwrite(&stray, b"x"),
            &|| std::fs::remove_file(&stray).unwrap(),
            format!("no row refers to the file {}", name(&stray)),
        ),
        (
            &|| overwrite(&PathBuf::from(format!("{}#1", stray.display())), b"x"),
            &|| std::fs::remove_file(format!("{}#1", stray.display())).unwrap(),
            format!("no row refers to the file {}", name(&stray)),
        ),
        (
            &|| std::os::unix::fs::symlink(&file, &link).unwrap(),
            &|| std::fs::remove_file(&link).unwrap(),
            "blobs/link is not a file".to_owned(),
        ),
    ];
    for (damage, repair, wanted) in damages {
        damage();
        let (code, said) = run_verify(&hw, &[]);
        let problems: Vec<&str> = said.lines().filter(|line| line.starts_with("problem: ")).collect();
        assert_eq!((code, problems.len()), (Some(1), 1), "{wanted}: {said}");
        assert!(problems[0].contains(&wanted) && said.ends_with("\n1 problems\n"), "{wanted}: {said}");
        repair();
        assert_eq!(run_verify(&hw, &[]).0, Some(0));
    }
}

#[tokio::test]
async fn verify_ignores_uploads_in_progress() {
    let mut hw = Server::demo();
    let mut stream = TcpStream::connect(&hw.address).await.unwrap();
    let head = "POST /api/v1/agent/attachments HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &[b'x'; 700_000]].concat()).await.unwrap();
    hw.wait_until("half a file is there", async || stored_files(&hw).len() == 1).await;
    let (code, said) = kill_and_run_verify(&mut hw, &[]);
    assert_eq!((code, stored_files(&hw).len()), (Some(0), 1), "{said}");
    assert!(said.starts_with("0 files\n"), "{said}");
}

#[tokio::test]
async fn verify_finds_files_elsewhere_through_the_config_file() {
    let mut hw = Server::demo_with("[files]\nurl = \"elsewhere\"");
    upload_file(&hw, "", b"words").await;
    // Without access to the files verify does not report success.
    let (code, said) = kill_and_run_verify(&mut hw, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("files were not checked: the folder "), "{said}");
    let config = ["--config", "headwater.toml"];
    let (code, said) = run_verify(&hw, &config);
    assert_eq!((code, said.lines().next()), (Some(0), Some("1 files")), "{said}");
    // Removed completely. Verify does not create the folder again.
    std::fs::remove_dir_all(hw.path("elsewhere")).unwrap();
    let (code, said) = run_verify(&hw, &config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(" is missing\n") && !hw.path("elsewhere").exists(), "{said}");
}
