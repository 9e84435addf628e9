//! Free functions have a verb and a noun: `parse_cursor`, not `read`. Methods have their type's context.

use super::product_code::ProductFile;
use super::rust_source::is_word;
use crate::finding::TidyFinding;

const VAGUE_NAMES: &[&str] = &["named", "of", "read", "take", "told"];

pub(crate) fn check_function_names(files: &[ProductFile]) -> Vec<TidyFinding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &ProductFile) -> Vec<TidyFinding> {
    let vague = free_functions(&file.code).into_iter().filter(|(name, _)| VAGUE_NAMES.contains(name));
    vague
        .map(|(name, line)| {
            let message = format!("a free function called `{name}`: give it a verb and a noun, as in `parse_cursor`");
            TidyFinding::error(&file.path, line, message)
        })
        .collect()
}

/// The functions of `code` that are in no `impl` and no `trait`, with their lines.
fn free_functions(code: &str) -> Vec<(&str, usize)> {
    let mut functions = Vec::new();
    // For each open brace, whether it is that of an `impl` or a `trait`.
    let mut blocks: Vec<bool> = Vec::new();
    let (mut header_start, mut brackets, mut line) = (0, 0_usize, 1);
    for (at, c) in code.char_indices() {
        match c {
            '\n' => line += 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' => {
                blocks.push(is_type_block(code.get(header_start..at).unwrap_or_default()));
                header_start = at + 1;
            }
            '}' => {
                blocks.pop();
                header_start = at + 1;
            }
            ';' if brackets == 0 => header_start = at + 1,
            'f' if blocks.last() != Some(&true) => {
                let preceded_by_word = code.get(..at).is_some_and(|before| before.ends_with(is_word));
                let name = code.get(at..).and_then(|rest| rest.strip_prefix("fn ")).filter(|_| !preceded_by_word);
                let name = name.and_then(|rest| rest.split(|c: char| !is_word(c)).next());
                functions.extend(name.map(|name| (name, line)));
            }
            _ => {}
        }
    }
    functions
}

/// Whether what stands before a brace begins an `impl` or a `trait`.
fn is_type_block(header: &str) -> bool {
    let words = header.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
    let mut words = words.skip_while(|word| !matches!(*word, "impl" | "trait" | "fn" | "mod" | "match" | "if" | "let"));
    matches!(words.next(), Some("impl" | "trait"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::product_code::product_files;
    use crate::tidy::source_file;

    fn vague_lines(text: &str) -> Vec<usize> {
        let files = [source_file("crates/a/src/lib.rs", text)];
        check_function_names(&product_files(&files)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn free_functions_need_a_noun() {
        assert_eq!(
            vague_lines("pub fn read() {}\nasync fn take<T>(x: T) {}\nmod inner {\n    fn of() {}\n}\n"),
            [1, 2, 4]
        );
        assert_eq!(vague_lines("fn read_line() {}\nfn take_next() {}\n// fn told() {}\n"), [0; 0]);
    }

    #[test]
    fn methods_may_be_short() {
        assert_eq!(vague_lines("impl<T> A for [T; 4] {\n    fn read(&self) {}\n    fn x() { fn of() {} }\n}\n"), [3]);
        assert_eq!(vague_lines("pub trait Port {\n    fn take(&self);\n}\nfn told() -> impl Port {}\n"), [4]);
        assert_eq!(vague_lines("impl A {\n    fn a() -> [u8; 2] { if x { y } }\n    fn of() {}\n}\n"), [0; 0]);
    }
}
