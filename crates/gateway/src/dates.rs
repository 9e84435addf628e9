//! Dates, as in `2025-01-31`, in UTC or in a client's time zone.

use jiff::civil::{self, Date};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use model::Millis;
use model::ports::Day;

const EPOCH: Date = civil::date(1970, 1, 1);

/// Parses a date since 1970.
pub fn parse_day(text: &str) -> Option<Day> {
    let date: Date = text.parse().ok()?;
    let day = Day(u32::try_from(date.since(EPOCH).ok()?.get_days()).ok()?);
    // Exactly one spelling per date: the parser also accepts a time, a sign and other formats.
    (format_day(day) == text).then_some(day)
}

/// Finds a time zone by its IANA name, in the database that is part of the program.
pub fn parse_time_zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// The day that contains a point in time, in this time zone.
pub fn local_day(at: Millis, zone: &TimeZone) -> Day {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or(Timestamp::MAX);
    let days = zone.to_datetime(time).date().since(EPOCH).map_or(0, |span| span.get_days());
    Day(u32::try_from(days).unwrap_or(0))
}

pub fn format_day(day: Day) -> String {
    let since_epoch = Span::new().try_days(day.0);
    since_epoch.and_then(|days| EPOCH.checked_add(days)).unwrap_or(Date::MAX).to_string()
}

/// Formats a time as ISO 8601: `2025-01-31T23:59:59.999Z`.
pub fn format_timestamp(at: Millis) -> String {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_date_round_trips() {
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
    fn a_local_day_begins_at_local_midnight() {
        let day = |at: &str, zone: &str| {
            let at = at.parse::<Timestamp>().unwrap().as_millisecond();
            format_day(local_day(u64::try_from(at).unwrap(), &parse_time_zone(zone).unwrap()))
        };
        for (at, zone, written) in [
            ("2025-03-01T23:59:59Z", "UTC", "2025-03-01"),
            // The clocks change on 2025-03-30 and on 2025-10-26.
            ("2025-03-29T22:59:59Z", "Europe/Paris", "2025-03-29"),
            ("2025-03-29T23:00:00Z", "Europe/Paris", "2025-03-30"),
            ("2025-03-30T21:59:59Z", "Europe/Paris", "2025-03-30"),
            ("2025-03-30T22:00:00Z", "Europe/Paris", "2025-03-31"),
            ("2025-10-25T22:00:00Z", "Europe/Paris", "2025-10-26"),
            ("2025-10-26T22:59:59Z", "Europe/Paris", "2025-10-26"),
            ("2025-10-26T23:00:00Z", "Europe/Paris", "2025-10-27"),
            ("2025-03-01T09:59:59Z", "Pacific/Kiritimati", "2025-03-01"),
            ("2025-03-01T10:00:00Z", "Pacific/Kiritimati", "2025-03-02"),
            ("1970-01-01T00:00:00Z", "America/New_York", "1970-01-01"),
        ] {
            assert_eq!(day(at, zone), written, "{at} {zone}");
        }
        for unknown in ["", "Paris", "+01:00", "Europe/Paris ", "../etc/passwd"] {
            assert_eq!(parse_time_zone(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn timestamps_have_their_date_and_time() {
        for (at, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (86_399_999, "1970-01-01T23:59:59.999Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
        ] {
            assert_eq!(format_timestamp(at), written);
        }
    }

    #[test]
    fn an_invalid_date_is_none() {
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
