//! The text of a JSON number.

use serde::{Serialize, Serializer};
use serde_json::Number;
use serde_json::value::RawValue;
use std::cmp::Ordering;

/// A JSON number as it was written. Finite, also as a `f64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberText(Box<str>);

impl NumberText {
    /// The caller has checked that it is a JSON number.
    pub(crate) fn from_checked(text: &str) -> Self {
        Self(text.into())
    }

    /// The number itself if it is an integer of 64 bits, else the `f64` next to it.
    pub(super) fn nearest(&self) -> Option<Number> {
        serde_json::from_str(&self.0).ok()
    }

    /// Compares the numbers, however they are written: `1e2` is 100, and `-0` is 0.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        let (one, other) = (Decimal::new(&self.0), Decimal::new(&other.0));
        one.sign.cmp(&other.sign).then_with(|| {
            let size = one.point.cmp(&other.point).then_with(|| one.digits().cmp(other.digits()));
            if one.sign < 0 { size.reverse() } else { size }
        })
    }
}

/// A number as `0.digits` times a power of ten.
struct Decimal<'a> {
    /// -1, 0 or 1.
    sign: i8,
    /// The exponent; 0 for zero.
    point: i64,
    /// What is written before the exponent, from the first digit that is not 0 to the last.
    mantissa: &'a str,
}

impl<'a> Decimal<'a> {
    fn new(text: &'a str) -> Self {
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let start = mantissa.find(|c| matches!(c, '1'..='9'));
        let Some((start, end)) = start.zip(mantissa.rfind(|c| matches!(c, '1'..='9'))) else {
            return Self { sign: 0, point: 0, mantissa: "" };
        };
        // An exponent beyond 64 bits is one of a number that is nearly zero: larger numbers are not finite.
        let exponent = exponent.parse::<i64>().unwrap_or(i64::MIN / 2);
        let dot = mantissa.find('.').unwrap_or(mantissa.len());
        let length = |digits: usize| i64::try_from(digits).unwrap_or(i64::MAX / 4);
        // The distance between the dot and the first digit.
        let point = if start < dot { length(dot - start) } else { -length(start - dot - 1) };
        Self {
            sign: if is_negative { -1 } else { 1 },
            point: exponent.saturating_add(point),
            mantissa: mantissa.get(start..=end).unwrap_or_default(),
        }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.mantissa.bytes().filter(u8::is_ascii_digit)
    }
}

impl From<Number> for NumberText {
    fn from(number: Number) -> Self {
        Self(number.to_string().into())
    }
}

impl Serialize for NumberText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        text.serialize(serializer)
    }
}
