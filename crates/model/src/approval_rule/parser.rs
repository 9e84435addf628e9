//! A recursive-descent parser for rules. Length and depth are limited, and the stack with them.

use super::{ApprovalRuleError, ArgumentPath, Expr, Op, PathSegment};
use crate::json::ExactValue;
use crate::limits::{RULE_BYTES_MAX, RULE_DEPTH_MAX};

/// Not usable as the first segment of a path, except after `args.`.
const RESERVED: [&str; 9] = ["and", "or", "not", "in", "contains", "exists", "true", "false", "null"];
/// Optional, meaningless prefixes of a path.
const PREFIXES: [&str; 2] = ["args", "arguments"];
/// Longer operators first: `<` is a prefix of `<=`.
const OPS: [(&str, Op); 6] = [
    ("==", Op::Equal),
    ("!=", Op::NotEqual),
    ("<=", Op::LessOrEqual),
    (">=", Op::GreaterOrEqual),
    ("<", Op::Less),
    (">", Op::Greater),
];

/// How much of the offending text an error message repeats.
const FOUND_CHARS_MAX: usize = 20;

pub(super) fn parse_rule(text: &str) -> Result<Expr, ApprovalRuleError> {
    if text.len() > RULE_BYTES_MAX {
        return Err(ApprovalRuleError::TooLong);
    }
    let mut reader = RuleParser { text, pos: 0, depth: 0 };
    let expr = reader.parse_or()?;
    reader.skip_whitespace();
    if reader.remaining().is_empty() { Ok(expr) } else { reader.expected_error("`and`, `or` or the end") }
}

struct RuleParser<'a> {
    text: &'a str,
    /// A byte offset, always on a character boundary.
    pos: usize,
    depth: usize,
}

impl<'a> RuleParser<'a> {
    fn parse_or(&mut self) -> Result<Expr, ApprovalRuleError> {
        let mut parts = vec![self.parse_and()?];
        while self.eat_keyword("or") {
            parts.push(self.parse_and()?);
        }
        Ok(Expr::Any(parts))
    }

    fn parse_and(&mut self) -> Result<Expr, ApprovalRuleError> {
        let mut parts = vec![self.parse_term()?];
        while self.eat_keyword("and") {
            parts.push(self.parse_term()?);
        }
        Ok(Expr::All(parts))
    }

    fn parse_term(&mut self) -> Result<Expr, ApprovalRuleError> {
        if self.eat_keyword("not") {
            return self.with_depth(|reader| Ok(Expr::Not(Box::new(reader.parse_term()?))));
        }
        if self.eat_symbol("(") {
            let inner = self.with_depth(Self::parse_or)?;
            return if self.eat_symbol(")") { Ok(inner) } else { self.expected_error("`and`, `or` or `)`") };
        }
        if self.eat_keyword("exists") {
            return Ok(Expr::Exists(self.parse_path()?));
        }
        self.parse_comparison()
    }

