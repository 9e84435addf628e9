//! Days as people write them: `2025-01-31`. Always UTC, always Gregorian.

use model::Millis;
use model::ports::Day;

/// Years have four digits.
const YEAR_MAX: u32 = 9999;

/// Reads a day since 1970.
pub(crate) fn parse_day(text: &str) -> Option<Day> {
    let mut pieces = text.split('-').map(|piece| piece.parse::<u32>().ok());
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (pieces.next(), pieces.next(), pieces.next(), pieces.next())
    else {
        return None;
    };
    if !(1970..=YEAR_MAX).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let found = Day(days_before(year, month) + day - 1);
    // Only what is written as we would write it: no 31st of February, no `+7`, no `7` for `07`.
    (format_day(found) == text).then_some(found)
}

/// Writes it.
pub(crate) fn format_day(day: Day) -> String {
    // No year is longer than 366 days, so this is at most a few years too early.
    let mut year = (1970 + day.0 / 366).min(YEAR_MAX);
    while year < YEAR_MAX && days_before(year + 1, 1) <= day.0 {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days_before(year, *month) <= day.0).unwrap_or(1);
    format!("{year:04}-{month:02}-{:02}", day.0.saturating_sub(days_before(year, month)) + 1)
}

/// Writes a moment as ISO 8601: `2025-01-31T23:59:59.999Z`.
pub(crate) fn format_timestamp(at: Millis) -> String {
    let second = at / 1000;
    let (hour, minute) = (second / 3600 % 24, second / 60 % 60);
    format!("{}T{hour:02}:{minute:02}:{:02}.{:03}Z", format_day(Day::from_millis(at)), second % 60, at % 1000)
}

/// How many days lie between 1970 and the first of a month.
fn days_before(year: u32, month: u32) -> u32 {
    const BEFORE_MONTH: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap_years_before = |year: u32| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let in_year = BEFORE_MONTH.get(month.saturating_sub(1) as usize).copied().unwrap_or_default();
    let leap_day = u32::from(is_leap && month > 2);
    (year - 1970) * 365 + leap_years_before(year) - leap_years_before(1970) + in_year + leap_day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_read_as_it_is_written() {
        let known = [(0, "1970-01-01"), (58, "1970-02-28"), (789, "1972-02-29"), (11_016, "2000-02-29")];
        for (day, written) in known.into_iter().chain([(20_454, "2026-01-01"), (2_932_896, "9999-12-31")]) {
            assert_eq!((format_day(Day(day)).as_str(), parse_day(written)), (written, Some(Day(day))));
        }
        let mut before = String::new();
        for day in (0..150_000).chain(2_900_000..2_932_897) {
            let written = format_day(Day(day));
            assert!(written > before, "{written} comes after {before}");
            assert_eq!(parse_day(&written), Some(Day(day)), "{written}");
            before = written;
        }
    }

    #[test]
    fn moments_have_their_day_and_time_of_day() {
        for (at, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (86_399_999, "1970-01-01T23:59:59.999Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
        ] {
            assert_eq!(format_timestamp(at), written);
        }
    }

    #[test]
    fn what_is_no_day_is_none() {
        for word in [
            "",
            "-",
            "today",
            "2025",
            "2025-02",
            "2025-02-29",
            "2100-02-29",
            "2025-04-31",
            "2025-00-01",
            "2025-13-01",
            "2025-01-00",
            "2025-01-32",
            "2025-1-1",
            "+2025-01-01",
            "2025-01-+1",
            "2025-01-01-",
            "1969-12-31",
            "10000-01-01",
            "2025-01-01T00:00:00Z",
            " 2025-01-01",
        ] {
            assert_eq!(parse_day(word), None, "{word}");
        }
        assert_eq!(format_day(Day(u32::MAX)).get(..4), Some("9999"), "and nothing overflows");
    }
}
