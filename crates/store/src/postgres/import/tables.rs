//! The tables of a folder, and what they are in a database.
//!
//! Threads and runs keep their numbers, and rows of inboxes theirs. What a folder does not have: nodes and leases. What is not
//! copied: records of threads (`folder_reader` reads them from rows and blocks), sums (they are counted), condensed blocks.

use super::row_batch::ColumnKind::{Bigint, Boolean, Bytes, Integer, NumberText, Numeric, Text};
use super::row_batch::ImportTable;

/// A server that was started with the empty database has written rows that mean the same.
const KEEP: &str = "ON CONFLICT DO NOTHING";

/// The rows are completed with what the records of the thread are: see `folder_reader`.
pub(crate) static THREADS: ImportTable = ImportTable {
    name: "threads",
    columns: &[
        ("num", Bigint),
        ("id", Text),
        ("owner", Text),
        ("created_at", Bigint),
        ("updated_at", Bigint),
        ("wake_at", Bigint),
        ("epoch", Bigint),
        ("head", Bigint),
        ("appends", Bigint),
        ("log_bytes", Bigint),
    ],
    select: "SELECT num, id, owner, created_at, updated_at, wake_at FROM threads ORDER BY num",
    since: 2,
    on_conflict: "",
};

/// The tables that are copied row by row.
pub(crate) static PLAIN_TABLES: [ImportTable; 17] = [
    ImportTable {
        name: "runs",
        columns: &[
            ("num", Bigint),
            ("id", Text),
            ("owner", Text),
            ("thread", Bigint),
            ("agent", Text),
            ("status", Text),
            ("first_seq", Bigint),
            ("last_seq", Bigint),
            ("created_at", Bigint),
            ("ended_at", Bigint),
        ],
        select: "SELECT num, id, owner, thread, agent, status, first, last, created_at, ended_at FROM runs ORDER BY num",
        since: 1,
        on_conflict: "",
    },
    ImportTable {
        name: "attachments",
        columns: &[
            ("owner", Text),
            ("path", Text),
            ("name", Bytes),
            ("content_type", Text),
            ("bytes", Bigint),
            ("created_at", Bigint),
            ("hash", Text),
            ("released", Boolean),
        ],
        select: "SELECT owner, path, name, content_type, bytes, created_at, hash, released FROM attachments",
        since: 6,
        on_conflict: "",
    },
    ImportTable {
        name: "attachment_links",
        columns: &[("owner", Text), ("thread", Text), ("path", Text)],
        // A crash leaves links of threads that were never created.
        select: "SELECT owner, thread, path FROM attachment_uses u
                 WHERE EXISTS (SELECT 1 FROM threads t WHERE t.id = u.thread AND t.owner = u.owner)",
        since: 6,
        on_conflict: "",
    },
    ImportTable {
        name: "inbox",
        columns: &[("id", Bigint), ("thread", Bigint), ("at", Bigint), ("command", Text)],
        select: "SELECT id, thread, at, command FROM inbox ORDER BY id",
        since: 1,
        on_conflict: "",
    },
    ImportTable {
        name: "idempotency",
        columns: &[
            ("owner", Text),
            ("key", Bytes),
            ("digest", Text),
            ("task", Text),
            ("thread", Bigint),
            ("at", Bigint),
        ],
        select: "SELECT owner, key, digest, task, thread, at FROM idempotency",
        since: 1,
        on_conflict: "",
    },
    ImportTable {
        name: "checkpoints",
        columns: &[("thread", Bigint), ("seq", Bigint), ("body", Text)],
        select: "SELECT thread, seq, body FROM checkpoints ORDER BY thread",
        since: 1,
        on_conflict: "",
    },
    ImportTable {
        name: "checkpoint_runs",
        columns: &[("thread", Bigint), ("idx", Bigint), ("body", Text)],
        select: "SELECT thread, idx, body FROM checkpoint_runs",
        since: 9,
        on_conflict: "",
    },
    ImportTable {
        name: "approvals",
        columns: &[
            ("owner", Text),
            ("key", Text),
            ("thread", Bigint),
            ("run", Text),
            ("task", Text),
            ("call", Text),
            ("action", Text),
            ("requested_at", Bigint),
            ("expires_at", Bigint),
            ("answer", Text),
        ],
        select: "SELECT owner, key, thread, run, task, call, action, requested_at, expires_at, answer FROM approvals",
        since: 2,
        on_conflict: "",
    },
    ImportTable {
        name: "client_results",
        columns: &[("thread", Bigint), ("call", Text), ("digest", Text)],
        select: "SELECT thread, call, digest FROM client_results",
        since: 7,
        on_conflict: "",
    },
    ImportTable {
        name: "spent",
        columns: &[
            ("owner", Text),
            ("day", Integer),
            ("node", Text),
            ("input", Numeric),
            ("cached", Numeric),
            ("cache_write", Numeric),
            ("output", Numeric),
            ("reasoning", Numeric),
            ("cost", Numeric),
        ],
        // Each node adds to rows of its own, and no node has this name.
        select: "SELECT owner, day, 'import', input, cached, cache_write, output, reasoning, cost FROM spent",
        since: 2,
        on_conflict: "",
    },
    ImportTable {
        name: "definitions",
        columns: &[("digest", Text), ("body", Bytes)],
        select: "SELECT digest, body FROM definitions",
        since: 2,
        on_conflict: KEEP,
    },
    ImportTable {
        name: "shares",
        columns: &[
            ("id", Text),
            ("thread", Bigint),
            ("digest", Text),
            ("until_seq", Bigint),
            ("created_at", Bigint),
            ("expires_at", Bigint),
            ("revoked_at", Bigint),
        ],
        select: "SELECT id, thread, digest, until, created_at, expires_at, revoked_at FROM shares",
        since: 4,
        on_conflict: "",
    },
    ImportTable {
        name: "access_keys",
        columns: &[("id", Text), ("owner", Text), ("digest", Text), ("created_at", Bigint), ("revoked_at", Bigint)],
        select: "SELECT id, user, digest, created_at, revoked_at FROM keys",
        since: 1,
        on_conflict: KEEP,
    },
    ImportTable {
        name: "user_secrets",
        // Versions are the database's own; what waits for an answer of a browser is left behind.
        columns: &[
            ("owner", Text),
            ("kind", Text),
            ("name", Text),
            ("body", Bytes),
            ("updated_at", Bigint),
            ("expires_at", Bigint),
        ],
        select: "SELECT owner, kind, name, body, updated_at, expires_at FROM user_secrets
                 WHERE kind <> 'mcp_authorization' ORDER BY version",
        since: 11,
        on_conflict: "",
    },
    ImportTable {
        name: "mcp_pins",
        columns: &[("owner", Text), ("server", Text), ("tool", Text), ("digest", Text), ("at", Bigint)],
        select: "SELECT owner, server, tool, digest, at FROM mcp_pins",
        since: 12,
        on_conflict: "",
    },
    ImportTable {
        name: "aliases",
        columns: &[
            ("owner", Text),
            ("kind", Text),
            ("name", Bytes),
            ("thread", Text),
            ("data", Text),
            ("created_at", Bigint),
        ],
        select: "SELECT owner, protocol, name, thread, note, created_at FROM names",
        since: 3,
        on_conflict: "",
    },
    ImportTable {
        name: "meta",
        columns: &[("name", Text), ("value", NumberText)],
        select: "SELECT name, value FROM meta WHERE name = 'retention_time'",
        since: 1,
        on_conflict: "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    },
];
