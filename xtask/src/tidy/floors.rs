//! Does every arrow between our crates point down?
//!
//! [`HOUSE`] is the whole rule. An ordinary dependency must be listed in `sees`, so that siblings never touch, the
//! engine reaches store, providers and tools through the ports of `model` alone, and only `server` sees everything.
//! A dev-dependency may point to any lower floor, because a test may look further down than what it tests; and the
//! run loop (`machine`, `engine`) may be tested against the real store, providers and tools, which `tests_see` says.
//! [`PURE`] says which crates do no I/O, and which of them not even in their tests.

use std::collections::{BTreeMap, VecDeque};

use super::text_of;
use crate::complaint::{Complaint, line_where};
use crate::workspace::{Dependency, Kind, Metadata, Package, SourceFile};

/// One crate and what it may know of the others.
struct Room {
    name: &'static str,
    floor: u8,
    sees: &'static [&'static str],
    tests_see: &'static [&'static str],
}

const LIBRARIES: &[&str] = &["model", "protocol", "machine", "store", "providers", "tools", "fetch", "files", "engine"];
const REAL_THINGS: &[&str] = &["store", "providers", "tools"];

/// From the ground up. `bench` and `xtask` stand beside the house: nobody sees them, and `bench` knows the server from
/// outside, all but the store, whose appends it holds against a bare disk.
const HOUSE: &[Room] = &[
    Room { name: "model", floor: 0, sees: &[], tests_see: &[] },
    Room { name: "protocol", floor: 1, sees: &["model"], tests_see: &[] },
    Room { name: "machine", floor: 1, sees: &["model"], tests_see: REAL_THINGS },
    Room { name: "store", floor: 2, sees: &["model"], tests_see: &[] },
    Room { name: "providers", floor: 2, sees: &["model", "protocol"], tests_see: &[] },
    Room { name: "tools", floor: 2, sees: &["model"], tests_see: &[] },
    Room { name: "files", floor: 2, sees: &["model"], tests_see: &[] },
    Room { name: "fetch", floor: 2, sees: &[], tests_see: &[] },
    Room { name: "engine", floor: 3, sees: &["model", "machine"], tests_see: REAL_THINGS },
    Room { name: "server", floor: 4, sees: LIBRARIES, tests_see: &[] },
    Room { name: "bench", floor: 5, sees: &["model", "store"], tests_see: &[] },
    Room { name: "xtask", floor: 5, sees: &[], tests_see: &[] },
];

/// Which of a crate's dependencies must be free of [`IO`].
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    Code,
    CodeAndTests,
}

/// The floors that do no I/O. `model` not even in its tests: they must stay fast enough to run at every keystroke.
const PURE: &[(&str, Reach)] = &[("model", Reach::CodeAndTests), ("protocol", Reach::Code), ("machine", Reach::Code)];

/// A pure crate with one of these in its tree could wait, open a socket or touch a disk.
const IO: &[&str] = &["tokio", "mio", "hyper", "axum", "reqwest", "rusqlite"];

/// Complains about arrows that do not point down, and about I/O on the pure floors.
pub(crate) fn check(metadata: &Metadata, files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in metadata.members() {
        let manifest = format!("{}/Cargo.toml", metadata.folder(package));
        let text = text_of(files, &manifest).unwrap_or_default();
        let Some(room) = room(&package.name) else {
            let what = format!("`{}` has no floor: give it a row in xtask/src/tidy/floors.rs", package.name);
            complaints.push(Complaint::error(&manifest, 1, what));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            if let Err(what) = may_see(room, dependency) {
                complaints.push(Complaint::error(&manifest, line_of(text, dependency), what));
            }
        }
        if let Some((_, reach)) = PURE.iter().find(|(name, _)| *name == room.name) {
            complaints.extend(impurities(metadata, package, *reach).map(|way| {
                let what = format!(
                    "{} does no I/O, but pulls in {}: cut that edge, or move the code up a floor",
                    room.name,
                    way.join(" → ")
                );
                Complaint::error(&manifest, 1, what)
            }));
        }
    }
    complaints
}

fn room(name: &str) -> Option<&'static Room> {
    HOUSE.iter().find(|room| room.name == name)
}

fn may_see(from: &Room, dependency: &Dependency) -> Result<(), String> {
    let to = dependency.name.as_str();
    let floor = room(to).map(|room| room.floor);
    let lower = floor.is_some_and(|floor| floor < from.floor);
    let allowed = match dependency.kind {
        // A crate that names itself switches on one of its own test features.
        Some(Kind::Dev) => lower || to == from.name || from.tests_see.contains(&to),
        None | Some(Kind::Build) => from.sees.contains(&to),
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
fn impurities(metadata: &Metadata, package: &Package, reach: Reach) -> impl Iterator<Item = Vec<String>> {
    let names: BTreeMap<&str, &str> = metadata.packages.iter().map(|p| (p.id.as_str(), p.name.as_str())).collect();
    let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(package.id.as_str(), None)]);
    let mut queue = VecDeque::from([package.id.as_str()]);
    let mut found = Vec::new();
    while let Some(id) = queue.pop_front() {
        if names.get(id).is_some_and(|name| IO.contains(name)) {
            found.push(way(&came_from, &names, id));
            continue;
        }
        // Only our own tests count: nobody builds the tests of a dependency.
        let tests_too = reach == Reach::CodeAndTests && id == package.id;
        let counts = |kind: Option<Kind>| kind.is_none() || (tests_too && kind == Some(Kind::Dev));
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

fn way(came_from: &BTreeMap<&str, Option<&str>>, names: &BTreeMap<&str, &str>, end: &str) -> Vec<String> {
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
fn line_of(manifest: &str, dependency: &Dependency) -> usize {
    let section = match dependency.kind {
        None => "dependencies",
        Some(Kind::Dev) => "dev-dependencies",
        Some(Kind::Build) => "build-dependencies",
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
    line_where(manifest, |line| line.trim_start().starts_with(dependency.name.as_str()))
}

#[cfg(test)]
#[path = "floors_tests.rs"]
mod tests;
