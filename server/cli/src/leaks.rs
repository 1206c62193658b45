//! Reads the options of `firebrick leaks`, and checks them before the server is asked.

use crate::arguments::values;
use clap::ArgMatches;
use control::leaks::{LONGEST, LeaksOrder, TOP, USUAL};
use std::time::Duration;

/// # Errors
/// An option is invalid, or does not go with another one.
pub(crate) fn wish(given: &ArgMatches) -> Result<LeaksOrder, String> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let number = |name: &str, expected: &str| {
        let read =
            |text: &str| text.parse::<u32>().map_err(|_| format!("--{name} {text}: expected {expected}"));
        text(name).map(read).transpose()
    };
    let words: Vec<&str> = values(given, "time").collect();
    let time = match words[..] {
        [] => USUAL,
        [one] => {
            let expected = || {
                format!(
                    "{one}: expected a time such as 30s or 5m, from 1s to 24h; the directory goes with --dir"
                )
            };
            let time = settings::period(one).map_err(|_| expected())?;
            (Duration::from_secs(1)..=LONGEST).contains(&time).then_some(time).ok_or_else(expected)?
        }
        _ => return Err(format!("{}: expected one time, such as 5m", words.join(" "))),
    };
    let top = match text("top").map(|text| (text, text::count::parse(text))) {
        None => TOP,
        Some((_, Ok(count))) if count > 0 => usize::try_from(count).unwrap_or(usize::MAX),
        Some((text, _)) => return Err(format!("--top {text}: expected a number from 1, such as 20")),
    };
    let wish = LeaksOrder {
        time,
        worker: number("worker", "the number of a worker, such as 0")?,
        pid: number("pid", "the process id of a worker, such as 4711")?,
        trace: given.get_flag("trace"),
        examples: given.get_flag("examples"),
        top,
        json: given.get_flag("json"),
    };
    if wish.worker.is_some() && wish.pid.is_some() {
        return Err("--worker and --pid both name a worker: give one of them".to_owned());
    }
    if wish.examples && !wish.trace {
        return Err("--examples goes with --trace: without places a group is a whole class, of which a few Strings tell nothing".to_owned());
    }
    Ok(wish)
}
