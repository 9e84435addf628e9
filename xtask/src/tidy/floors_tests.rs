use super::*;
use crate::tidy::source_file;
use crate::workspace::fixture::{fake_metadata, member_package, registry_package};

const NORMAL: Option<DependencyKind> = None;
const DEV: Option<DependencyKind> = Some(DependencyKind::Dev);

fn findings_for(folder: &str, dependencies: &[(&str, Option<DependencyKind>)]) -> Vec<String> {
    let metadata = fake_metadata(vec![member_package(folder, dependencies)], &[]);
    check_floors(&metadata, &[]).into_iter().map(|finding| finding.message).collect()
}

#[test]
fn the_table_itself_points_down() {
    for from in CRATE_FLOORS {
        for seen in from.depends_on {
            let floor = find_floor(seen).expect("a crate of the table").floor;
            assert!(floor < from.floor, "{} sees {seen}", from.name);
        }
        assert!(!from.depends_on.contains(&"server"), "{} sees server", from.name);
    }
    let engine = find_floor("engine").unwrap();
    assert_eq!(engine.depends_on, ["model", "schema", "machine", "heavy-work"]);
}

#[test]
fn the_dependencies_of_the_design_pass() {
    assert_eq!(findings_for("crates/engine", &[("model", NORMAL), ("machine", NORMAL), ("store", DEV)]), [""; 0]);
    assert_eq!(findings_for("crates/server", &[("engine", NORMAL), ("store", NORMAL), ("model", NORMAL)]), [""; 0]);
    assert_eq!(findings_for("crates/providers", &[("model", NORMAL), ("upstream", NORMAL)]), [""; 0]);
}

#[test]
fn engine_may_not_see_protocol_store_providers_or_tools() {
    for to in ["protocol", "store", "providers", "tools"] {
        let findings = findings_for("crates/engine", &[(to, NORMAL)]);
        assert_eq!(
            findings,
            [format!("engine may not depend on {to}: use a port of model, and let server connect the two")]
        );
    }
}

#[test]
fn upward_and_sideways_dependencies_are_distinguished() {
    assert!(findings_for("crates/model", &[("store", NORMAL)])[0].contains("may not depend on store (floor 2)"));
    assert!(findings_for("crates/tools", &[("store", NORMAL)])[0].contains("are on one floor"));
}

#[test]
fn dev_dependencies_may_point_down_and_engine_tests_may_use_real_crates() {
    assert_eq!(findings_for("crates/machine", &[("store", DEV), ("providers", DEV), ("tools", DEV)]), [""; 0]);
    assert_eq!(findings_for("crates/store", &[("machine", DEV)]), [""; 0]);
    assert_eq!(findings_for("crates/protocol", &[("store", DEV)]).len(), 1);
    assert_eq!(findings_for("crates/store", &[("tools", DEV)]).len(), 1);
    assert_eq!(findings_for("crates/model", &[("machine", DEV)]).len(), 1);
}

#[test]
fn development_crates_are_for_tests_alone() {
    assert_eq!(findings_for("crates/model", &[("model-testing", DEV)]), [""; 0]);
    assert_eq!(findings_for("crates/store", &[("store-conformance", DEV)]), [""; 0]);
    assert!(findings_for("crates/store", &[("store-conformance", NORMAL)])[0].contains("make it a dev-dependency"));
    assert_eq!(findings_for("bench", &[("store-conformance", NORMAL)]), [""; 0]);
}

#[test]
fn a_crate_without_a_floor_is_reported() {
    assert!(findings_for("crates/utils", &[])[0].contains("has no floor"));
}

#[test]
fn an_io_dependency_is_found_at_any_depth_with_its_path() {
    let packages =
        vec![member_package("crates/protocol", &[]), registry_package("codec", None), registry_package("tokio", None)];
    let metadata = fake_metadata(packages, &[("protocol", "codec", NORMAL), ("codec", "tokio", NORMAL)]);
    let findings = check_floors(&metadata, &[]);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("pulls in codec → tokio"), "{}", findings[0]);
}

#[test]
fn only_model_must_be_pure_in_its_tests_too() {
    for (folder, expected) in [("crates/model", 1), ("crates/machine", 0)] {
        let name = folder.trim_start_matches("crates/");
        let packages = vec![member_package(folder, &[]), registry_package("tokio", None)];
        let metadata = fake_metadata(packages, &[(name, "tokio", DEV)]);
        assert_eq!(check_floors(&metadata, &[]).len(), expected, "{folder}");
    }
}

#[test]
fn the_tests_of_a_dependency_do_not_count() {
    let packages =
        vec![member_package("crates/model", &[]), registry_package("bytes", None), registry_package("tokio", None)];
    let metadata = fake_metadata(packages, &[("model", "bytes", NORMAL), ("bytes", "tokio", DEV)]);
    assert_eq!(check_floors(&metadata, &[]), []);
}

#[test]
fn a_finding_has_the_line_of_the_manifest() {
    let manifest = "[dependencies]\nmodel.workspace = true\n\n[dev-dependencies]\nmodel.workspace = true\ntools.workspace = true\n";
    let metadata = fake_metadata(vec![member_package("crates/store", &[("tools", DEV)])], &[]);
    let findings = check_floors(&metadata, &[source_file("crates/store/Cargo.toml", manifest)]);
    assert_eq!((findings[0].file.as_str(), findings[0].line), ("crates/store/Cargo.toml", 6));
}
