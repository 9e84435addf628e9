//! Does every arrow between our crates point down?
//!
//! [`HOUSE`] is the whole rule. An ordinary dependency must be listed in `sees`, so that siblings never touch, the
//! engine reaches store, providers and tools through the ports of `model` alone, and only `server` sees everything.
//! A dev-dependency may point to any lower floor, because a test may look further down than what it tests; and the
//! run loop (`machine`, `engine`) may be tested against the real store, providers and tools, which `tests_see` says.
//! [`PURE`] says which crates do no I/O, and which of them not even in their tests.

use std::collections::{BTreeMap, VecDeque};

use super::file_text;
use crate::finding::{TidyFinding, find_line};
use crate::workspace::{Dependency, DependencyKind, Metadata, Package, SourceFile};

/// One crate and what it may know of the others.
struct CrateFloor {
    name: &'static str,
    floor: u8,
    depends_on: &'static [&'static str],
    tests_depend_on: &'static [&'static str],
}

const LIBRARIES: &[&str] = &["model", "protocol", "machine", "store", "providers", "tools", "fetch", "files", "engine"];
const REAL_BACKENDS: &[&str] = &["store", "providers", "tools"];

/// From the ground up. `bench` and `xtask` stand beside the house: nobody sees them, and `bench` knows the server from
/// outside, all but the store, whose appends it holds against a bare disk.
const CRATE_FLOORS: &[CrateFloor] = &[
    CrateFloor { name: "model", floor: 0, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "protocol", floor: 1, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "machine", floor: 1, depends_on: &["model"], tests_depend_on: REAL_BACKENDS },
    CrateFloor { name: "store", floor: 2, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "providers", floor: 2, depends_on: &["model", "protocol"], tests_depend_on: &[] },
    CrateFloor { name: "tools", floor: 2, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "files", floor: 2, depends_on: &["model"], tests_depend_on: &[] },
    CrateFloor { name: "fetch", floor: 2, depends_on: &[], tests_depend_on: &[] },
    CrateFloor { name: "engine", floor: 3, depends_on: &["model", "machine"], tests_depend_on: REAL_BACKENDS },
    CrateFloor { name: "server", floor: 4, depends_on: LIBRARIES, tests_depend_on: &[] },
    CrateFloor { name: "bench", floor: 5, depends_on: &["model", "store"], tests_depend_on: &[] },
    CrateFloor { name: "xtask", floor: 5, depends_on: &[], tests_depend_on: &[] },
];

/// Which of a crate's dependencies must be free of [`IO`].
#[derive(Clone, Copy, PartialEq)]
enum PurityScope {
    Code,
    CodeAndTests,
}

/// The floors that do no I/O. `model` not even in its tests: they must stay fast enough to run at every keystroke.
const PURE_CRATES: &[(&str, PurityScope)] =
    &[("model", PurityScope::CodeAndTests), ("protocol", PurityScope::Code), ("machine", PurityScope::Code)];

/// A pure crate with one of these in its tree could wait, open a socket or touch a disk.
const IO_CRATES: &[&str] = &["tokio", "mio", "hyper", "axum", "reqwest", "rusqlite"];

/// Complains about arrows that do not point down, and about I/O on the pure floors.
pub(crate) fn check_floors(metadata: &Metadata, files: &[SourceFile]) -> Vec<TidyFinding> {
    let mut complaints = Vec::new();
    for package in metadata.members() {
        let manifest = format!("{}/Cargo.toml", metadata.folder(package));
        let text = file_text(files, &manifest).unwrap_or_default();
        let Some(room) = find_floor(&package.name) else {
            let what = format!("`{}` has no floor: give it a row in xtask/src/tidy/floors.rs", package.name);
            complaints.push(TidyFinding::error(&manifest, 1, what));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            if let Err(what) = check_dependency(room, dependency) {
                complaints.push(TidyFinding::error(&manifest, dependency_line(text, dependency), what));
            }
        }
        if let Some((_, reach)) = PURE_CRATES.iter().find(|(name, _)| *name == room.name) {
            complaints.extend(io_dependency_paths(metadata, package, *reach).map(|way| {
                let what = format!(
                    "{} does no I/O, but pulls in {}: cut that edge, or move the code up a floor",
                    room.name,
                    way.join(" → ")
                );
                TidyFinding::error(&manifest, 1, what)
            }));
        }
    }
    complaints
}

fn find_floor(name: &str) -> Option<&'static CrateFloor> {
    CRATE_FLOORS.iter().find(|room| room.name == name)
}

fn check_dependency(from: &CrateFloor, dependency: &Dependency) -> Result<(), String> {
    let to = dependency.name.as_str();
    let floor = find_floor(to).map(|room| room.floor);
    let lower = floor.is_some_and(|floor| floor < from.floor);
    let allowed = match dependency.kind {
        // A crate that names itself switches on one of its own test features.
        Some(DependencyKind::Dev) => lower || to == from.name || from.tests_depend_on.contains(&to),
        None | Some(DependencyKind::Build) => from.depends_on.contains(&to),
    };
    if allowed {
        return Ok(());
    }
    let name = from.name;
    Err(match floor {
        Some(floor) if floor > from.floor => {
            format!("{name} (floor {}) may not look up at {to} (floor {floor}): turn the arrow round", from.floor)
        }
        Some(floor) if floor == from.floor => {
            format!("{name} and {to} are siblings and may not touch: put what they share on a lower floor")
        }
        _ => format!("{name} may not see {to}: use a port of model, and let server bring the two together"),
    })
}

/// The ways from `package` to a crate that does I/O, one for each such crate, the shortest.
///
/// The graph is that of the whole workspace with its features taken together, so it may show an edge that a build of
/// `package` alone would not have; it never hides one.
fn io_dependency_paths(
    metadata: &Metadata,
    package: &Package,
    reach: PurityScope,
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
        let tests_too = reach == PurityScope::CodeAndTests && id == package.id;
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
    steps.pop(); // the crate itself: the complaint begins with its name
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
