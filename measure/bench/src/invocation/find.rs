//! `--find`: reads its objectives and its time, and refuses the flags that a search does not use.

use std::time::Duration;

use load::inputs;
use load::inputs::condition::{Condition, Metric};

use super::flags::Flags;
use super::output::{Format, Output};
use crate::objective::{Wanted, complete, objective};

/// The time of a search.
const WITHIN: Duration = Duration::from_secs(90);
/// The least time in which a search can say anything.
const LEAST: Duration = Duration::from_secs(5);

pub(super) fn read(flags: &mut Flags<'_>, output: &Output, conditions: &[Condition]) -> Option<Wanted> {
    flags.needs("within", "find", "it is the time of a search");
    if !flags.given("find") {
        return None;
    }
    flags.not_with("find", &["duration", "requests", "reps"], "use --within for the time of the search");
    flags.not_with("find", &["think", "replay"], "the search sets when requests are sent");
    flags.not_with("find", &["warm-up"], "each of its steps has a warm-up");
    flags.not_with("find", &["grace"], "it waits as long as the objective allows");
    flags.not_with(
        "find",
        &["workers", "listen", "join"],
        "a search needs one process; give it threads with -t",
    );
    if !matches!(output.format, Format::Human | Format::Json | Format::Csv) {
        flags.mistake(
            "--format: the formats of ab, siege and wrk cannot show a search: expected human, json or csv",
        );
    }
    for condition in conditions.iter().filter(|condition| !matches!(condition.metric, Metric::Rate)) {
        flags.mistake(format!(
            "--fail-if {}: a search has one result, its rate: expected a condition such as rate<100/s",
            condition.text
        ));
    }
    let objectives = complete(flags.each("find", objective));
    let within = flags.value("within", |text| match inputs::duration(text)? {
        time if time >= LEAST => Ok(time),
        _ => Err(format!("{text:?}: a search needs at least {} s", LEAST.as_secs())),
    });
    let start = flags.value("rate", |text| {
        inputs::rate(text).map_err(|why| format!("with --find it is the first rate to try: {why}"))
    });
    Some(Wanted { objectives, within: within.unwrap_or(WITHIN), start })
}
