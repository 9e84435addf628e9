//! From a rule's text to what it means, by recursive descent. Depth and length are bounded, so the stack is.

use super::{Expr, Op, Path, RULE_BYTES_MAX, RULE_DEPTH_MAX, RuleError, Step};
use serde_json::{Number, Value};

/// Words that are no argument's name, unless `args.` stands before them.
const RESERVED: [&str; 9] = ["and", "or", "not", "in", "contains", "exists", "true", "false", "null"];
/// What may stand before a path and means nothing.
const PREFIXES: [&str; 2] = ["args", "arguments"];
/// Longer ones first: `<=` begins like `<`.
const OPS: [(&str, Op); 6] = [
    ("==", Op::Equal),
    ("!=", Op::Unequal),
    ("<=", Op::LessOrEqual),
    (">=", Op::MoreOrEqual),
    ("<", Op::Less),
    (">", Op::More),
];

/// How much of a mistake is repeated.
const FOUND_CHARS_MAX: usize = 20;

pub(super) fn rule(text: &str) -> Result<Expr, RuleError> {
    if text.len() > RULE_BYTES_MAX {
        return Err(RuleError::TooLong);
    }
    let mut reader = Reader { text, at: 0, depth: 0 };
    let expr = reader.any()?;
    reader.space();
    if reader.rest().is_empty() { Ok(expr) } else { reader.expected("`and`, `or` or the end") }
}

