//! TLS to the database, as `sslmode` and `sslrootcert` of the URL say.

use model::NodeId;
use postgres_testing::{PostgresServer, TestDatabase, shared};
use std::path::Path;
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::LogWriter;
use tokio::task::block_in_place;

fn url(host: &str, port: u16, database: &TestDatabase, query: &str) -> String {
    format!("postgres://postgres@{host}:{port}/{}?{query}", database.name())
}

fn with_root(mode: &str, path: &Path) -> String {
    format!("sslmode={mode}&sslrootcert={}", path.display())
}

async fn open(url: &str) -> Result<PostgresStore, String> {
    let options = PostgresOptions::new(url.parse().unwrap(), NodeId::from("node"));
    PostgresStore::open(options).await.map_err(|error| error.to_string())
}

/// The encryption of all connections of the store, as the server sees it.
fn encryption(database: &TestDatabase) -> String {
    database.execute(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE datname = current_database() AND application_name = 'headwater'",
    )
}

/// Also listens on 127.0.0.2, which is not in its certificate.
fn start_server() -> PostgresServer {
    let mut server = PostgresServer::start_with_tls();
    server.set("listen_addresses", "127.0.0.1,127.0.0.2");
    server.stop_fast();
    server.start_again();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_checked_as_the_mode_says() {
    let server = block_in_place(start_server);
    let database = TestDatabase::create_on(&server);
    let authority = server.ca_path();
    for (host, query, expected) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), "f"),
        ("127.0.0.1", String::new(), "t"),
        ("127.0.0.1", "sslmode=prefer".to_owned(), "t"),
        ("127.0.0.1", "sslmode=require".to_owned(), "t"),
        ("127.0.0.2", with_root("require", &authority), "t"),
        ("127.0.0.2", with_root("verify-ca", &authority), "t"),
        ("127.0.0.1", with_root("verify-full", &authority), "t"),
        ("localhost", with_root("verify-full", &authority), "t"),
    ] {
        let store = open(&url(host, server.port(), &database, &query)).await.unwrap();
        assert_eq!(encryption(&database), expected, "{host}?{query}");
        store.close().await;
        drop(store);
    }
    let store = open(&url("localhost", server.port(), &database, &with_root("verify-full", &authority))).await.unwrap();
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().push_notes(10).must_append().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_the_check_is_refused() {
    let server = block_in_place(start_server);
    let database = TestDatabase::create_on(&server);
    let authority = server.ca_path();
    let advice = "check sslmode and sslrootcert in the URL";
    // The server's own certificate has not signed it.
    let other = server.folder().join("server.pem");
    let missing = server.folder().join("missing.pem");
    let plain = TestDatabase::create();
    let at = |host: &str, query: String| url(host, server.port(), &database, &query);
    for (url, expected) in [
        (at("127.0.0.1", with_root("require", &other)), "UnknownIssuer"),
        (at("127.0.0.1", with_root("verify-ca", &other)), "UnknownIssuer"),
        (at("127.0.0.1", with_root("verify-full", &other)), "UnknownIssuer"),
        // The authorities of the system do not know it either.
        (at("127.0.0.1", "sslmode=verify-full".to_owned()), "UnknownIssuer"),
        (at("127.0.0.2", with_root("verify-full", &authority)), "not valid for"),
        (at("127.0.0.1", with_root("verify-full", &missing)), "missing.pem cannot be used"),
        (at("127.0.0.1", with_root("verify-full", &server.folder().join("server.key"))), "has no certificate"),
        (url("127.0.0.1", shared().port(), &plain, "sslmode=require"), "does not support TLS"),
        (url("127.0.0.1", shared().port(), &plain, &with_root("verify-full", &authority)), "does not support TLS"),
    ] {
        let refused = open(&url).await.map(drop).unwrap_err();
        assert!(refused.contains(expected) && refused.lines().count() == 1, "{url}: {refused}");
        assert!(refused.contains(advice) || refused.contains("sslrootcert /"), "{url}: {refused}");
    }
    assert_eq!(encryption(&database), "", "no connection is left");
}
