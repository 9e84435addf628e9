//! How long a service asks the client to wait.

use http::header::{DATE, HeaderMap, RETRY_AFTER};

/// A date is relative to the response's own `date`, so that the clocks need not agree; a date in the past means 0.
pub(super) fn parse_retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let exact = text("retry-after-ms").and_then(|number| parse_millis(number, 1.0));
    exact.or_else(|| {
        let value = text(RETRY_AFTER.as_str())?;
        parse_millis(value, 1000.0).or_else(|| {
            let until = httpdate::parse_http_date(value).ok()?;
            let now = httpdate::parse_http_date(text(DATE.as_str())?).ok()?;
            let wait = until.duration_since(now).unwrap_or_default();
            u64::try_from(wait.as_millis()).ok()
        })
    })
}

/// Rounds up. Goes through decimal digits, because no conversion from `f64` refuses numbers out of range.
fn parse_millis(text: &str, unit: f64) -> Option<u64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    format!("{:.0}", (number * unit).ceil()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderName, HeaderValue};

    fn wait(pairs: &[(&str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        parse_retry_after_ms(&headers)
    }

    #[test]
    fn retry_after_accepts_seconds_milliseconds_and_dates_only() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(wait(&[("retry-after", "2"), ("retry-after-ms", "1500")]), Some(1500));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"), date]), Some(3000));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT"), date]), Some(0));
        assert_eq!(wait(&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")]), None);
        for odd in ["-1", "soon", "", "NaN", "inf", "1e999"] {
            assert_eq!(wait(&[("retry-after", odd)]), None, "{odd}");
        }
        assert_eq!(wait(&[]), None);
    }
}
