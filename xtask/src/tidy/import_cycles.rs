//! Do the top-level modules of a crate import each other in circles?
//!
//! A module imports another when it names it after `crate::`, after enough `super::`, or through a name that the crate
//! root re-exports. Modules in a circle can only be read, moved and tested together: split one, or move what they share
//! to a third.

use std::collections::{BTreeMap, BTreeSet};

use super::product_code::ProductFile;
use super::rust_source::is_word;
use crate::finding::TidyFinding;

/// Modules of one crate that are allowed to know each other: at most one small group for each crate, with its reason.
struct AllowedCycle {
    crate_name: &'static str,
    modules: &'static [&'static str],
    #[cfg_attr(not(test), expect(dead_code, reason = "it is for readers of this file, and a test requires it"))]
    reason: &'static str,
}

const ALLOWED_CYCLES: &[AllowedCycle] = &[];

/// For each module, the modules that it imports and one file that does so.
type ImportGraph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>;

pub(crate) fn check_import_cycles(files: &[ProductFile]) -> Vec<TidyFinding> {
    let mut crates: BTreeMap<&str, Vec<&ProductFile>> = BTreeMap::new();
    for file in files {
        crates.entry(&file.crate_name).or_default().push(file);
    }
    crates.iter().flat_map(|(crate_name, files)| check_crate(crate_name, files, ALLOWED_CYCLES)).collect()
}

fn check_crate(crate_name: &str, files: &[&ProductFile], allowed: &[AllowedCycle]) -> Vec<TidyFinding> {
    let graph = import_graph(files);
    let allowed = allowed.iter().find(|cycle| cycle.crate_name == crate_name).map_or(&[][..], |cycle| cycle.modules);
    let cycles = find_cycles(&graph);
    let refused = cycles.iter().filter(|cycle| !cycle.iter().all(|module| allowed.contains(module)));
    refused
        .map(|cycle| {
            let edges = cycle.iter().flat_map(|from| {
                let imports = graph.get(from).into_iter().flatten();
                imports.filter(|(to, _)| cycle.contains(*to)).map(move |(to, file)| format!("{from} -> {to} ({file})"))
            });
            let edges: Vec<_> = edges.collect();
            let message = format!("modules of {crate_name} import each other in a circle: {}", edges.join(", "));
            TidyFinding::error(&format!("crates/{crate_name}/Cargo.toml"), 1, message)
        })
        .collect()
}

fn import_graph<'a>(files: &[&'a ProductFile]) -> ImportGraph<'a> {
    let mut graph: ImportGraph<'a> = BTreeMap::new();
    for file in files {
        // A program beside the library is no module of it.
        if let Some(module) = file.module_path().first().filter(|module| **module != "bin") {
            graph.entry(module).or_default();
        }
    }
    let modules: BTreeSet<&str> = graph.keys().copied().collect();
    let root = files.iter().filter(|file| file.module_path().is_empty());
    let reexports: BTreeMap<&str, &str> = root.flat_map(|file| reexported_names(&file.code, &modules)).collect();
    for file in files {
        let path = file.module_path();
        let Some(imports) = path.first().and_then(|module| graph.get_mut(module)) else { continue };
        for name in names_at_root(&file.code, path.len()) {
            let target = modules.get(name).or_else(|| reexports.get(name));
            if let Some(target) = target.filter(|target| path.first() != Some(target)) {
                imports.entry(target).or_insert(&file.path_in_src);
            }
        }
    }
    graph
}

/// The names that `code`, of a module at `depth`, looks up in the crate root.
fn names_at_root(code: &str, depth: usize) -> Vec<&str> {
    let to_root = "super::".repeat(depth);
    let mut names = Vec::new();
    for prefix in ["crate::", to_root.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code.get(..at).unwrap_or_default();
            if !before.ends_with(is_word) && !before.ends_with("::") && !before.ends_with('$') {
                names.extend(first_names(code.get(at + prefix.len()..).unwrap_or_default()));
            }
        }
    }
    names
}

/// The first name of a path, or of each path in a group: `a` and `b` for `{a::X, b::{Y, Z}}`.
fn first_names(path: &str) -> Vec<&str> {
    match path.trim_start().strip_prefix('{') {
        None => path.split(|c: char| !is_word(c)).next().into_iter().filter(|name| !name.is_empty()).collect(),
        Some(group) => group_members(group).into_iter().flat_map(first_names).collect(),
    }
}

/// The members of a group whose opening brace was taken off, each with what follows its first name.
fn group_members(group: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut members = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                members.push(group.get(start..at).unwrap_or_default().trim());
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

/// The names that the root takes from its modules with `use`, with the module of each.
fn reexported_names<'a>(root: &'a str, modules: &BTreeSet<&'a str>) -> Vec<(&'a str, &'a str)> {
    let mut names = Vec::new();
    for (at, _) in root.match_indices("use ") {
        let tree = root.get(at + "use ".len()..).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        let tree = tree.trim_start_matches("crate::").trim_start_matches("self::");
        let module = tree.split(|c: char| !is_word(c)).next().and_then(|name| modules.get(name));
        if let Some(module) = module.filter(|_| !root.get(..at).unwrap_or_default().ends_with(is_word)) {
            names.extend(leaf_names(tree).into_iter().map(|name| (name, *module)));
        }
    }
    names
}

/// The names that a `use` tree brings into scope: `B` and `D` for `a::{B, C as D}`.
fn leaf_names(tree: &str) -> Vec<&str> {
    if let Some((_, group)) = tree.split_once('{') {
        return group_members(group).into_iter().flat_map(leaf_names).collect();
    }
    let last = tree.rsplit(" as ").next().unwrap_or_default();
    last.rsplit("::").next().map(str::trim).into_iter().filter(|name| !name.is_empty()).collect()
}

/// The groups of two and more modules each of which reaches all others.
fn find_cycles<'a>(graph: &ImportGraph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (*module, reachable(graph, module))).collect();
    let mut cycles: Vec<BTreeSet<&'a str>> = Vec::new();
    for (module, reached) in &reach {
        let reaches_back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(module));
        let cycle: BTreeSet<&str> = reached.iter().filter(reaches_back).copied().collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reachable<'a>(graph: &ImportGraph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(module) = pending.pop() {
        for target in graph.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*target) {
                pending.push(target);
            }
        }
    }
    reached
}

#[cfg(test)]
#[path = "import_cycles_tests.rs"]
mod tests;
