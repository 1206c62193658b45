//! The questions: facts in, findings out.
//!
//! Contract: pure. Each question that applies gives one finding or more, whatever the facts are.

mod app;
mod certificates;
mod database;
mod files;
mod machine;
mod network;
#[cfg(test)]
mod tests;
mod timing;

use settings::Settings;
use settings::table::{self, Takes};

use super::facts::DeployFacts;
use super::finding::{DeployFinding, PasteLine};

/// Answers all questions, in the order in which people read them.
pub(crate) fn answer(facts: &DeployFacts) -> Vec<DeployFinding> {
    [
        app::environment(facts),
        app::secrets(facts),
        app::ruby(facts),
        database::database(facts),
        machine::memory(facts),
        machine::cpus(facts),
        app::allocator(facts),
        machine::descriptors(facts),
        machine::temp_dir(facts),
        machine::folders(facts),
        files::public(facts),
        files::logs(facts),
        network::addresses(facts),
        network::proxy(facts),
        network::early_hints(facts),
        timing::timeouts(facts),
        timing::shutdown(facts),
        certificates::certificates(facts),
        certificates::names(facts),
    ]
    .concat()
}

/// Returns the line that sets a key: in `firebrick.toml`, or as a flag where a `firebrick.toml` would replace the `puma.rb` in force.
/// `value` is written as in TOML.
fn set(facts: &DeployFacts, key: &str, value: &str) -> PasteLine {
    let settings = &facts.settings;
    let flags = table::entries().map(|entry| entry.about()).find(|about| about.key == key);
    let flags = flags.map(|about| about.flags).unwrap_or_default();
    let only_puma = settings.puma_rb.is_some() && settings.config.is_none();
    let flag = flags.iter().find(|flag| match flag.takes {
        Takes::Nothing(means) => means == value,
        Takes::Value(_) => true,
    });
    if let (true, Some(flag)) = (only_puma, flag) {
        let value = match flag.takes {
            Takes::Nothing(_) => String::new(),
            Takes::Value(_) => format!(" {}", value.trim_matches('"')),
        };
        let text = format!("firebrick --{}{value}", flag.long);
        return PasteLine { place: "command line".to_owned(), text };
    }
    let file = settings::CONFIG_FILE;
    // A table may be written once only, and dotted keys are another way to write it.
    let section = key.split_once('.').filter(|(section, _)| facts.sections.iter().any(|one| one == section));
    match section {
        Some((section, name)) => {
            PasteLine { place: format!("{file}, below [{section}]"), text: format!("{name} = {value}") }
        }
        None => PasteLine {
            place: format!("{file}, above the first [section]"),
            text: format!("{key} = {value}"),
        },
    }
}

/// Returns the line that sets a variable.
fn variable(name: &str, value: &str) -> PasteLine {
    PasteLine { place: "environment".to_owned(), text: format!("{name}={value}") }
}

/// The workers at their maximum, of all pools.
fn all_workers(settings: &Settings) -> u64 {
    let others: u64 = settings.pools.iter().map(|pool| u64::from(pool.workers)).sum();
    others + u64::from(settings.workers.max)
}

/// Bytes for people: `1.5 GiB`.
fn bytes(bytes: u64) -> String {
    text::people::size(bytes as f64, text::people::figure)
}

/// Returns `1 worker`, `2 workers`.
fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", text::people::grouped(number))
}
