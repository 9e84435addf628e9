//! Do all dependencies between our crates point down?
//!
//! [`CRATE_FLOORS`] is the whole rule. A normal dependency must be listed in `depends_on`: crates on one floor do not
//! know each other, the engine reaches store, providers and tools through the ports of `model` alone, and only
//! `server` sees everything. A dev-dependency may point to any lower floor and to what `tests_depend_on` lists; the run
//! loop is tested with real stores, providers and tools. [`DEV_CRATES`] may only be dev-dependencies.
//! [`PURE_CRATES`] do no I/O, `model` not even in its tests.

use std::collections::{BTreeMap, VecDeque};

use super::file_text;
use super::product_code::DEV_CRATES;
use crate::finding::{TidyFinding, find_line};
use crate::workspace::{Dependency, DependencyKind, Metadata, Package, SourceFile};

/// A crate and the workspace crates that it may depend on.
struct CrateFloor {
    name: &'static str,
    floor: u8,
    depends_on: &'static [&'static str],
    tests_depend_on: &'static [&'static str],
}

const LIBRARIES: &[&str] = &[
    "model",
    "sse",
    "schema",
    "heavy-work",
    "protocol",
    "upstream",
    "machine",
    "store",
    "providers",
    "tools",
    "fetch",
    "files",
    "client",
    "engine",
    "mcp",
    "gateway",
];
const GATEWAY_DEPENDENCIES: &[&str] =
    &["model", "sse", "schema", "protocol", "upstream", "heavy-work", "fetch", "files", "engine"];
const REAL_BACKENDS: &[&str] = &["store", "memory-store", "providers", "tools"];

/// From the ground up. No crate depends on `bench`, `chaos`, `siege` or `xtask`. `bench` knows the server from outside, except for the
/// store, whose appends it compares with a bare disk.
const CRATE_FLOORS: &[CrateFloor] = &[
    CrateFloor { name: "model", floor: 0, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "sse", floor: 0, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "schema", floor: 0, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "heavy-work", floor: 1, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "protocol", floor: 1, depends_on: &["model", "sse"], tests_depend_on: &["upstream"] },
    CrateFloor { name: "upstream", floor: 1, depends_on: &["model", "sse"], tests_depend_on: &[] },
    CrateFloor { name: "machine", floor: 1, depends_on: &["model", "schema"], tests_depend_on: REAL_BACKENDS },
    CrateFloor { name: "store", floor: 2, depends_on: &["model"], tests_depend_on: &["memory-store"] },
    CrateFloor {
        name: "providers",
        floor: 2,
        depends_on: &["model", "sse", "upstream", "heavy-work"],
        tests_depend_on: &[],
    },
    CrateFloor { name: "tools", floor: 2, depends_on: &["model", "sse"], tests_depend_on: &[] },
    CrateFloor { name: "files", floor: 2, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "client", floor: 2, depends_on: &["model", "sse", "protocol"], tests_depend_on: &[] },
    CrateFloor { name: "fetch", floor: 2, depends_on: &[], tests_depend_on: &[] },
    CrateFloor {
        name: "engine",
        floor: 3,
        depends_on: &["model", "schema", "machine", "heavy-work"],
        tests_depend_on: REAL_BACKENDS,
    },
    CrateFloor {
        name: "mcp",
        floor: 3,
        depends_on: &["model", "sse", "schema", "tools", "fetch"],
        tests_depend_on: &["memory-store"],
    },
    CrateFloor { name: "gateway", floor: 4, depends_on: GATEWAY_DEPENDENCIES, tests_depend_on: &["store"] },
    CrateFloor { name: "server", floor: 5, depends_on: LIBRARIES, tests_depend_on: &[] },
    CrateFloor { name: "postgres-testing", floor: 0, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "model-testing", floor: 1, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor {
        name: "store-conformance",
        floor: 2,
        depends_on: &["model", "model-testing"],
        tests_depend_on: &["store"],
    },
    CrateFloor { name: "memory-store", floor: 3, depends_on: &["model", "store"], tests_depend_on: &[] },
    CrateFloor {
        name: "bench",
        floor: 6,
        depends_on: &["model", "store", "store-conformance", "postgres-testing"],
        tests_depend_on: &[],
    },
    CrateFloor { name: "chaos", floor: 6, depends_on: &["model-testing", "postgres-testing"], tests_depend_on: &[] },
    CrateFloor { name: "siege", floor: 6, depends_on: &["model-testing"], tests_depend_on: &[] },
    CrateFloor { name: "xtask", floor: 6, depends_on: &[], tests_depend_on: &[] },
];

/// Which of a crate's dependencies must be free of [`IO_CRATES`].
#[derive(Clone, Copy, PartialEq)]
enum PurityScope {
    Code,
    CodeAndTests,
}

/// Crates that do no I/O. `model` not even in its tests: they must stay fast enough to run at every keystroke.
const PURE_CRATES: &[(&str, PurityScope)] = &[
    ("model", PurityScope::CodeAndTests),
    ("sse", PurityScope::Code),
    ("schema", PurityScope::Code),
    ("protocol", PurityScope::Code),
    ("upstream", PurityScope::Code),
    ("machine", PurityScope::Code),
];

/// A pure crate with one of these in its tree could wait, open a socket or touch a disk.
const IO_CRATES: &[&str] = &["tokio", "mio", "hyper", "axum", "reqwest", "rusqlite"];

/// Reports dependencies that do not point down, and I/O in pure crates.
pub(crate) fn check_floors(metadata: &Metadata, files: &[SourceFile]) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in metadata.members() {
        let manifest = format!("{}/Cargo.toml", metadata.folder(package));
        let text = file_text(files, &manifest).unwrap_or_default();
        let Some(floor) = find_floor(&package.name) else {
            let what = format!("`{}` has no floor: give it a row in xtask/src/tidy/floors.rs", package.name);
            findings.push(TidyFinding::error(&manifest, 1, what));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            if let Err(what) = check_dependency(floor, dependency) {
                findings.push(TidyFinding::error(&manifest, dependency_line(text, dependency), what));
            }
        }
        if let Some((_, scope)) = PURE_CRATES.iter().find(|(name, _)| *name == floor.name) {
            findings.extend(io_dependency_paths(metadata, package, *scope).map(|path| {
                let what = format!(
                    "{} does no I/O, but pulls in {}: cut that edge, or move the code up a floor",
                    floor.name,
                    path.join(" → ")
                );
                TidyFinding::error(&manifest, 1, what)
            }));
        }
    }
    findings
}