struct Reader<'a> {
    text: &'a str,
    /// A byte, always at the beginning of a character.
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn any(&mut self) -> Result<Expr, RuleError> {
        let mut parts = vec![self.all()?];
        while self.word("or") {
            parts.push(self.all()?);
        }
        Ok(Expr::Any(parts))
    }

    fn all(&mut self) -> Result<Expr, RuleError> {
        let mut parts = vec![self.one()?];
        while self.word("and") {
            parts.push(self.one()?);
        }
        Ok(Expr::All(parts))
    }

    fn one(&mut self) -> Result<Expr, RuleError> {
        if self.word("not") {
            return self.deeper(|reader| Ok(Expr::Not(Box::new(reader.one()?))));
        }
        if self.sign("(") {
            let inner = self.deeper(Self::any)?;
            return if self.sign(")") { Ok(inner) } else { self.expected("`and`, `or` or `)`") };
        }
        if self.word("exists") {
            return Ok(Expr::Exists(self.path()?));
        }
        self.comparison()
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Result<Expr, RuleError>) -> Result<Expr, RuleError> {
        if self.depth == RULE_DEPTH_MAX {
            return Err(RuleError::TooDeep { column: self.column() });
        }
        self.depth += 1;
        let expr = read(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    fn comparison(&mut self) -> Result<Expr, RuleError> {
        let path = self.path()?;
        if self.word("in") {
            return Ok(Expr::In(path, self.list()?));
        }
        if self.word("contains") {
            return Ok(Expr::Contains(path, self.literal()?));
        }
        let Some((_, op)) = OPS.into_iter().find(|(sign, _)| self.sign(sign)) else {
            return self.expected("`==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `contains`");
        };
        self.space();
        let before = self.at;
        let literal = self.literal()?;
        let ordered = literal.is_number() || literal.is_string();
        if !ordered && !matches!(op, Op::Equal | Op::Unequal) {
            self.at = before;
            return self.expected("a number or a text, which have an order");
        }
        Ok(Expr::Compare(path, op, literal))
    }

    fn path(&mut self) -> Result<Path, RuleError> {
        self.space();
        let first = self.peek_name();
        if RESERVED.contains(&first) {
            return self.expected("the name of an argument (`args.` may stand before it)");
        }
        let mut steps = vec![self.key()?];
        loop {
            if self.rest().starts_with('.') {
                self.at += 1;
                steps.push(self.key()?);
            } else if self.rest().starts_with('[') {
                self.at += 1;
                steps.push(self.index()?);
            } else {
                break;
            }
        }
        // `args.x` is `x`; `args` alone and `args[0]` are an argument of that name.
        let prefixed = PREFIXES.contains(&first) && matches!(steps.get(1), Some(Step::Key(_)));
        Ok(Path(steps.split_off(usize::from(prefixed))))
    }

    fn key(&mut self) -> Result<Step, RuleError> {
        let name = self.peek_name();
        if name.is_empty() {
            return self.expected("the name of an argument");
        }
        self.at += name.len();
        Ok(Step::Key(name.to_owned()))
    }

    fn index(&mut self) -> Result<Step, RuleError> {
        let digits = self.run_of(|c| c.is_ascii_digit());
        let Ok(index) = digits.parse() else { return self.expected("a place in a list, from 0") };
        self.at += digits.len();
        if self.sign("]") { Ok(Step::Index(index)) } else { self.expected("`]`") }
    }

    /// Literals of one type; beside them there may be `null`.
    fn list(&mut self) -> Result<Vec<Value>, RuleError> {
        if !self.sign("[") {
            return self.expected("a list like `[\"a\", \"b\"]`");
        }
        let mut list: Vec<Value> = Vec::new();
        loop {
            self.space();
            let before = self.at;
            let literal = self.literal()?;
            let alike = |other: &Value| {
                other.is_null()
                    || literal.is_null()
                    || std::mem::discriminant(other) == std::mem::discriminant(&literal)
            };
            if !list.iter().all(alike) {
                self.at = before;
                return self.expected("the same type as before in this list");
            }
            list.push(literal);
            if self.sign("]") {
                return Ok(list);
            }
            if !self.sign(",") {
                return self.expected("`,` or `]`");
            }
        }
    }

    fn literal(&mut self) -> Result<Value, RuleError> {
        const EXPECTED: &str = "a number, a \"text\", `true`, `false` or `null`";
        self.space();
        for (word, value) in [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)] {
            if self.word(word) {
                return Ok(value);
            }
        }
        match self.rest().chars().next() {
            Some('"') => self.quoted(),
            Some('\'') => self.raw(),
            Some('-' | '0'..='9') => {
                let digits = self.run_of(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
                let Ok(number) = serde_json::from_str::<Number>(digits) else {
                    return self.expected("a number as JSON writes it");
                };
                self.at += digits.len();
                Ok(Value::Number(number))
            }
            _ => self.expected(EXPECTED),
        }
    }

    /// A text as JSON writes it.
    fn quoted(&mut self) -> Result<Value, RuleError> {
        let mut escaped = true; // the quote that begins it
        let end = self.rest().char_indices().find_map(|(at, c)| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends.then_some(at + 1)
        });
        let text = end.and_then(|end| self.rest().get(..end));
        match text.and_then(|text| Some((text.len(), serde_json::from_str(text).ok()?))) {
            Some((length, text)) => {
                self.at += length;
                Ok(Value::String(text))
            }
            None => self.expected("a text with its closing `\"`, and escapes as in JSON"),
        }
    }

    /// A text in which nothing is escaped.
    fn raw(&mut self) -> Result<Value, RuleError> {
        let text = self.rest().get(1..).and_then(|rest| rest.split_once('\'')).map(|(text, _)| text);
        let Some(text) = text else { return self.expected("a text with its closing `'`") };
        self.at += text.len() + 2;
        Ok(Value::String(text.to_owned()))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at += self.run_of(char::is_whitespace).len();
    }

    /// What the text goes on with, as long as it is of these.
    fn run_of(&self, of: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        rest.get(..rest.find(|c| !of(c)).unwrap_or(rest.len())).unwrap_or_default()
    }

    /// The name that comes next, or nothing.
    fn peek_name(&self) -> &'a str {
        let begins = self.rest().starts_with(|c: char| c.is_alphabetic() || c == '_');
        if begins { self.run_of(|c| c.is_alphanumeric() || c == '_' || c == '-') } else { "" }
    }

    /// Takes this word if it comes next, as a whole.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let is = self.peek_name() == word;
        if is {
            self.at += word.len();
        }
        is
    }

    /// Takes this sign if it comes next.
    fn sign(&mut self, sign: &str) -> bool {
        self.space();
        let is = self.rest().starts_with(sign);
        if is {
            self.at += sign.len();
        }
        is
    }

    fn column(&self) -> usize {
        self.text.get(..self.at).unwrap_or_default().chars().count() + 1
    }

    fn expected<T>(&mut self, expected: &'static str) -> Result<T, RuleError> {
        self.space();
        let token = match self.peek_name() {
            "" => self.run_of(|c| !c.is_whitespace()),
            name => name,
        };
        let found = match token {
            "" => "the end".to_owned(),
            token => format!("`{}`", token.chars().take(FOUND_CHARS_MAX).collect::<String>()),
        };
        Err(RuleError::Expected { column: self.column(), expected, found })
    }
}
