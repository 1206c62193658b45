//! Parsers of values with units: `375/min`, `7ms`, `30%`, `7/month`.
//!
//! Contract: a number without a unit is rejected, because a wrong guess would be off by a factor of sixty or
//! a thousand without being noticed. Error messages do not contain the flag; the caller adds it.

use std::time::Duration;

use planner::facts::{MONTH_HOURS, Price};

/// The largest rate; a higher one most likely has a wrong unit.
const LARGEST_RATE: f64 = 1e9;
const DAY: Duration = Duration::from_secs(86_400);

/// Parses a rate in requests per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    const EXAMPLE: &str = "give the busiest minute's rate, e.g. 375/min";
    if is_negative(text) {
        return Err(format!("`{text}`: a rate cannot be negative; {EXAMPLE}"));
    }
    let rate = text::rate::parse(text).map_err(|why| refused(text, "a rate", EXAMPLE, &why))?;
    let Some(period) = rate.period else {
        return Err(format!("`{text}` has no unit: write {text}/s, {text}/min or {text}/h"));
    };
    match rate.per_second() {
        0.0 => {
            let none = if period == 1 { "0 requests per second" } else { "no requests" };
            Err(format!("{none} need no server: {EXAMPLE}"))
        }
        rate if rate > LARGEST_RATE => Err(format!("`{text}` is too high; check the unit: {EXAMPLE}")),
        rate => Ok(rate),
    }
}

/// Parses a time in milliseconds, above 0 and at most a day; messages show `example`.
pub(crate) fn time(text: &str, example: &str) -> Result<f64, String> {
    if is_negative(text) {
        return Err(format!("`{text}`: a time cannot be negative; expected e.g. {example}"));
    }
    if text::number(text).is_some() {
        return Err(format!("`{text}` has no unit: write {text}ms or {text}s"));
    }
    let expected = format!("expected one with a unit (us, ms, s, min or h), e.g. {example}");
    match text::span::parse(text).map_err(|why| refused(text, "a time", &expected, &why))? {
        Duration::ZERO => Err(format!("`{text}`: expected a time above 0, e.g. {example}")),
        time if time > DAY => Err(format!("`{text}` is more than a day; check the unit, e.g. {example}")),
        time => Ok(time.as_secs_f64() * 1_000.0),
    }
}

fn is_negative(text: &str) -> bool {
    text.trim().strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn refused(text: &str, what: &str, general: &str, why: &text::Mistake) -> String {
    let more = why.expected.as_ref().map(|expected| format!("; expected {expected}")).unwrap_or_default();
    let near = why.nearest.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    format!("`{text}` is not {what}; {general}{more}{near}")
}

/// Parses a percentage, from 0 to 100, as a fraction: `30%` is 0.3.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let (number, unit) =
        split(text).ok_or_else(|| format!("`{text}` is not a percentage; expected e.g. 30%"))?;
    match unit {
        "%" | "percent" => {}
        "" => {
            return Err(format!(
                "`{text}` has no unit: write {}%",
                number * if number < 1.0 { 100.0 } else { 1.0 }
            ));
        }
        other => return Err(format!("`{text}`: `{other}` is not a unit of percentage; expected e.g. 30%")),
    }
    let share = number / 100.0;
    if (0.0..=100.0).contains(&share) {
        Ok(share)
    } else {
        Err(format!("`{text}` is out of range: expected 0% to 10000%, e.g. 30%"))
    }
}

/// Parses a number from `least` to `most`.
pub(crate) fn number(text: &str, least: f64, most: f64, example: &str) -> Result<f64, String> {
    let expected = || format!("`{text}` is not a number from {least} to {most}, e.g. {example}");
    let (number, unit) = split(text).ok_or_else(expected)?;
    if unit.is_empty() && (least..=most).contains(&number) { Ok(number) } else { Err(expected()) }
}

/// Parses a whole number from `least` to `most`.
pub(crate) fn count(text: &str, least: u64, most: u64, example: &str) -> Result<u64, String> {
    match text::count::parse(text) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(0) if least == 1 => Err(format!("`{text}`: must be at least 1, e.g. {example}")),
        _ => Err(format!("`{text}` is not a whole number from {least} to {most}, e.g. {example}")),
    }
}

/// Parses the price of an instance: `7/month`, `$0.01/h`, `12€/month`.
pub(crate) fn price(text: &str) -> Result<Price, String> {
    const EXAMPLE: &str = "7/month or $0.01/h";
    let expected = || format!("`{text}` is not a price; expected an amount and a time, e.g. {EXAMPLE}");
    let Some((amount, per)) = text.split_once('/') else {
        return Err(match split(text.trim_start_matches(is_currency)) {
            Some(_) => format!("`{text}` has no time: write {text}/month or {text}/h"),
            None => expected(),
        });
    };
    let currency: String = amount.chars().filter(|c| is_currency(*c)).collect();
    let plain: String = amount.chars().filter(|c| !is_currency(*c)).collect();
    let (number, rest) = split(&plain).ok_or_else(expected)?;
    let currency = if currency.is_empty() && !rest.is_empty() { rest.to_owned() } else { currency };
    let is_code = rest.len() == 3 && rest.bytes().all(|b| b.is_ascii_uppercase());
    if !(rest.is_empty() || is_code) {
        return Err(expected());
    }
    let hours = match per.trim() {
        "month" | "mo" => MONTH_HOURS,
        "h" | "hour" | "hr" => 1.0,
        "d" | "day" => 24.0,
        "year" | "y" | "yr" => 12.0 * MONTH_HOURS,
        other => {
            return Err(format!(
                "`{text}`: `{other}` is not a time unit; expected /month, /h, /day or /year, e.g. {EXAMPLE}"
            ));
        }
    };
    if !(0.0..=1e12).contains(&number) {
        return Err(format!("`{text}`: a price must be between 0 and 1e12; expected e.g. {EXAMPLE}"));
    }
    Ok(Price { per_month: number * MONTH_HOURS / hours, currency })
}

