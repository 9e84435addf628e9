//! Databases that cannot be used: one line that says what to do, without the password.

use super::options;
use model::NodeId;
use postgres_testing::{PostgresServer, TestDatabase, shared};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use store::{PostgresOptions, PostgresStore};
use tokio::net::TcpStream;

const PASSWORD: &str = "pa55word";
/// Opening gives up earlier, also on a busy machine.
const FAILURE_MAX: Duration = Duration::from_secs(15);

/// What `open` says.
async fn open_error(url: &str) -> String {
    let options = PostgresOptions::new(url.parse().unwrap(), NodeId::from("node"));
    let begun = Instant::now();
    let line = PostgresStore::open(options).await.map(drop).unwrap_err().to_string();
    assert!(begun.elapsed() < FAILURE_MAX, "{url} took {:?}", begun.elapsed());
    line
}

/// Opens each URL and checks that the line has these texts.
async fn check_lines(cases: &[(String, &[&str])]) {
    for (url, texts) in cases {
        let line = open_error(url).await;
        assert_eq!(line.lines().count(), 1, "{url}: {line}");
        assert!(!line.contains(PASSWORD), "{url}: {line}");
        for text in *texts {
            assert!(line.contains(text), "{url}: {text:?} is missing: {line}");
        }
    }
}

/// The URL of a user with a password.
fn user_url(server: &PostgresServer, user: &str, database: &str) -> String {
    format!("postgres://{user}:{PASSWORD}@127.0.0.1:{}/{database}", server.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_that_fail() {
    let server = PostgresServer::start();
    let database = TestDatabase::create_on(&server);
    server.execute("postgres", "CREATE ROLE ann LOGIN PASSWORD 'another';");
    let rules = server.folder().join("data/pg_hba.conf");
    let trusting = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(
        &rules,
        format!("host all ann 127.0.0.1/32 scram-sha-256\nhost all eve 127.0.0.1/32 reject\n{trusting}"),
    )
    .unwrap();
    server.set("log_connections", "on");
    let name = database.name();
    let advice = "check the user, the password and the name of the database";
    let without_password = format!("postgres://ann@127.0.0.1:{}/{name}", server.port());
    check_lines(&[
        (user_url(&server, "ann", name), &["password authentication failed for user \"ann\"", advice]),
        (without_password, &["password missing", advice]),
        (user_url(&server, "nobody", name), &["role \"nobody\" does not exist", advice]),
        (user_url(&server, "eve", name), &["pg_hba.conf rejects connection", advice]),
        (user_url(&server, "postgres", "no_such"), &["database \"no_such\" does not exist", advice]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = listener.local_addr().unwrap().port();
    drop(listener);
    let at = |address: &str| format!("postgres://ann:{PASSWORD}@{address}/agents");
    let advice = "check host and port in the URL";
    check_lines(&[
        (at("no-such-host.invalid"), &["no-such-host.invalid:5432/agents", advice]),
        (at(&format!("127.0.0.1:{closed_port}")), &["Connection refused", advice]),
    ])
    .await;
}

/// A server on a port of its own that answers every connection with these bytes.
fn start_fake_server(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut request = [0; 1024];
                // A client that has gone is no error of the test.
                let _ = stream.read(&mut request);
                let _ = stream.write_all(&answer);
                if answer.is_empty() {
                    while stream.read(&mut request).is_ok_and(|count| count > 0) {}
                }
            });
        }
    });
    port
}

