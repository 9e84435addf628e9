//! A server ends with what started it, and leaves nothing behind.

use crate::wait::wait_for;
use postgres_testing::{PostgresServer, TestDatabase, shared};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Tells a test that it is the process that starts a server.
const STARTER: &str = "HEADWATER_TEST_POSTGRES_STARTER";
const URL_VARIABLE: &str = "HEADWATER_TEST_POSTGRES_URL";
/// Begins the line with which that process says which server it has.
const MARK: &str = "server: ";

fn is_starter() -> bool {
    std::env::vars_os().any(|(name, _)| name == STARTER)
}

/// A test of this file in a process of its own, which has a server. It ends when its standard input is closed.
struct Starter {
    process: Child,
    _stdout: BufReader<ChildStdout>,
    /// What it has printed about its server.
    server: String,
}

impl Starter {
    fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(STARTER, "1");
        command.env_remove(URL_VARIABLE).envs(variables.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let line = stdout.by_ref().lines().find_map(|line| Some(line.unwrap().split_once(MARK)?.1.to_owned()));
        Self { process, _stdout: stdout, server: line.expect("the process has a server") }
    }
}

/// Prints which server this process has, and waits for the end of standard input.
fn report_and_wait(description: &str) {
    println!("{MARK}{description}");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// How many processes have their working directory below `folder`.
fn count_processes(folder: &Path) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap();
    let folders = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    folders.filter(|path| path.starts_with(folder)).count()
}

fn assert_all_gone(port: u16, folder: &Path) {
    assert!(!folder.exists(), "{} is still there", folder.display());
    assert_eq!(count_processes(folder), 0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "somebody listens on {port}");
}

#[test]
fn a_dropped_server_is_gone() {
    let server = PostgresServer::start();
    let (port, folder) = (server.port(), server.folder().to_owned());
    assert!(count_processes(&folder) > 1);
    drop(server);
    assert_all_gone(port, &folder);
}

#[test]
fn a_dropped_server_that_has_crashed_is_gone() {
    let mut server = PostgresServer::start();
    let (port, folder) = (server.port(), server.folder().to_owned());
    server.crash();
    let lock = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let memory = lock.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    let has_memory = || {
        let list = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        list.lines().any(|line| line.split_whitespace().nth(1) == Some(memory.as_str()))
    };
    assert!(has_memory(), "a crashed server leaves its shared memory");
    drop(server);
    assert_all_gone(port, &folder);
    assert!(!has_memory());
}

#[test]
fn a_server_does_not_outlive_a_killed_process() {
    if is_starter() {
        let server = shared();
        return report_and_wait(&format!("{} {}", server.port(), server.folder().display()));
    }
    let mut starter = Starter::start("lifetime::a_server_does_not_outlive_a_killed_process", &[]);
    let (port, folder) = starter.server.split_once(' ').unwrap();
    let (port, folder) = (port.parse().unwrap(), Path::new(folder));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok() && count_processes(folder) > 1);
    starter.process.kill().unwrap();
    starter.process.wait().unwrap();
    wait_for("the end of the server", || (!folder.exists()).then_some(()));
    assert_all_gone(port, folder);
}

#[test]
fn the_shared_server_may_be_one_that_runs_already() {
    if is_starter() {
        let database = TestDatabase::create();
        return report_and_wait(&database.url());
    }
    let server = PostgresServer::start();
    let variables = [(URL_VARIABLE, &*server.url("postgres"))];
    let mut starter = Starter::start("lifetime::the_shared_server_may_be_one_that_runs_already", &variables);
    let databases = "SELECT datname FROM pg_database WHERE datname LIKE 'test%'";
    let name = server.execute("postgres", databases);
    assert_eq!(starter.server, server.url(&name));
    drop(starter.process.stdin.take());
    assert!(starter.process.wait().unwrap().success());
    assert_eq!(server.execute("postgres", databases), "", "the database is deleted");
}
