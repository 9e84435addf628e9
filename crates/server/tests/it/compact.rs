//! `headwater compact`.

use crate::harness::Server;

/// The number of bytes in a line like `before: 4096 bytes (0.0 MiB)`.
fn bytes_in(line: &str, what: &str) -> u64 {
    let rest = line.strip_prefix(what).unwrap_or_else(|| panic!("{line}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn compact_prints_the_sizes_and_refuses_a_folder_in_use() {
    let mut hw = Server::demo();
    let task = hw.start_run("story 40").await;
    let path = format!("/v1/tasks/{}/events", task["task_id"].as_str().unwrap());
    let shown = hw.frames(&path, None).await;
    let refused = hw.run_cli(&["compact"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use by another process: stop that one"), "{said}");

    hw.signal("-TERM");
    assert!(hw.wait_exit().success());
    let before = std::fs::metadata(hw.data_dir().join("headwater.db")).unwrap().len();
    let compacted = hw.run_cli(&["compact"]);
    let said = String::from_utf8(compacted.stdout).unwrap();
    assert_eq!(compacted.status.code(), Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(bytes_in(lines[0], "before: "), before);
    let after = std::fs::metadata(hw.data_dir().join("headwater.db")).unwrap().len();
    assert_eq!(bytes_in(lines[1], "after: "), after);
    assert!(after <= before);
    assert_eq!(hw.run_cli(&["verify"]).status.code(), Some(0));
    hw.restart();
    assert_eq!(hw.frames(&path, None).await, shown);
}
