use super::*;
use crate::tidy::file;
use crate::workspace::fixture::{foreign, member, workspace};

const NORMAL: Option<Kind> = None;
const DEV: Option<Kind> = Some(Kind::Dev);

fn complaints_about(folder: &str, dependencies: &[(&str, Option<Kind>)]) -> Vec<String> {
    let metadata = workspace(vec![member(folder, dependencies)], &[]);
    check(&metadata, &[]).into_iter().map(|complaint| complaint.what).collect()
}

#[test]
fn the_house_itself_points_down_and_siblings_never_touch() {
    for room in HOUSE {
        for seen in room.sees {
            let floor = super::room(seen).expect("a crate of the house").floor;
            assert!(floor < room.floor, "{} sees {seen}", room.name);
        }
        assert!(!room.sees.contains(&"server"), "{} sees server", room.name);
    }
    let engine = room("engine").unwrap();
    assert_eq!(engine.sees, ["model", "machine"]);
}

#[test]
fn the_arrows_of_the_design_are_fine() {
    assert_eq!(complaints_about("crates/engine", &[("model", NORMAL), ("machine", NORMAL), ("store", DEV)]), [""; 0]);
    assert_eq!(complaints_about("crates/server", &[("engine", NORMAL), ("store", NORMAL), ("model", NORMAL)]), [""; 0]);
    assert_eq!(complaints_about("crates/providers", &[("model", NORMAL), ("protocol", NORMAL)]), [""; 0]);
}

#[test]
fn engine_may_not_see_protocol_store_providers_or_tools() {
    for to in ["protocol", "store", "providers", "tools"] {
        let complaints = complaints_about("crates/engine", &[(to, NORMAL)]);
        assert_eq!(
            complaints,
            [format!("engine may not see {to}: use a port of model, and let server bring the two together")]
        );
    }
}

#[test]
fn an_arrow_up_and_an_arrow_sideways_are_told_apart() {
    assert!(complaints_about("crates/model", &[("store", NORMAL)])[0].contains("may not look up at store"));
    assert!(complaints_about("crates/tools", &[("store", NORMAL)])[0].contains("are siblings"));
}

#[test]
fn tests_may_look_down_and_the_run_loop_may_be_tested_on_real_things() {
    assert_eq!(complaints_about("crates/machine", &[("store", DEV), ("providers", DEV), ("tools", DEV)]), [""; 0]);
    assert_eq!(complaints_about("crates/store", &[("machine", DEV)]), [""; 0]);
    assert_eq!(complaints_about("crates/protocol", &[("store", DEV)]).len(), 1);
    assert_eq!(complaints_about("crates/store", &[("tools", DEV)]).len(), 1);
    assert_eq!(complaints_about("crates/model", &[("machine", DEV)]).len(), 1);
}

#[test]
fn a_crate_without_a_floor_is_reported() {
    assert!(complaints_about("crates/utils", &[])[0].contains("has no floor"));
}

#[test]
fn io_below_is_found_however_deep_and_the_way_is_shown() {
    let packages = vec![member("crates/protocol", &[]), foreign("codec", None), foreign("tokio", None)];
    let metadata = workspace(packages, &[("protocol", "codec", NORMAL), ("codec", "tokio", NORMAL)]);
    let complaints = check(&metadata, &[]);
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].what.contains("pulls in codec → tokio"), "{}", complaints[0]);
}

#[test]
fn only_model_must_be_pure_in_its_tests_too() {
    for (folder, expected) in [("crates/model", 1), ("crates/machine", 0)] {
        let name = folder.trim_start_matches("crates/");
        let packages = vec![member(folder, &[]), foreign("tokio", None)];
        let metadata = workspace(packages, &[(name, "tokio", DEV)]);
        assert_eq!(check(&metadata, &[]).len(), expected, "{folder}");
    }
}

#[test]
fn the_tests_of_a_dependency_do_not_count() {
    let packages = vec![member("crates/model", &[]), foreign("bytes", None), foreign("tokio", None)];
    let metadata = workspace(packages, &[("model", "bytes", NORMAL), ("bytes", "tokio", DEV)]);
    assert_eq!(check(&metadata, &[]), []);
}

#[test]
fn a_complaint_points_at_the_line_of_the_manifest() {
    let manifest = "[dependencies]\nmodel.workspace = true\n\n[dev-dependencies]\nmodel.workspace = true\ntools.workspace = true\n";
    let metadata = workspace(vec![member("crates/store", &[("tools", DEV)])], &[]);
    let complaints = check(&metadata, &[file("crates/store/Cargo.toml", manifest)]);
    assert_eq!((complaints[0].file.as_str(), complaints[0].line), ("crates/store/Cargo.toml", 6));
}
