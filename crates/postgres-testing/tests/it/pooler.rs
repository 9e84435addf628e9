//! PgBouncer in front of the shared server.

use postgres_testing::{PgBouncer, TestDatabase, shared};

#[test]
fn transactions_pass_through_the_pooler() {
    let Some(pooler) = PgBouncer::start_or_skip(shared(), "transactions_pass_through_the_pooler") else { return };
    let database = TestDatabase::create();
    let name = database.name();
    let pid: i32 = pooler.execute(name, "SELECT pg_backend_pid()").parse().unwrap();
    // The client has left; its connection to the server serves the next one.
    assert_eq!(shared().backend_pids(name), [pid]);
    assert_eq!(pooler.execute(name, "BEGIN; SELECT pg_backend_pid(); COMMIT"), pid.to_string());
    let pools = pooler.execute("pgbouncer", "SHOW POOLS");
    let pool = pools.lines().find(|pool| pool.split('|').next() == Some(name)).unwrap();
    assert_eq!(pool.rsplit('|').next(), Some("transaction"), "{pools}");
}