/// An error message of the protocol.
fn error_message(code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap();
    [b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_is_waited_for() {
    let database = TestDatabase::create();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://postgres@{}/{}?sslmode=disable", listener.local_addr().unwrap(), database.name());
    let refusals = 3;
    let starting = std::thread::spawn(move || {
        let answer = error_message("57P03", "the database system is in recovery mode");
        for _ in 0..refusals {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(&answer).unwrap();
        }
        listener
    });
    let opening = tokio::spawn(PostgresStore::open(PostgresOptions::new(url.parse().unwrap(), NodeId::from("node"))));
    let listener = tokio::task::spawn_blocking(move || starting.join().unwrap()).await.unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let forwarding = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(("127.0.0.1", shared().port())).await.unwrap();
            // A connection that breaks when the store is dropped is no error of the test.
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop) });
        }
    });
    tokio::time::timeout(FAILURE_MAX, opening).await.expect("it did not open").unwrap().unwrap();
    forwarding.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_something_else() {
    let silent = start_fake_server(Vec::new());
    let http = start_fake_server(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec());
    let verbose = start_fake_server(error_message("XX000", "first line\nsecond\tline \u{1b}[31m"));
    let starting = start_fake_server(error_message("57P03", "the database system is starting up"));
    let at = |port: u16| format!("postgres://ann:{PASSWORD}@127.0.0.1:{port}/agents?sslmode=disable");
    let advice = "check host and port in the URL";
    check_lines(&[
        (at(silent), &["it does not answer in time", advice]),
        (at(http), &["cannot connect to the database at 127.0.0.1", advice]),
        (at(http).replace("sslmode=disable", "sslmode=require"), &["no TLS connection", "check sslmode"]),
        (at(starting), &["the database system is starting up", "try again"]),
        (at(verbose), &["first line second line [31m (SQLSTATE XX000)", advice]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_that_cannot_be_used() {
    let [read_only, foreign, other_meta, number_meta, newer] = std::array::from_fn(|_| TestDatabase::create());
    let name = read_only.name();
    read_only.execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on;"));
    foreign.execute("CREATE SCHEMA headwater; CREATE TABLE headwater.rivers (name text);");
    other_meta.execute("CREATE SCHEMA headwater; CREATE TABLE headwater.meta (id integer);");
    number_meta.execute(
        "CREATE SCHEMA headwater; CREATE TABLE headwater.meta (name text, value integer);
         INSERT INTO headwater.meta VALUES ('schema_version', 1), ('compatible_since', 1);",
    );
    drop(PostgresStore::open(options(&newer)).await.unwrap());
    newer.execute("UPDATE headwater.meta SET value = '99';");
    let before = [&foreign, &other_meta, &number_meta].map(list_tables);
    let use_another = "of another program: use another database";
    check_lines(&[
        (read_only.url(), &["read-only", "default_transaction_read_only"]),
        (foreign.url(), &[use_another]),
        (other_meta.url(), &[use_another]),
        (number_meta.url(), &[use_another]),
        (newer.url(), &["schema version 99", "upgrade this program"]),
    ])
    .await;
    assert_eq!([&foreign, &other_meta, &number_meta].map(list_tables), before, "nothing changed");
}

fn list_tables(database: &TestDatabase) -> String {
    database
        .execute("SELECT relname, reltuples FROM pg_class WHERE relnamespace = 'headwater'::regnamespace ORDER BY 1")
}

/// A role that is dropped with everything that it owns.
struct TestRole<'a> {
    database: &'a TestDatabase,
    name: String,
}

impl<'a> TestRole<'a> {
    fn create(database: &'a TestDatabase, settings: &str) -> Self {
        let name = format!("role_of_{}", database.name());
        database.execute(&format!("CREATE ROLE {name} LOGIN {settings};"));
        Self { database, name }
    }

    fn url(&self) -> String {
        user_url(shared(), &self.name, self.database.name())
    }
}

impl Drop for TestRole<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        self.database.execute(&format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name};"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_without_the_rights_that_are_needed() {
    let database = TestDatabase::create();
    let role = TestRole::create(&database, "");
    check_lines(&[(
        role.url(),
        &["permission denied for database", "grant CREATE on the database, or create the schema"],
    )])
    .await;
    // As the message says.
    database.execute(&format!("CREATE SCHEMA headwater AUTHORIZATION {};", role.name));
    let options = PostgresOptions::new(role.url().parse().unwrap(), NodeId::from("node"));
    PostgresStore::open(options).await.unwrap().close().await;
}

/// The connection of the writer counts, too: without it, appends would wait forever.
#[tokio::test(flavor = "multi_thread")]
async fn servers_without_free_connections() {
    for limit in 0..=2 {
        let database = TestDatabase::create();
        let role = TestRole::create(&database, &format!("CONNECTION LIMIT {limit}"));
        database.execute(&format!("GRANT CREATE ON DATABASE {} TO {};", database.name(), role.name));
        check_lines(&[(role.url(), &["no free connections", "max_connections", "connections_max"])]).await;
        let is_left = || {
            let sql =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
            database.execute(sql) == "0"
        };
        super::writers::poll_until("the connections end", is_left).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_with_another_encoding() {
    let database = TestDatabase::create();
    let name = format!("{}_latin", database.name());
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;");
    shared().execute("postgres", &create);
    check_lines(&[(shared().url(&name), &["encoding LATIN1", "ENCODING 'UTF8'"])]).await;
    shared().execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE);"));
}
