//! `clock`: the current time, which models do not know.

use crate::arguments::parse_arguments;
use crate::output::{invalid_arguments_output, text_output};
use model::definition::{Tool, ToolExecutor, ToolSpec};
use model::seq::Millis;
use model::tool::ToolOutput;
use serde::Deserialize;
use serde_json::json;

pub(super) const NAME: &str = "clock";

const DAY_MS: Millis = 24 * 60 * 60 * 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    timezone: Option<String>,
}

pub(super) fn definition() -> Tool {
    let spec = ToolSpec {
        name: NAME.to_owned(),
        description: "Tells the current date and time in UTC.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "timezone": { "type": "string", "enum": ["UTC"], "description": "Only UTC is known." }
            },
            "additionalProperties": false
        }),
    };
    Tool { display_name: Some("Clock".to_owned()), idempotent: true, ..Tool::new(spec, ToolExecutor::Builtin) }
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
    let (year, month, day) = date_from_days(now / DAY_MS);
    let ms = now % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Year, month and day of the proleptic Gregorian calendar, `days` after 1970-01-01. Years are counted from March, so that
/// the leap day comes last, and in eras of 400 years, which all have the same number of days.
const fn date_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
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
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
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
            assert_eq!(date_from_days(days), (year, month, day));
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
