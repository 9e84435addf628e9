//! Programs of tools end with the server, however it ends, and an idempotent one does not start beside its orphan.

use crate::harness::Server;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const CONFIG: &str = r#"
[agents.assistant]
model = "mine/any"
tools = ["work"]

[providers.mine]
kind = "scripted"
file = "scenarios.toml"

[tools.work]
kind = "command"
idempotent = true
env_pass = ["PATH"]
command = ["sh", "-c", '''
cat > /dev/null
echo $$ >> started
if [ $(wc -l < started) -gt 1 ]; then echo second; exit 0; fi
# A child without the environment of its parent, and one that ignores signals that can be ignored.
env -i sh -c 'trap "" TERM HUP INT; echo $$ >> started.child; while :; do sleep 0.05; done' &
while :; do echo tick >> ticks; sleep 0.02; done
''']
"#;

const SCENARIOS: &str = r#"
[[scenario]]
[[scenario.turn]]
steps = [{ call = "work", arguments = "{}" }]
[[scenario.turn]]
steps = [{ text = ["Done."] }]
"#;

async fn server_with_running_program() -> (Server, String) {
    let server = Server::with_config(CONFIG, SCENARIOS);
    let task = server.create_task(json!({"model": "assistant", "input": "go"})).await;
    server.wait_until("the program and its child run", async || server.has_line("started.child")).await;
    (server, task["task_id"].as_str().unwrap().to_owned())
}

/// The first process id in the file.
fn read_pid(file: &Path) -> u32 {
    std::fs::read_to_string(file).unwrap().lines().next().unwrap().parse().unwrap()
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[tokio::test]
async fn programs_end_with_a_server_that_is_killed() {
    let (mut server, _) = server_with_running_program().await;
    let pids = ["started", "started.child"].map(|name| read_pid(&server.path(name)));
    assert_eq!(pids.map(is_alive), [true, true]);
    server.kill9();
    server.wait_until("both have ended", async || pids.map(is_alive) == [false, false]).await;
}

#[tokio::test]
async fn an_idempotent_program_is_not_started_beside_its_orphan() {
    let (mut server, task) = server_with_running_program().await;
    // A server without its guardian, as after a crash of both.
    for guardian in guardians_of(server.pid()) {
        let kill = std::process::Command::new("kill").args(["-9", &guardian.to_string()]).status();
        assert!(kill.unwrap().success());
    }
    server.kill9();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let pids = ["started", "started.child"].map(|name| read_pid(&server.path(name)));
    assert_eq!(pids.map(is_alive), [true, true], "nobody ended them");
    server.restart();
    assert_eq!(pids.map(is_alive), [false, false], "the next server did, before it was ready");
    let ended = server.wait_ended(&task).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(server.log().contains("ended tool programs that an earlier server had left running"), "{}", server.log());
}

fn guardians_of(server: u32) -> Vec<u32> {
    let list = std::process::Command::new("pgrep").args(["-P", &server.to_string(), "-f", "tool-guardian"]).output();
    let found: Vec<u32> =
        String::from_utf8(list.unwrap().stdout).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(found.len(), 1);
    found
}
