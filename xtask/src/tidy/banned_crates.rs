//! Crates that we decided against, each with its reason.

use super::{LOCK_FILE, file_text};
use crate::finding::{TidyFinding, find_line};
use crate::workspace::{Metadata, SourceFile};

/// (crate, reason and alternative). Checked over the whole graph, transitive dependencies included.
const BANNED_CRATES: &[(&str, &str)] = &[
    ("openssl", "a C library that a fresh machine lacks: TLS is rustls here"),
    ("openssl-sys", "a C library that a fresh machine lacks: TLS is rustls here"),
    ("native-tls", "another TLS stack on every platform: TLS is rustls here"),
    ("rsa", "RUSTSEC-2023-0071, a timing attack without a fix: use the aws-lc-rs backend of whatever pulled it in"),
    ("sqlx", "its SQLite cannot be linked beside ours, and a second driver is a second way: use rusqlite"),
    ("eventsource-stream", "`sse` is the one SSE codec: two would differ at the edges"),
    ("reqwest-eventsource", "it reconnects by itself, and what is retried is for the machine to decide: use `sse`"),
    ("serde_yaml", "archived by its author: config files are TOML"),
];

/// The feature that plants defects for `cargo xtask defects`.
const DEFECTS_FEATURE: &str = "defects";

/// Reports banned crates, packages from outside the registry, and planted defects that could be shipped.
pub(crate) fn check_banned_crates(metadata: &Metadata, files: &[SourceFile]) -> Vec<TidyFinding> {
    let lock_file = file_text(files, LOCK_FILE).unwrap_or_default();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let line = find_line(lock_file, |line| line == format!("name = \"{}\"", package.name));
        if let Some((name, reason)) = BANNED_CRATES.iter().find(|(name, _)| *name == package.name) {
            let what =
                format!("{name} is banned: {reason} (`cargo tree --workspace -i {name}` shows what depends on it)");
            findings.push(TidyFinding::error(LOCK_FILE, line, what));
        }
        // A git branch can change or vanish; a published version cannot.
        let published = |source: &String| source.starts_with("registry+") || source.starts_with("sparse+");
        if package.source.as_ref().is_some_and(|source| !published(source)) {
            let what = format!("{} does not come from the registry: depend on a published version", package.name);
            findings.push(TidyFinding::error(LOCK_FILE, line, what));
        }
    }
    findings.extend(shippable_defects(metadata, files));
    findings
}

/// The feature is for test runs alone: no default feature and no normal dependency may enable it.
fn shippable_defects(metadata: &Metadata, files: &[SourceFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in metadata.members() {
        let manifest = format!("{}/Cargo.toml", metadata.folder(package));
        let by_default =
            package.features.get("default").is_some_and(|features| features.iter().any(|f| f == DEFECTS_FEATURE));
        let by_dependency =
            package.dependencies.iter().any(|d| d.kind.is_none() && d.features.iter().any(|f| f == DEFECTS_FEATURE));
        if by_default || by_dependency {
            let text = file_text(files, &manifest).unwrap_or_default();
            let line = find_line(text, |line| line.contains(&format!("\"{DEFECTS_FEATURE}\"")));
            let what =
                format!("feature `{DEFECTS_FEATURE}` would be in the shipped binary: only a test run may enable it");
            findings.push(TidyFinding::error(&manifest, line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source_file;
    use crate::workspace::fixture::{fake_metadata, member_package, registry_package};

    #[test]
    fn a_banned_crate_is_reported_with_its_reason_at_any_depth() {
        let packages = vec![member_package("crates/server", &[]), registry_package("openssl-sys", Some("MIT"))];
        let lock_file = source_file(LOCK_FILE, "[[package]]\nname = \"openssl-sys\"\n");
        let findings = check_banned_crates(&fake_metadata(packages, &[]), &[lock_file]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].message.contains("TLS is rustls here"), "{}", findings[0]);
    }

    #[test]
    fn a_package_from_a_git_branch_is_refused() {
        let mut package = registry_package("forked", Some("MIT"));
        package.source = Some("git+https://git.example/forked?branch=main".to_owned());
        let findings = check_banned_crates(&fake_metadata(vec![package], &[]), &[]);
        assert!(findings[0].message.contains("published version"), "{}", findings[0]);
    }

    #[test]
    fn defects_may_be_declared_but_not_switched_on() {
        let mut engine = member_package("crates/engine", &[("store", None)]);
        engine.features.insert(DEFECTS_FEATURE.to_owned(), vec!["store/defects".to_owned()]);
        assert_eq!(check_banned_crates(&fake_metadata(vec![engine.clone()], &[]), &[]), []);

        let mut by_default = engine.clone();
        by_default.features.insert("default".to_owned(), vec![DEFECTS_FEATURE.to_owned()]);
        assert_eq!(check_banned_crates(&fake_metadata(vec![by_default], &[]), &[]).len(), 1);

        engine.dependencies[0].features.push(DEFECTS_FEATURE.to_owned());
        assert_eq!(check_banned_crates(&fake_metadata(vec![engine], &[]), &[]).len(), 1);
    }
}