fn find_floor(name: &str) -> Option<&'static CrateFloor> {
    CRATE_FLOORS.iter().find(|floor| floor.name == name)
}

fn check_dependency(from: &CrateFloor, dependency: &Dependency) -> Result<(), String> {
    let to = dependency.name.as_str();
    let floor = find_floor(to).map(|to| to.floor);
    let lower = floor.is_some_and(|floor| floor < from.floor);
    let allowed = match dependency.kind {
        // A crate that names itself switches on one of its own test features.
        Some(DependencyKind::Dev) => {
            lower || to == from.name || from.tests_depend_on.contains(&to) || DEV_CRATES.contains(&to)
        }
        None | Some(DependencyKind::Build) => from.depends_on.contains(&to),
    };
    if allowed {
        return Ok(());
    }
    let name = from.name;
    if DEV_CRATES.contains(&to) {
        return Err(format!("{name} may use {to} in its tests alone: make it a dev-dependency"));
    }
    Err(match floor {
        Some(floor) if floor > from.floor => {
            format!("{name} (floor {}) may not depend on {to} (floor {floor}): invert the dependency", from.floor)
        }
        Some(floor) if floor == from.floor => {
            format!("{name} and {to} are on one floor and may not depend on each other: move what they share down")
        }
        _ => format!("{name} may not depend on {to}: use a port of model, and let server connect the two"),
    })
}

/// The shortest path from `package` to each crate that does I/O.
///
/// The graph is that of the whole workspace with its features taken together, so it may show an edge that a build of
/// `package` alone would not have; it never hides one.
fn io_dependency_paths(
    metadata: &Metadata,
    package: &Package,
    scope: PurityScope,
) -> impl Iterator<Item = Vec<String>> {
    let names: BTreeMap<&str, &str> = metadata.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
    let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(package.id.as_str(), None)]);
    let mut queue = VecDeque::from([package.id.as_str()]);
    let mut found = Vec::new();
    while let Some(id) = queue.pop_front() {
        if names.get(id).is_some_and(|name| IO_CRATES.contains(name)) {
            found.push(dependency_path(&came_from, &names, id));
            continue;
        }
        // Only our own tests count: nobody builds the tests of a dependency.
        let tests_too = scope == PurityScope::CodeAndTests && id == package.id;
        let counts = |kind: Option<DependencyKind>| kind.is_none() || (tests_too && kind == Some(DependencyKind::Dev));
        let node = metadata.resolve.nodes.iter().find(|node| node.id == id);
        for dep in node.into_iter().flat_map(|node| &node.deps) {
            if dep.dep_kinds.iter().any(|dep_kind| counts(dep_kind.kind)) && !came_from.contains_key(dep.pkg.as_str()) {
                came_from.insert(&dep.pkg, Some(id));
                queue.push_back(&dep.pkg);
            }
        }
    }
    found.into_iter()
}

fn dependency_path(came_from: &BTreeMap<&str, Option<&str>>, names: &BTreeMap<&str, &str>, end: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut at = Some(end);
    while let Some(id) = at {
        steps.push((*names.get(id).unwrap_or(&id)).to_owned());
        at = came_from.get(id).copied().flatten();
    }
    steps.pop(); // the crate itself: the message begins with its name
    steps.reverse();
    steps
}

/// Where the manifest declares `dependency`.
fn dependency_line(manifest: &str, dependency: &Dependency) -> usize {
    let section = match dependency.kind {
        None => "dependencies",
        Some(DependencyKind::Dev) => "dev-dependencies",
        Some(DependencyKind::Build) => "build-dependencies",
    };
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            inside = header.trim_end_matches(']').ends_with(section) && !header.contains(&format!("-{section}"));
        }
        let named = line.strip_prefix(dependency.name.as_str());
        if inside && named.is_some_and(|rest| rest.starts_with([' ', '.', '='])) {
            return index + 1;
        }
    }
    find_line(manifest, |line| line.trim_start().starts_with(dependency.name.as_str()))
}

#[cfg(test)]
#[path = "floors_tests.rs"]
mod tests;
