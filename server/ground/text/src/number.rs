//! Numbers as people write them: digits, a point before a fraction, `_` or groups of three (`10,000`) between digits.
//!
//! Contract: no sign and no infinity. A number is exact: [`Decimal`] keeps its digits, so that neither `0.3s`
//! nor 2^64 - 1 is rounded.

use crate::{Mistake, OrMistake};

/// More digits than any size, time or count has.
const MOST_DIGITS: usize = 30;

/// A number without sign: `digits` divided by ten to the power of `places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// Reads `30`, `1.5`, `10_000`, `10,000`.
    pub(crate) fn read(text: &str) -> Result<Decimal, Mistake> {
        let (whole, fraction) =
            text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
        if fraction.is_none()
            && let Some((before, behind)) = whole.split_once(',')
            && [before, behind].iter().all(|part| digits(part).is_some())
            && behind.len() != 3
        {
            let readings = format!("{before}.{behind} or {before}{behind}: {text} may be either");
            return Err(Mistake::expected(readings));
        }
        let whole = ungrouped(whole).or_mistake()?;
        let fraction = fraction.unwrap_or("0");
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let kept = fraction.trim_end_matches('0');
        if !plain(&whole) || !plain(fraction) || whole.len() + kept.len() > MOST_DIGITS {
            return Err(Mistake::default());
        }
        let digits = (whole + kept).parse().ok().or_mistake()?;
        Ok(Decimal { digits, places: kept.len() as u32 })
    }

    /// Returns the product with a factor if it is a whole number.
    pub(crate) fn times(self, factor: u64) -> Option<u64> {
        let (product, scale) = self.product(factor)?;
        (product % scale == 0).then(|| u64::try_from(product / scale).ok()).flatten()
    }

    /// Returns the product with a factor, rounded to a whole number.
    pub(crate) fn rounded(self, factor: u64) -> Option<u64> {
        let (product, scale) = self.product(factor)?;
        u64::try_from((product + scale / 2) / scale).ok()
    }

    fn product(self, factor: u64) -> Option<(u128, u128)> {
        Some((self.digits.checked_mul(factor.into())?, 10u128.checked_pow(self.places)?))
    }

    pub(crate) fn float(self) -> f64 {
        self.digits as f64 / 10f64.powi(self.places as i32)
    }
}

/// Removes `_` between digits, and commas between groups of three.
fn ungrouped(text: &str) -> Option<String> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    let mut groups = text.split(',');
    let first = groups.next().unwrap_or_default();
    let mut whole = first.replace('_', "");
    for group in groups {
        if group.len() != 3 || !(1..=3).contains(&first.len()) {
            return None;
        }
        whole.push_str(group);
    }
    Some(whole)
}

/// Reads a number: `30`, `1.5`, `10_000`.
pub fn number(text: &str) -> Option<f64> {
    Decimal::read(text.trim()).ok().map(Decimal::float)
}

/// Reads digits only, for ports and the like. Other forms that `str::parse` accepts (`+5`) are more often mistakes.
pub fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Splits a text into the number at its beginning and the rest, without blanks.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '_'))).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number, rest.trim_start())
}

/// Splits off a power of ten: `e3` is 1000. Only the file's format writes such numbers, and Kubernetes.
pub(crate) fn exponent(rest: &str) -> Option<(u64, &str)> {
    let power = rest.strip_prefix(['e', 'E'])?;
    let end = power.find(|c: char| !c.is_ascii_digit()).unwrap_or(power.len());
    let factor = 10u64.checked_pow(power[..end].parse().ok()?)?;
    Some((factor, power[end..].trim_start()))
}
