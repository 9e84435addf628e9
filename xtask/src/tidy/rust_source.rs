//! Reads Rust sources as text, without compiling them: comments and literals are blanked, so that what is left is code.

pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !is_word(c)).any(|part| part == word)
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and literals with spaces. Line breaks stay, so that line numbers do not change.
pub(crate) fn blank_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let blank = literal_or_comment_len(rest, code.ends_with(is_word));
        let taken = if blank == 0 { first.len_utf8() } else { blank };
        let (piece, after) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        if blank == 0 {
            code.push(first);
        } else {
            code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    code
}

/// How many bytes at the start of `rest` are a comment or a literal; 0 when it is code.
fn literal_or_comment_len(rest: &str, after_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if rest.starts_with('"') {
        return quoted_len(rest, '"');
    }
    if rest.starts_with('\'') {
        return char_literal_len(rest);
    }
    if !after_word && rest.starts_with('r') { raw_string_len(rest) } else { 0 }
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_len(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are literals; `'a` of a lifetime is code.
fn char_literal_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => quoted_len(rest, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

fn raw_string_len(rest: &str) -> usize {
    let after_r = rest.get(1..).unwrap_or_default();
    let hashes = after_r.len() - after_r.trim_start_matches('#').len();
    let Some(body) = after_r.get(hashes..).and_then(|text| text.strip_prefix('"')) else {
        return 0; // a name that begins with r, or `r#name`
    };
    let end = format!("\"{}", "#".repeat(hashes));
    body.find(&end).map_or(rest.len(), |at| 1 + hashes + 1 + at + end.len())
}