fn is_currency(c: char) -> bool {
    matches!(c, '$' | '€' | '£' | '¥')
}

/// Splits a text into the number at its beginning (with `k` and `M`) and the rest.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '_'))).unwrap_or(text.len());
    let (number, rest) = (text::number(&text[..end])?, text[end..].trim());
    // 3k, 2M; but not the beginnings of `month`, `min` and so on.
    Some(match rest.strip_prefix(['k', 'K']) {
        Some(rest) => (number * 1e3, rest.trim()),
        None => rest.strip_prefix('M').map_or((number, rest), |rest| (number * 1e6, rest.trim())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates() {
        let per_s = |text: &str| rate(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!([per_s("375/min"), per_s("6.25/s"), per_s("22,500/h"), per_s("540k/day")], [6.25; 4]);
        assert_eq!(
            [per_s("375 per minute"), per_s("375rpm"), per_s("6.25 rps"), per_s(" 375 / min ")],
            [6.25; 4]
        );
        let wrong = |text: &str| rate(text).unwrap_err();
        assert_eq!(
            wrong("0/s"),
            "0 requests per second need no server: give the busiest minute's rate, e.g. 375/min"
        );
        assert!(wrong("375").contains("375/s, 375/min or 375/h"));
        assert!(wrong("-5/s").contains("cannot be negative"));
        assert!(wrong("5/fortnight").contains("fortnight"));
        assert!(wrong("99999999999/s").contains("unit"));
        for text in ["", "NaN", "inf/s", "abc", "/s", "1e5/s", ".", "--5/s", "1.2.3/s"] {
            assert!(wrong(text).contains("375/min"), "{text}: {}", wrong(text));
        }
    }

    #[test]
    fn times() {
        let ms = |text: &str| time(text, "7ms").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!([ms("7ms"), ms("0.007s"), ms("7000us"), ms("7 ms")], [7.0; 4]);
        assert_eq!([ms("1min"), ms("1m"), ms("2h")], [60_000.0, 60_000.0, 7_200_000.0]);
        let wrong = |text: &str| time(text, "7ms").unwrap_err();
        assert_eq!(wrong("7"), "`7` has no unit: write 7ms or 7s");
        for text in ["0ms", "-7ms", "NaN", "7x", "99999h", "ms", ""] {
            assert!(wrong(text).contains("7ms"), "{}", wrong(text));
        }
    }

    #[test]
    fn prices() {
        let month = |text: &str| {
            price(text)
                .map(|price| (price.per_month, price.currency))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        assert_eq!(month("7/month"), (7.0, String::new()));
        assert_eq!(month("$0.01/h"), (7.3, "$".to_owned()));
        assert_eq!(month("12€/year"), (1.0, "€".to_owned()));
        assert_eq!(month("7 EUR/month"), (7.0, "EUR".to_owned()));
        assert_eq!(month("0/month").0, 0.0);
        assert!(price("7").unwrap_err().contains("7/month or 7/h"));
        for text in ["-7/month", "7/fortnight", "x/month", "7 florins/month", "", "/", "NaN/h"] {
            assert!(price(text).unwrap_err().contains("7/month"), "{text}");
        }
    }

    #[test]
    fn shares_and_numbers() {
        assert_eq!((percent("30%"), percent("0 %")), (Ok(0.3), Ok(0.0)));
        assert!(percent("0.3").unwrap_err().contains("30%"));
        assert!(percent("30").unwrap_err().contains("30%"));
        assert!(percent("-1%").is_err() && percent("NaN").is_err());
        assert_eq!(number("1.2", 0.0, 100.0, "1.2"), Ok(1.2));
        assert!(number("-1", 0.0, 100.0, "1.2").is_err() && number("1x", 0.0, 100.0, "1.2").is_err());
        assert_eq!(count("1,000", 1, 5_000, "2"), Ok(1_000));
        assert!(count("0", 1, 5, "2").unwrap_err().contains("at least 1"));
        assert!(count("2.5", 1, 5, "2").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected_with_a_message(text in "\\PC{0,20}") {
            for error in [rate(&text).err(), time(&text, "7ms").err(), percent(&text).err(), price(&text).err()].into_iter().flatten() {
                prop_assert!(error.len() > 10);
            }
            if let Ok(rate) = rate(&text) {
                prop_assert!(rate > 0.0 && rate.is_finite());
            }
        }
    }
}
