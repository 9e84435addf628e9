//! Databases on the shared server.

use crate::wait::wait_for;
use postgres_testing::{PostgresServer, TestDatabase, shared};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The message of a panic.
fn panic_message(of: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(of)).expect_err("it panics");
    panic.downcast_ref::<String>().cloned().expect("a formatted message")
}

#[test]
fn a_database_answers() {
    let database = TestDatabase::create();
    assert_eq!(database.execute("SELECT 1, 'ä'; SELECT NULL; SELECT 3"), "1|ä\n\n3");
    let settings = "SELECT current_setting('fsync'), current_setting('data_checksums'), current_setting('lc_collate'), \
                    current_setting('server_encoding')";
    assert_eq!(database.execute(settings), "off|on|C|UTF8");
    assert_eq!(PostgresServer::start().execute("postgres", settings), "on|on|C|UTF8");
    assert_eq!(database.url(), shared().url(database.name()));
    assert_eq!(shared().execute(database.name(), "SELECT current_database()"), database.name());
}

#[test]
fn a_failed_statement_panics_with_the_error_of_the_server() {
    let database = TestDatabase::create();
    let sql = "CREATE TABLE kept (n int); SELECT * FROM missing; CREATE TABLE not_reached (n int)";
    let message = panic_message(|| drop(database.execute(sql)));
    assert!(message.contains("relation \"missing\" does not exist"), "{message}");
    assert_eq!(database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"), "kept");
}

#[test]
fn large_statements_and_results_pass() {
    let database = TestDatabase::create();
    let row = format!("SELECT '{}';\n", "x".repeat(100_000));
    assert_eq!(database.execute(&row.repeat(20)).len(), 20 * 100_001 - 1);
}

#[test]
fn two_databases_are_separate() {
    let (one, other) = (TestDatabase::create(), TestDatabase::create());
    one.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    other.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (2)");
    assert_eq!((one.execute("SELECT n FROM t"), other.execute("SELECT n FROM t")), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn the_connections_of_a_dropped_database_end() {
    let database = TestDatabase::create();
    let name = database.name().to_owned();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| panic_message(|| drop(shared().execute(&name, "SELECT pg_sleep(600)"))));
        wait_for("a client", || shared().backend_pids(&name).pop());
        drop(database);
        let message = client.join().unwrap();
        assert!(message.contains("terminating connection due to administrator command"), "{message}");
    });
}

#[test]
fn the_shared_server_is_always_the_same() {
    let servers: Vec<&PostgresServer> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(shared)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(servers.iter().all(|server| std::ptr::eq(*server, shared())));
}
