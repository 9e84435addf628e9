//! `clock`: the current time, which models do not know.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::{invalid_arguments_output, text_output};
use jiff::Timestamp;
use model::definition::Tool;
use model::seq::Millis;
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;

pub(super) const NAME: &str = "clock";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    timezone: Option<String>,
}

pub(super) fn definition() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "timezone": { "type": "string", "enum": ["UTC"], "description": "Only UTC is known." }
        },
        "additionalProperties": false
    });
    new_builtin(NAME, "Clock", "Tells the current date and time in UTC.", parameters)
}

pub(super) fn run(arguments: &str, now: Millis) -> ToolOutput {
    match parse_arguments(arguments) {
        Ok(Arguments { timezone: Some(zone) }) if !zone.eq_ignore_ascii_case("utc") => {
            invalid_arguments_output(format!("`{zone}` is not supported, only UTC is"))
        }
        Ok(Arguments { .. }) => text_output(format!(r#"{{"time":"{}","unix_ms":{now}}}"#, format_iso8601(now))),
        Err(error) => invalid_arguments_output(error),
    }
}

fn format_iso8601(now: Millis) -> String {
    let time = i64::try_from(now).ok().and_then(|now| Timestamp::from_millisecond(now).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_formatted_correctly() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_710_000_000_800, "2024-03-09T16:00:00.800Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_207_199_999, "9999-12-30T21:59:59.999Z"),
        ];
        for (now, wanted) in cases {
            assert_eq!(format_iso8601(now), wanted);
        }
        assert!(format_iso8601(Millis::MAX).ends_with('Z'));
    }

    #[test]
    fn every_day_of_a_thousand_years_follows_the_one_before() {
        let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..365_250 {
            let midnight = format!("{year:04}-{month:02}-{day:02}T00:00:00.000Z");
            assert_eq!(format_iso8601(days * 24 * 60 * 60 * 1000), midnight);
            let length = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (day, month) = if day == length { (1, month + 1) } else { (day + 1, month) };
            (month, year) = if month == 13 { (1, year + 1) } else { (month, year) };
        }
    }
}
