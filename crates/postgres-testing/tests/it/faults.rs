//! Crashes, stops and changed settings of a server of the test's own.

use crate::wait::wait_for;
use postgres_testing::{PostgresServer, TestDatabase};
use std::net::TcpStream;
use std::panic::catch_unwind;

const SLEEP: &str = "SELECT pg_sleep(600)";

/// Runs `during` while a client of `database` waits for the answer to a long query; it must end with `during`.
fn with_waiting_client(server: &PostgresServer, database: &TestDatabase, during: impl FnOnce(i32)) {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| catch_unwind(|| database.execute(SLEEP)));
        during(wait_for("a client", || server.backend_pids(database.name()).pop()));
        assert!(client.join().unwrap().is_err(), "the query ended as if nothing had happened");
    });
}

#[test]
fn committed_rows_survive_a_crash() {
    let mut server = PostgresServer::start();
    let port = server.port();
    let database = TestDatabase::create_on(&server);
    database.execute("CREATE TABLE t (n int)");
    for round in 0..3 {
        database.execute(&format!("INSERT INTO t VALUES ({round})"));
        server.crash();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens after a crash");
        server.start_again();
        assert_eq!(server.port(), port);
    }
    assert_eq!(database.execute("SELECT n FROM t ORDER BY n"), "0\n1\n2");
    assert_eq!(server.log().matches("was not properly shut down").count(), 3, "{}", server.log());
}

#[test]
fn a_crash_ends_open_transactions() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    database.execute("CREATE TABLE t (n int)");
    let insert = format!("BEGIN; INSERT INTO t VALUES (1); {SLEEP}; COMMIT");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| catch_unwind(|| database.execute(&insert)));
        let sleeping = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        wait_for("the insert", || (!server.execute("postgres", sleeping).is_empty()).then_some(()));
        server.crash();
        assert!(client.join().unwrap().is_err());
    });
    server.start_again();
    assert_eq!(database.execute("SELECT n FROM t"), "");
}

#[test]
fn a_killed_backend_makes_the_server_recover() {
    let server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    database.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let other = TestDatabase::create_on(&server);
    // The other client is told to leave as well.
    with_waiting_client(&server, &other, |_| {
        with_waiting_client(&server, &database, |pid| server.kill_backend(pid));
        server.wait_until_ready();
    });
    assert_eq!(database.execute("SELECT n FROM t"), "1");
    assert!(server.log().contains("all server processes terminated; reinitializing"), "{}", server.log());
}

#[test]
fn a_stopped_server_starts_without_recovery() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    database.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    server.stop_fast();
    assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
    server.start_again();
    assert_eq!(database.execute("SELECT n FROM t"), "1");
    assert!(!server.log().contains("was not properly shut down"), "{}", server.log());
}

#[test]
fn a_setting_is_in_force_when_it_was_set() {
    let mut server = PostgresServer::start();
    for (name, value) in [("statement_timeout", "100s"), ("statement_timeout", "0"), ("log_line_prefix", "it's ")] {
        server.set(name, value);
        assert_eq!(server.execute("postgres", &format!("SHOW {name}")), value.trim_end());
    }
    server.set("max_connections", "33");
    server.stop_fast();
    server.start_again();
    assert_eq!(server.execute("postgres", "SHOW max_connections"), "33");
}
