//! `calculator`: arithmetic that a model would guess at.
//!
//! ```text
//!   sum     = product (("+" | "-") product)*
//!   product = signed (("*" | "/" | "%") signed)*
//!   signed  = "-" signed | power
//!   power   = atom ("^" signed)?
//!   atom    = number | "(" sum ")"
//! ```

use crate::arguments::parse_arguments;
use crate::output::{invalid_arguments_output, text_output};
use model::definition::{Tool, ToolExecutor, ToolSpec};
use model::error::ErrorCode;
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;

pub(super) const NAME: &str = "calculator";

const EXPRESSION_BYTES_MAX: usize = 1000;
/// Every parenthesis, sign and exponent adds one level.
const DEPTH_MAX: u32 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    expression: String,
}

pub(super) fn definition() -> Tool {
    let spec = ToolSpec {
        name: NAME.to_owned(),
        description: "Works out an expression with + - * / % ^ and parentheses.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": EXPRESSION_BYTES_MAX,
                    "description": "Such as `2 * (3.5 + 4)^2`."
                }
            },
            "required": ["expression"],
            "additionalProperties": false
        }),
    };
    Tool { display_name: Some("Calculator".to_owned()), idempotent: true, ..Tool::new(spec, ToolExecutor::Builtin) }
}

pub(super) fn run(arguments: &str) -> ToolOutput {
    match parse_arguments(arguments) {
        Ok(Arguments { expression }) => match evaluate(&expression) {
            Ok(value) => text_output(value.to_string()),
            Err(CalculatorError::Syntax(why)) => invalid_arguments_output(why),
            Err(CalculatorError::Math(why)) => ToolOutput::failed(ErrorCode::CalculationFailed, why),
        },
        Err(error) => invalid_arguments_output(error),
    }
}

#[derive(Debug, PartialEq)]
enum CalculatorError {
    Syntax(String),
    Math(&'static str),
}

fn evaluate(expression: &str) -> Result<f64, CalculatorError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(CalculatorError::Syntax(format!("`expression` is longer than {EXPRESSION_BYTES_MAX} bytes")));
    }
    let mut reader = ExpressionParser { rest: expression, depth: 0 };
    let value = reader.sum()?;
    match reader.peek() {
        // Adding zero turns a negative zero into a plain one.
        None => Ok(value + 0.0),
        Some(letter) => Err(CalculatorError::Syntax(format!("unexpected `{letter}`"))),
    }
}

struct ExpressionParser<'a> {
    rest: &'a str,
    depth: u32,
}

