//! `execute_trade`: pretends to place an order, after an approval.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::{invalid_arguments_output, text_output};
use model::definition::{ApprovalPolicy, Tool};
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;

pub(super) const NAME: &str = "execute_trade";

const APPROVAL_TIMEOUT_SECONDS: u64 = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    symbol: String,
    quantity: u64,
}

pub(super) fn definition() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "symbol": { "type": "string", "minLength": 1, "description": "What to buy, such as `VNM`." },
            "quantity": { "type": "integer", "minimum": 1, "description": "How many." }
        },
        "required": ["symbol", "quantity"],
        "additionalProperties": false
    });
    Tool {
        approval: ApprovalPolicy::Always,
        approval_timeout_seconds: APPROVAL_TIMEOUT_SECONDS,
        idempotent: false,
        ..new_builtin(NAME, "Trade", "Places an order at the stock exchange.", parameters)
    }
}

pub(super) fn run(arguments: &str) -> ToolOutput {
    match parse_arguments(arguments) {
        Ok(Arguments { symbol, .. }) if symbol.trim().is_empty() => invalid_arguments_output("`symbol` is empty"),
        Ok(Arguments { quantity: 0, .. }) => invalid_arguments_output("`quantity` is 0"),
        Ok(Arguments { symbol, quantity }) => text_output(format!("Order placed: {symbol} x{quantity}")),
        Err(error) => invalid_arguments_output(error),
    }
}
