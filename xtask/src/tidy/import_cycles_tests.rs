use super::*;
use crate::tidy::product_code::product_files;
use crate::tidy::source_file;

fn cycles(files: &[(&str, &str)], allowed: &[AllowedCycle]) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(path, text)| source_file(&format!("crates/a/src/{path}"), text)).collect();
    let files = product_files(&files);
    let files: Vec<_> = files.iter().collect();
    check_crate("a", &files, allowed).into_iter().map(|finding| finding.message).collect()
}

#[test]
fn a_cycle_of_any_length_is_found_with_its_files() {
    let findings = cycles(
        &[
            ("x.rs", "use crate::y::Y;\n"),
            ("y.rs", "mod deep;\n"),
            ("y/deep.rs", "use crate::{w, z::{self, Z}};\n"),
            ("z.rs", "fn f() { crate::x::g() }\n"),
            ("w.rs", ""),
        ],
        &[],
    );
    assert_eq!(
        findings,
        ["modules of a import each other in a circle: x -> y (x.rs), y -> z (y/deep.rs), z -> x (z.rs)"]
    );
}

#[test]
fn acyclic_modules_pass() {
    let files = [
        ("lib.rs", "mod x;\nmod y;\npub use x::X;\n"),
        ("x.rs", "use crate::y::{Y, x::inner};\n// crate::z\n"),
        ("y.rs", "use other_crate::x::X;\nuse model::x::Y;\n"),
        ("y/deep.rs", "use super::x::inner;\nconst S: &str = \"crate::x\";\n"),
        ("bin/tool.rs", "use a::x;\n"),
    ];
    assert_eq!(cycles(&files, &[]), [""; 0]);
}

#[test]
fn super_resolves_to_the_root_from_any_depth() {
    assert_eq!(cycles(&[("x.rs", "use super::y::Y;\n"), ("y/deep.rs", "use super::super::x::X;\n")], &[]).len(), 1);
    assert_eq!(cycles(&[("x.rs", "use super::y::Y;\n"), ("y/deep.rs", "use super::x::X;\n")], &[]).len(), 0);
}

#[test]
fn a_name_that_the_root_reexports_counts_as_its_module() {
    let root = "mod x;\nmod y;\npub use self::x::{Inner as Renamed, X};\npub(crate) use y::deep::Y;\n";
    let one_way = ("x.rs", "use crate::{Y};\n");
    assert_eq!(cycles(&[("lib.rs", root), one_way, ("y.rs", "use crate::Renamed;\n")], &[]).len(), 1);
    assert_eq!(cycles(&[("lib.rs", root), one_way, ("y.rs", "use crate::Inner;\n")], &[]).len(), 0);
}

#[test]
fn imports_of_tests_do_not_count() {
    let tested = "#[cfg(test)]\nmod tests {\n    use crate::y;\n}\n";
    assert_eq!(cycles(&[("x.rs", tested), ("y.rs", "use crate::x;\n")], &[]), [""; 0]);
}

#[test]
fn an_allowed_cycle_passes_and_a_larger_one_does_not() {
    let allowed = [AllowedCycle { crate_name: "a", modules: &["x", "y"], reason: "each is a case of the other" }];
    let mut files = vec![("x.rs", "use crate::y;\n"), ("y.rs", "use crate::x;\n"), ("z.rs", "use crate::x;\n")];
    assert_eq!(cycles(&files, &allowed), [""; 0]);
    files[0].1 = "use crate::{y, z};\n";
    assert_eq!(cycles(&files, &allowed).len(), 1);
}

#[test]
fn a_crate_has_at_most_one_small_allowed_cycle() {
    let crates: BTreeSet<_> = ALLOWED_CYCLES.iter().map(|cycle| cycle.crate_name).collect();
    assert_eq!(crates.len(), ALLOWED_CYCLES.len());
    assert!(ALLOWED_CYCLES.iter().all(|cycle| cycle.modules.len() <= 3 && cycle.reason.len() > 20));
}
