//! Licence expressions as manifests write them: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`,
//! `Apache-2.0 WITH LLVM-exception`, and the old `MIT/Apache-2.0`, where the slash is an OR.
//!
//! `WITH` binds closer than `AND`, and `AND` closer than `OR`. A licence with its exception is one word here.

/// What has to be agreed to.
#[derive(Debug, PartialEq)]
pub(crate) enum SpdxExpression {
    License(String),
    All(Vec<SpdxExpression>),
    Any(Vec<SpdxExpression>),
}

impl SpdxExpression {
    /// Whether agreeing to licences that `allowed` knows is enough.
    pub(crate) fn is_satisfied_by(&self, allowed: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::License(id) => allowed(id),
            Self::All(parts) => parts.iter().all(|part| part.is_satisfied_by(allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.is_satisfied_by(allowed)),
        }
    }
}

/// Why a text is not a licence expression.
#[derive(Debug, PartialEq)]
pub(crate) struct SpdxError(pub(crate) String);

pub(crate) fn parse_spdx(text: &str) -> Result<SpdxExpression, SpdxError> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let expression = parse_or(&mut words)?;
    match words.pop() {
        None => Ok(expression),
        Some(word) => Err(SpdxError(format!("`{word}` was not expected"))),
    }
}

/// The words are reversed: the next one is the last.
fn parse_or(words: &mut Vec<&str>) -> Result<SpdxExpression, SpdxError> {
    let mut parts = vec![parse_and(words)?];
    while take_if_next(words, "OR") {
        parts.push(parse_and(words)?);
    }
    Ok(unwrap_single(parts, SpdxExpression::Any))
}

fn parse_and(words: &mut Vec<&str>) -> Result<SpdxExpression, SpdxError> {
    let mut parts = vec![parse_license(words)?];
    while take_if_next(words, "AND") {
        parts.push(parse_license(words)?);
    }
    Ok(unwrap_single(parts, SpdxExpression::All))
}

fn parse_license(words: &mut Vec<&str>) -> Result<SpdxExpression, SpdxError> {
    if take_if_next(words, "(") {
        let inner = parse_or(words)?;
        return if take_if_next(words, ")") {
            Ok(inner)
        } else {
            Err(SpdxError("a parenthesis is not closed".to_owned()))
        };
    }
    let id = parse_identifier(words)?;
    if take_if_next(words, "WITH") {
        let exception = parse_identifier(words)?;
        return Ok(SpdxExpression::License(format!("{id} WITH {exception}")));
    }
    Ok(SpdxExpression::License(id))
}

fn parse_identifier(words: &mut Vec<&str>) -> Result<String, SpdxError> {
    let word = words.pop().ok_or_else(|| SpdxError("it ends too early".to_owned()))?;
    let keyword = matches!(word, "OR" | "AND" | "WITH" | "(" | ")");
    let spelled = word.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c));
    if keyword || !spelled {
        return Err(SpdxError(format!("`{word}` stands where a licence should")));
    }
    Ok(word.to_owned())
}

fn take_if_next(words: &mut Vec<&str>, wanted: &str) -> bool {
    words.pop_if(|word| *word == wanted).is_some()
}

fn unwrap_single(mut parts: Vec<SpdxExpression>, several: fn(Vec<SpdxExpression>) -> SpdxExpression) -> SpdxExpression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            several(parts)
        }
        None => several(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(text: &str) -> bool {
        parse_spdx(text)
            .unwrap()
            .is_satisfied_by(&|id| ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].contains(&id))
    }

    #[test]
    fn one_branch_of_an_or_is_enough_and_every_branch_of_an_and_is_needed() {
        assert!(met("MIT"));
        assert!(met("GPL-3.0-only OR MIT"));
        assert!(met("MIT OR Apache-2.0 OR LGPL-2.1-or-later"));
        assert!(!met("MIT AND GPL-3.0-only"));
        assert!(!met("GPL-3.0-only"));
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(met("MIT OR Apache-2.0 AND GPL-3.0-only"));
        assert!(!met("(MIT OR Apache-2.0) AND GPL-3.0-only"));
        assert!(met("GPL-3.0-only AND MPL-2.0 OR MIT"));
    }

    #[test]
    fn the_old_slash_is_an_or() {
        assert!(met("GPL-2.0/MIT"));
        assert!(met("MIT / Apache-2.0"));
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert!(met("Apache-2.0 WITH LLVM-exception"));
        assert!(!met("MIT WITH LLVM-exception"));
        assert!(!met("GPL-2.0-only WITH Classpath-exception-2.0"));
        assert_eq!(
            parse_spdx("Apache-2.0 WITH LLVM-exception OR MIT").unwrap(),
            SpdxExpression::Any(vec![
                SpdxExpression::License("Apache-2.0 WITH LLVM-exception".to_owned()),
                SpdxExpression::License("MIT".to_owned())
            ])
        );
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in
            ["", "MIT OR", "OR MIT", "MIT Apache-2.0", "(MIT", "MIT)", "AND", "MIT WITH", "non-standard, ask us"]
        {
            assert!(parse_spdx(text).is_err(), "{text:?} was read as {:?}", parse_spdx(text));
        }
    }
}
