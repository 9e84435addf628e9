//! Licence expressions as manifests write them: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`,
//! `Apache-2.0 WITH LLVM-exception`, and the old `MIT/Apache-2.0`, where the slash is an OR.
//!
//! `WITH` binds closer than `AND`, and `AND` closer than `OR`. A licence with its exception is one word here.

/// What has to be agreed to.
#[derive(Debug, PartialEq)]
pub(crate) enum Expression {
    Licence(String),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

impl Expression {
    /// Whether agreeing to licences that `allowed` knows is enough.
    pub(crate) fn is_met(&self, allowed: &dyn Fn(&str) -> bool) -> bool {
        match self {
            Self::Licence(id) => allowed(id),
            Self::All(parts) => parts.iter().all(|part| part.is_met(allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.is_met(allowed)),
        }
    }
}

/// Why a text is not a licence expression.
#[derive(Debug, PartialEq)]
pub(crate) struct NotALicence(pub(crate) String);

pub(crate) fn parse(text: &str) -> Result<Expression, NotALicence> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let expression = any(&mut words)?;
    match words.pop() {
        None => Ok(expression),
        Some(word) => Err(NotALicence(format!("`{word}` was not expected"))),
    }
}

/// The words are reversed: the next one is the last.
fn any(words: &mut Vec<&str>) -> Result<Expression, NotALicence> {
    let mut parts = vec![all(words)?];
    while next_is(words, "OR") {
        parts.push(all(words)?);
    }
    Ok(single_or(parts, Expression::Any))
}

fn all(words: &mut Vec<&str>) -> Result<Expression, NotALicence> {
    let mut parts = vec![licence(words)?];
    while next_is(words, "AND") {
        parts.push(licence(words)?);
    }
    Ok(single_or(parts, Expression::All))
}

fn licence(words: &mut Vec<&str>) -> Result<Expression, NotALicence> {
    if next_is(words, "(") {
        let inner = any(words)?;
        return if next_is(words, ")") {
            Ok(inner)
        } else {
            Err(NotALicence("a parenthesis is not closed".to_owned()))
        };
    }
    let id = identifier(words)?;
    if next_is(words, "WITH") {
        let exception = identifier(words)?;
        return Ok(Expression::Licence(format!("{id} WITH {exception}")));
    }
    Ok(Expression::Licence(id))
}

fn identifier(words: &mut Vec<&str>) -> Result<String, NotALicence> {
    let word = words.pop().ok_or_else(|| NotALicence("it ends too early".to_owned()))?;
    let keyword = matches!(word, "OR" | "AND" | "WITH" | "(" | ")");
    let spelled = word.chars().all(|c| c.is_ascii_alphanumeric() || "-.+:".contains(c));
    if keyword || !spelled {
        return Err(NotALicence(format!("`{word}` stands where a licence should")));
    }
    Ok(word.to_owned())
}

fn next_is(words: &mut Vec<&str>, wanted: &str) -> bool {
    words.pop_if(|word| *word == wanted).is_some()
}

fn single_or(mut parts: Vec<Expression>, several: fn(Vec<Expression>) -> Expression) -> Expression {
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
        parse(text).unwrap().is_met(&|id| ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].contains(&id))
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
            parse("Apache-2.0 WITH LLVM-exception OR MIT").unwrap(),
            Expression::Any(vec![
                Expression::Licence("Apache-2.0 WITH LLVM-exception".to_owned()),
                Expression::Licence("MIT".to_owned())
            ])
        );
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in
            ["", "MIT OR", "OR MIT", "MIT Apache-2.0", "(MIT", "MIT)", "AND", "MIT WITH", "non-standard, ask us"]
        {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
    }
}
