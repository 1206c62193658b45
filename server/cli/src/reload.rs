//! Reads the options of `firebrick reload`, and checks them before the server is asked.

use clap::ArgMatches;
use stats::ReloadWish;
use std::time::Duration;

/// The shortest and the longest shadow that can be ordered, apart from none.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// Returns what to order; `None` to only list the differences that were found.
///
/// # Errors
/// An option is invalid, or two exclude each other.
pub(crate) fn wish(given: &ArgMatches) -> Result<Option<ReloadWish>, String> {
    let [undo, in_place, differences, json] =
        ["undo", "in-place", "differences", "json"].map(|name| given.get_flag(name));
    let shadow = given.get_one::<String>("shadow").map(|typed| time(typed)).transpose()?;
    if json && !differences {
        return Err("--json belongs to --differences".to_owned());
    }
    let others = [undo, in_place, shadow.is_some()].iter().filter(|given| **given).count();
    if differences && others > 0 {
        return Err("--differences only lists what was found: give it alone".to_owned());
    }
    match (undo, in_place, shadow) {
        (true, _, Some(_)) => Err("--shadow does not go with --undo, which loads no new code".to_owned()),
        (false, true, Some(_)) => {
            Err("--shadow does not go with --in-place: a shadow takes the memory of more workers".to_owned())
        }
        _ if differences => Ok(None),
        (true, ..) => Ok(Some(ReloadWish::Undo)),
        (false, true, None) => Ok(Some(ReloadWish::InPlace)),
        (false, false, Some(time)) => Ok(Some(ReloadWish::Shadowed(time))),
        (false, false, None) => Ok(Some(ReloadWish::Reload)),
    }
}

fn time(typed: &str) -> Result<Duration, String> {
    let time =
        text::span::parse(typed).ok().filter(|time| time.is_zero() || (SHORTEST..=LONGEST).contains(time));
    time.ok_or_else(|| {
        format!("--shadow {typed}: expected a time from 100ms to 24h, such as 2m, or 0 for none")
    })
}
