//! Does every dependency have a licence that we accept? Covers the resolved graph for every platform, with tests and
//! tools. Licence expressions are parsed by `spdx`, the library of cargo-deny. The tool itself has 170 dependencies, which
//! would take CI minutes to compile for this check and the one of [`super::banned_crates`].

use spdx::{Expression, Licensee, ParseMode};

use super::LOCK_FILE;
use crate::finding::{TidyFinding, find_line};
use crate::workspace::{Metadata, Package};

/// Licences that only require that their text is passed on. Copyleft licences do not belong here.
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

/// Reports each package whose licence is not accepted. Lines are those of the lock file.
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
    let allowed = ALLOWED_LICENSES.iter().filter_map(|id| Licensee::parse(id).ok());
    let allowed: Vec<_> = allowed.collect();
    // Lax, because old manifests write `MIT/Apache-2.0`.
    match Expression::parse_mode(text, ParseMode::LAX) {
        Ok(expression) if expression.evaluate(|required| allowed.iter().any(|id| id.satisfies(required))) => None,
        Ok(_) => Some(format!(
            "`{text}` is not an accepted licence: use another crate, or add it to xtask/src/tidy/licenses.rs"
        )),
        Err(error) => Some(format!("`{text}` is not a licence expression ({}): use another crate", error.reason)),
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
        let findings = check_licenses(&fake_metadata(packages, &[]), lock_file);
        let named: Vec<_> = findings.iter().map(|c| (c.line, c.message.split(':').next().unwrap())).collect();
        assert_eq!(named, [(5, "copyleft 0.1.0"), (1, "silent 0.1.0"), (1, "garbled 0.1.0")]);
    }

    fn is_accepted(license: &str) -> bool {
        license_problem(&registry_package("any", Some(license))).is_none()
    }

    #[test]
    fn one_side_of_an_or_is_enough_and_both_of_an_and_are_needed() {
        assert!(is_accepted("GPL-2.0/MIT"));
        assert!(is_accepted("MIT OR Apache-2.0 AND GPL-3.0-only"));
        assert!(!is_accepted("(MIT OR Apache-2.0) AND GPL-3.0-only"));
        assert!(is_accepted("Apache-2.0 WITH LLVM-exception"));
        assert!(!is_accepted("GPL-2.0-only WITH Classpath-exception-2.0"));
    }

    #[test]
    fn every_allowed_licence_has_an_spdx_identifier() {
        for id in ALLOWED_LICENSES {
            assert!(Licensee::parse(id).is_ok(), "{id}");
        }
    }
}
