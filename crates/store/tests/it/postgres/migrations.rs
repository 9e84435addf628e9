//! The schema: created once, by the first node that starts, and shared by versions that understand it.

use super::{create_thread, options};
use futures_util::future::join_all;
use model::NodeId;
use model::ports::Accounts as _;
use postgres_testing::TestDatabase;
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::LogWriter;

const STORES: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_open_an_empty_database_at_once_create_its_schema_once() {
    let database = TestDatabase::create();
    // Counts every migration. It has to be in another schema, and only a superuser may create it.
    database.execute(
        "CREATE TABLE public.created (name text);
         CREATE FUNCTION public.note_table() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.created SELECT object_identity FROM pg_event_trigger_ddl_commands();
         END $$;
         CREATE EVENT TRIGGER note_table ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION public.note_table();",
    );
    let opened = join_all((0..STORES).map(|n| {
        let node = NodeId::from(format!("node-{n}"));
        let options = PostgresOptions { node, connections_max: 1, ..options(&database) };
        PostgresStore::open(options)
    }))
    .await;
    let stores: Vec<PostgresStore> = opened.into_iter().map(Result::unwrap).collect();
    assert_eq!(database.execute("SELECT count(*) FROM public.created WHERE name = 'headwater.records'"), "1");
    assert_eq!(database.execute("SELECT count(*) FROM headwater.nodes"), STORES.to_string());
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(store.access_keys().await.unwrap(), [], "store {n}");
        store.close().await;
    }
}

/// The schema of a version that this one does not know.
fn make_newer(database: &TestDatabase, compatible_since: usize) {
    database.execute(&format!(
        "UPDATE headwater.meta SET value = '4' WHERE name = 'schema_version';
         UPDATE headwater.meta SET value = '{compatible_since}' WHERE name = 'compatible_since';
         ALTER TABLE headwater.threads ADD COLUMN colour text;
         ALTER TABLE headwater.records ADD COLUMN colour text NOT NULL DEFAULT 'blue';
         ALTER TABLE headwater.inbox ADD COLUMN colour text;
         CREATE TABLE headwater.colours (name text);"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_works_with_a_newer_schema_that_is_compatible() {
    let database = TestDatabase::create();
    // A rolling upgrade: one node runs while another one migrates.
    let running = PostgresStore::open(options(&database)).await.unwrap();
    let mut writer = LogWriter::new(&running, &running, 1).await;
    let mut known = writer.start_run().must_append().await;
    make_newer(&database, 1);
    known.extend(writer.push_notes(3).must_append().await);
    assert_eq!(writer.read_all().await, known);

    let started =
        PostgresStore::open(PostgresOptions { node: NodeId::from("other"), ..options(&database) }).await.unwrap();
    create_thread(&started, 2).await.start_run().must_append().await;
    assert_eq!(database.execute("SELECT value FROM headwater.meta WHERE name = 'schema_version'"), "4");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_refuses_a_newer_schema_that_is_not_compatible() {
    let database = TestDatabase::create();
    PostgresStore::open(options(&database)).await.unwrap().close().await;
    make_newer(&database, 4);
    let refused = PostgresStore::open(options(&database)).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("schema version 4, this program knows 3: upgrade this program"), "{refused}");
    assert_eq!(database.execute("SELECT count(*) FROM headwater.nodes"), "0", "nothing changed");
}
