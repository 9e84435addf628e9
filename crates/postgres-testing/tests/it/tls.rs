//! A server with TLS.

use postgres_testing::PostgresServer;

#[test]
fn a_client_that_trusts_the_authority_connects_with_tls() {
    let server = PostgresServer::start_with_tls();
    let is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    for host in ["127.0.0.1", "localhost"] {
        let ca = server.ca_path();
        let options = format!("postgres?host={host}&sslmode=verify-full&sslrootcert={}", ca.display());
        assert_eq!(server.execute(&options, is_encrypted), "t");
    }
    assert_eq!(server.execute("postgres?sslmode=disable", is_encrypted), "f");
}
