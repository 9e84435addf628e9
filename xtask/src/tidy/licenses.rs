//! May we ship what we pull in? Every package of the resolved graph, on every platform, tests and tools included.

use super::{LOCK_FILE, spdx};
use crate::finding::{TidyFinding, find_line};
use crate::workspace::{Metadata, Package};

/// Licences that ask for no more than their own text being passed on. A copyleft licence does not belong here.
const ALLOWED_LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0", // the roots of trust that browsers use, as data
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Complains about each package whose licence we have not agreed to. Lines are those of the lock file.
pub(crate) fn check_licenses(metadata: &Metadata, lock_file: &str) -> Vec<TidyFinding> {
    let refused = metadata.packages.iter().filter_map(|package| Some((package, license_problem(package)?)));
    refused
        .map(|(package, objection)| {
            let line = find_line(lock_file, |line| line == format!("name = \"{}\"", package.name));
            let what = format!("{} {}: {objection}", package.name, package.version);
            TidyFinding::error(LOCK_FILE, line, what)
        })
        .collect()
}

fn license_problem(package: &Package) -> Option<String> {
    let Some(text) = &package.license else {
        return Some("states no licence: ask its authors, or take another crate".to_owned());
    };
    match spdx::parse_spdx(text) {
        Ok(expression) if expression.is_satisfied_by(&|id| ALLOWED_LICENSES.contains(&id)) => None,
        Ok(_) => Some(format!(
            "`{text}` is not covered by the licences we agree to: take another crate, or add it to xtask/src/tidy/licences.rs"
        )),
        Err(spdx::SpdxError(why)) => Some(format!("`{text}` is not a licence expression ({why}): take another crate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fixture::{fake_metadata, registry_package};

    #[test]
    fn permissive_licences_pass_and_others_are_named_with_their_line() {
        let packages = vec![
            registry_package("fine", Some("MIT OR GPL-3.0-only")),
            registry_package("copyleft", Some("GPL-3.0-only")),
            registry_package("silent", None),
            registry_package("garbled", Some("see LICENSE")),
        ];
        let lock_file = "[[package]]\nname = \"fine\"\n\n[[package]]\nname = \"copyleft\"\n";
        let complaints = check_licenses(&fake_metadata(packages, &[]), lock_file);
        let named: Vec<_> = complaints.iter().map(|c| (c.line, c.message.split(':').next().unwrap())).collect();
        assert_eq!(named, [(5, "copyleft 0.1.0"), (1, "silent 0.1.0"), (1, "garbled 0.1.0")]);
    }

    #[test]
    fn every_allowed_licence_is_spelled_as_an_expression() {
        for id in ALLOWED_LICENSES {
            assert_eq!(spdx::parse_spdx(id), Ok(spdx::SpdxExpression::License((*id).to_owned())));
        }
    }
}