impl ExpressionParser<'_> {
    fn sum(&mut self) -> Result<f64, CalculatorError> {
        let mut value = self.product()?;
        while let Some(operator) = self.take_operator(&['+', '-']) {
            let other = self.product()?;
            value = check_finite(if operator == '+' { value + other } else { value - other })?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, CalculatorError> {
        let mut value = self.signed()?;
        while let Some(operator) = self.take_operator(&['*', '/', '%']) {
            let other = self.signed()?;
            if operator != '*' && other == 0.0 {
                return Err(CalculatorError::Math("division by zero"));
            }
            value = check_finite(match operator {
                '*' => value * other,
                '/' => value / other,
                _ => value % other,
            })?;
        }
        Ok(value)
    }

    fn signed(&mut self) -> Result<f64, CalculatorError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(CalculatorError::Syntax(format!("it is nested deeper than {DEPTH_MAX}")));
        }
        let value = if self.take_operator(&['-']).is_some() { -self.signed()? } else { self.power()? };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<f64, CalculatorError> {
        let base = self.atom()?;
        if self.take_operator(&['^']).is_none() {
            return Ok(base);
        }
        let exponent = self.signed()?;
        if base == 0.0 && exponent < 0.0 {
            return Err(CalculatorError::Math("division by zero"));
        }
        check_finite(base.powf(exponent))
    }

    fn atom(&mut self) -> Result<f64, CalculatorError> {
        if self.take_operator(&['(']).is_none() {
            return self.number();
        }
        let value = self.sum()?;
        match self.take_operator(&[')']) {
            Some(_) => Ok(value),
            None => Err(CalculatorError::Syntax("a `)` is missing".to_owned())),
        }
    }

    fn number(&mut self) -> Result<f64, CalculatorError> {
        let Some(first) = self.peek() else {
            return Err(CalculatorError::Syntax("a number is missing at the end".to_owned()));
        };
        let end = self.rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        match digits.parse::<f64>() {
            Ok(value) => check_finite(value),
            Err(_) if digits.is_empty() => Err(CalculatorError::Syntax(format!("unexpected `{first}`"))),
            Err(_) => Err(CalculatorError::Syntax(format!("`{digits}` is not a number"))),
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Consumes the next character if it is one of these.
    fn take_operator(&mut self, wanted: &[char]) -> Option<char> {
        let letter = self.peek().filter(|letter| wanted.contains(letter))?;
        self.rest = self.rest.strip_prefix(letter)?;
        Some(letter)
    }
}

fn check_finite(value: f64) -> Result<f64, CalculatorError> {
    match value {
        value if value.is_nan() => Err(CalculatorError::Math("the result is not a real number")),
        value if value.is_infinite() => Err(CalculatorError::Math("the result is too large")),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};

    #[test]
    fn operators_have_the_usual_precedence() {
        let cases = [
            ("1+2*3", "7"),
            ("(1+2)*3", "9"),
            ("10-4-3", "3"),
            ("100/10/2", "5"),
            ("7%4*2", "6"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("(-2)^2", "4"),
            ("2^-1", "0.5"),
            ("2*-3", "-6"),
            ("--2", "2"),
            ("1.5 + .5", "2"),
            ("0*-1", "0"),
            (" 2\t* ( 3.5+4 ) ^ 2\n", "112.5"),
            ("2^0.5", "1.4142135623730951"),
        ];
        for (expression, wanted) in cases {
            assert_eq!(evaluate(expression).map(|value| value.to_string()).as_deref(), Ok(wanted), "{expression}");
        }
    }

    #[test]
    fn an_undefined_value_has_a_reason() {
        let huge = format!("1{}", "0".repeat(400));
        let cases = [
            ("1/0", "division by zero"),
            ("1%(2-2)", "division by zero"),
            ("0^-1", "division by zero"),
            ("10^1000", "the result is too large"),
            (huge.as_str(), "the result is too large"),
            ("10^300*10^300", "the result is too large"),
            ("(-8)^0.5", "the result is not a real number"),
        ];
        for (expression, why) in cases {
            assert_eq!(evaluate(expression), Err(CalculatorError::Math(why)), "{expression}");
        }
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        let cases = [
            ("", "a number is missing at the end"),
            ("1+", "a number is missing at the end"),
            ("(1", "a `)` is missing"),
            ("1)", "unexpected `)`"),
            ("1 2", "unexpected `2`"),
            ("1.2.3", "`1.2.3` is not a number"),
            (".", "`.` is not a number"),
            ("x", "unexpected `x`"),
            ("1e5", "unexpected `e`"),
            ("+1", "unexpected `+`"),
            ("2×3", "unexpected `×`"),
        ];
        for (expression, why) in cases {
            assert_eq!(evaluate(expression), Err(CalculatorError::Syntax(why.to_owned())), "{expression}");
        }
    }

    #[test]
    fn depth_and_length_are_limited() {
        let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(evaluate(&nested(63)), Ok(1.0));
        let deep = Err(CalculatorError::Syntax("it is nested deeper than 64".to_owned()));
        for expression in [nested(64), "-".repeat(999) + "1", "1^".repeat(400) + "1", "(".repeat(1000)] {
            assert_eq!(evaluate(&expression), deep, "{expression}");
        }
        assert_eq!(evaluate(&("1+".repeat(499) + "11")), Ok(510.0));
        assert!(matches!(evaluate(&"1".repeat(1001)), Err(CalculatorError::Syntax(why)) if why.contains("1000 bytes")));
    }

    #[test]
    fn evaluating_a_tree_and_its_text_agree() {
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let (text, wanted) = tree(&mut rng, 4);
            let found = evaluate(&text);
            let wanted = if wanted.is_finite() { Ok(wanted) } else { Err(()) };
            assert_eq!(found.map_err(|_| ()), wanted, "SEED={seed} {text}");
        }
    }

    #[test]
    fn no_text_panics_or_hangs() {
        let words = ["(", ")", "+", "-", "*", "/", "%", "^", "0", "7.5", "9999999", " ", "é", "."];
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let text: String = (0..rng.below(200)).map(|_| rng.choose("1", &words)).collect();
            if let Ok(found) = evaluate(&text) {
                assert!(found.is_finite(), "SEED={seed} {text}");
            }
        }
    }

    fn tree(rng: &mut Rng, depth: u32) -> (String, f64) {
        if depth == 0 || rng.chance(20) {
            let number = f64::from(rng.between(0, 40)) / 4.0;
            return (number.to_string(), number);
        }
        let (left, a) = tree(rng, depth - 1);
        let (right, b) = tree(rng, depth - 1);
        let nothing = |value: f64| if b == 0.0 { f64::NAN } else { value };
        let (operator, value) = match rng.below(5) {
            0 => ("+", a + b),
            1 => ("-", a - b),
            2 => ("*", a * b),
            3 => ("/", nothing(a / b)),
            _ => ("%", nothing(a % b)),
        };
        // What was not finite stays so, as in the calculator.
        let value = if a.is_finite() && b.is_finite() { value } else { f64::NAN };
        (format!("({left} {operator} {right})"), value)
    }
}