    fn with_depth(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Expr, ApprovalRuleError>,
    ) -> Result<Expr, ApprovalRuleError> {
        if self.depth == RULE_DEPTH_MAX {
            return Err(ApprovalRuleError::TooDeep { column: self.column() });
        }
        self.depth += 1;
        let expr = read(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    fn parse_comparison(&mut self) -> Result<Expr, ApprovalRuleError> {
        let path = self.parse_path()?;
        if self.eat_keyword("in") {
            return Ok(Expr::In(path, self.parse_list()?));
        }
        if self.eat_keyword("contains") {
            return Ok(Expr::Contains(path, self.parse_literal()?));
        }
        let Some((_, op)) = OPS.into_iter().find(|(sign, _)| self.eat_symbol(sign)) else {
            return self.expected_error("`==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `contains`");
        };
        self.skip_whitespace();
        let before = self.pos;
        let literal = self.parse_literal()?;
        let ordered = matches!(literal, ExactValue::Number(_) | ExactValue::String(_));
        if !ordered && !matches!(op, Op::Equal | Op::NotEqual) {
            self.pos = before;
            return self.expected_error("a number or a text, which have an order");
        }
        Ok(Expr::Compare(path, op, literal))
    }

    fn parse_path(&mut self) -> Result<ArgumentPath, ApprovalRuleError> {
        self.skip_whitespace();
        let first = self.peek_name();
        if RESERVED.contains(&first) {
            return self.expected_error("the name of an argument (`args.` may stand before it)");
        }
        let mut steps = vec![self.parse_key()?];
        loop {
            if self.remaining().starts_with('.') {
                self.pos += 1;
                steps.push(self.parse_key()?);
            } else if self.remaining().starts_with('[') {
                self.pos += 1;
                steps.push(self.parse_index()?);
            } else {
                break;
            }
        }
        // `args.x` is `x`, but `args` alone and `args[0]` name an argument `args`.
        let prefixed = PREFIXES.contains(&first) && matches!(steps.get(1), Some(PathSegment::Key(_)));
        Ok(ArgumentPath(steps.split_off(usize::from(prefixed))))
    }

    fn parse_key(&mut self) -> Result<PathSegment, ApprovalRuleError> {
        let name = self.peek_name();
        if name.is_empty() {
            return self.expected_error("the name of an argument");
        }
        self.pos += name.len();
        Ok(PathSegment::Key(name.to_owned()))
    }

    fn parse_index(&mut self) -> Result<PathSegment, ApprovalRuleError> {
        let digits = self.peek_while(|c| c.is_ascii_digit());
        let Ok(index) = digits.parse() else { return self.expected_error("a list index, from 0") };
        self.pos += digits.len();
        if self.eat_symbol("]") { Ok(PathSegment::Index(index)) } else { self.expected_error("`]`") }
    }

    /// Literals of one type, or `null`.
    fn parse_list(&mut self) -> Result<Vec<ExactValue>, ApprovalRuleError> {
        if !self.eat_symbol("[") {
            return self.expected_error("a list like `[\"a\", \"b\"]`");
        }
        let mut list: Vec<ExactValue> = Vec::new();
        loop {
            self.skip_whitespace();
            let before = self.pos;
            let literal = self.parse_literal()?;
            let alike = |other: &ExactValue| {
                other.is_null()
                    || literal.is_null()
                    || std::mem::discriminant(other) == std::mem::discriminant(&literal)
            };
            if !list.iter().all(alike) {
                self.pos = before;
                return self.expected_error("the same type as before in this list");
            }
            list.push(literal);
            if self.eat_symbol("]") {
                return Ok(list);
            }
            if !self.eat_symbol(",") {
                return self.expected_error("`,` or `]`");
            }
        }
    }

    fn parse_literal(&mut self) -> Result<ExactValue, ApprovalRuleError> {
        const EXPECTED: &str = "a number, a \"text\", `true`, `false` or `null`";
        self.skip_whitespace();
        for (word, value) in
            [("true", ExactValue::Bool(true)), ("false", ExactValue::Bool(false)), ("null", ExactValue::Null)]
        {
            if self.eat_keyword(word) {
                return Ok(value);
            }
        }
        match self.remaining().chars().next() {
            Some('"') => self.parse_json_string(),
            Some('\'') => self.parse_raw_string(),
            Some('-' | '0'..='9') => {
                let digits = self.peek_while(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
                let Ok(number) = ExactValue::parse(digits) else {
                    return self.expected_error("a number as JSON writes it");
                };
                self.pos += digits.len();
                Ok(number)
            }
            _ => self.expected_error(EXPECTED),
        }
    }

    /// A double-quoted string with JSON escapes.
    fn parse_json_string(&mut self) -> Result<ExactValue, ApprovalRuleError> {
        let mut escaped = true; // the quote that begins it
        let end = self.remaining().char_indices().find_map(|(at, c)| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends.then_some(at + 1)
        });
        let text = end.and_then(|end| self.remaining().get(..end));
        match text.and_then(|text| Some((text.len(), serde_json::from_str(text).ok()?))) {
            Some((length, text)) => {
                self.pos += length;
                Ok(ExactValue::String(text))
            }
            None => self.expected_error("a text with its closing `\"`, and escapes as in JSON"),
        }
    }

    /// A single-quoted string without escapes.
    fn parse_raw_string(&mut self) -> Result<ExactValue, ApprovalRuleError> {
        let text = self.remaining().get(1..).and_then(|rest| rest.split_once('\'')).map(|(text, _)| text);
        let Some(text) = text else { return self.expected_error("a text with its closing `'`") };
        self.pos += text.len() + 2;
        Ok(ExactValue::String(text.to_owned()))
    }

    fn remaining(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    fn skip_whitespace(&mut self) {
        self.pos += self.peek_while(char::is_whitespace).len();
    }

    fn peek_while(&self, of: impl Fn(char) -> bool) -> &'a str {
        let rest = self.remaining();
        rest.get(..rest.find(|c| !of(c)).unwrap_or(rest.len())).unwrap_or_default()
    }

    /// The next identifier, or an empty string.
    fn peek_name(&self) -> &'a str {
        let begins = self.remaining().starts_with(|c: char| c.is_alphabetic() || c == '_');
        if begins { self.peek_while(|c| c.is_alphanumeric() || c == '_' || c == '-') } else { "" }
    }

    /// Consumes the keyword if it comes next as a whole word.
    fn eat_keyword(&mut self, word: &str) -> bool {
        self.skip_whitespace();
        let is = self.peek_name() == word;
        if is {
            self.pos += word.len();
        }
        is
    }

    fn eat_symbol(&mut self, sign: &str) -> bool {
        self.skip_whitespace();
        let is = self.remaining().starts_with(sign);
        if is {
            self.pos += sign.len();
        }
        is
    }

    fn column(&self) -> usize {
        self.text.get(..self.pos).unwrap_or_default().chars().count() + 1
    }

    fn expected_error<T>(&mut self, expected: &'static str) -> Result<T, ApprovalRuleError> {
        self.skip_whitespace();
        let token = match self.peek_name() {
            "" => self.peek_while(|c| !c.is_whitespace()),
            name => name,
        };
        let found = match token {
            "" => "the end".to_owned(),
            token => format!("`{}`", token.chars().take(FOUND_CHARS_MAX).collect::<String>()),
        };
        Err(ApprovalRuleError::Expected { column: self.column(), expected, found })
    }
}
