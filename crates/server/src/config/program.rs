//! Programs of tools and hooks.

use super::secrets::read_env;
use super::table::{ConfigValue, quote_text};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Warns of a program that cannot be started now. It may be installed before it is called.
pub(super) fn check_program(item: &ConfigValue<'_>, program: &str) {
    if program.contains('/') {
        match Path::new(program).metadata() {
            Err(error) => {
                item.report_warning(format!("the program {} cannot be started: {error}", quote_text(program)));
            }
            Ok(file) if !file.is_file() => {
                item.report_warning(format!("the program {} is not a file", quote_text(program)));
            }
            Ok(_) if !is_executable(Path::new(program)) => {
                item.report_warning(format!("{} is not executable; run `chmod +x` on it", quote_text(program)));
            }
            Ok(_) => {}
        }
        return;
    }
    let path = read_env("PATH").unwrap_or_default();
    // As tools are started: relative folders do not count.
    let mut folders = path.split(':').map(Path::new).filter(|folder| folder.is_absolute());
    if !folders.any(|folder| is_executable(&folder.join(program))) {
        item.report_warning(format!("the program {} is not in the server's `PATH`", quote_text(program)));
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
