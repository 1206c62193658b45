//! The table of options: one entry each, a file per category.
//!
//! Contract:
//! 1. Everything that a user sees of an option (flag, variable, key, help, default) comes from its entry.
//! 2. An entry's type is the type of its value: `taker.take(&limits::max_body)` returns an `Option<u64>`.
//! 3. An option that needs no other is a field of a `section!`: its entry alone turns `limits.max_body` into `Settings::limits.max_body`.
//!    Options that depend on each other (`bind`, `port` and `host`; `workers` and `worker_memory_estimate`) are declared with `entries!`
//!    and combined in [`crate::resolve`].
//! 4. Defaults are written in the form in which a user would write them, and the tests read each of them.

pub(crate) mod acme;
pub(crate) mod app;
pub(crate) mod cache;
pub mod commands;
pub(crate) mod compression;
pub(crate) mod entry;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod hub;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod logs;
pub(crate) mod maintenance;
pub(crate) mod mruby;
pub(crate) mod queue;
pub(crate) mod rack;
pub(crate) mod reload;
pub(crate) mod section;
pub(crate) mod shared;
pub(crate) mod site;
pub(crate) mod stats;
pub(crate) mod taker;
pub(crate) mod timeouts;
pub(crate) mod tls;
pub(crate) mod traces;
pub(crate) mod workers;

pub use app::DIR_WORD;
pub use commands::COMMANDS;
pub(crate) use commands::command_like;
pub use entry::{About, AnyEntry, Category, Flag, Takes};
use section::Section as _;

/// All options, in the order in which help shows them.
pub fn entries() -> impl Iterator<Item = &'static dyn AnyEntry> + Clone {
    [
        app::ALL,
        app::Process::OPTIONS,
        listen::ALL,
        health::Health::OPTIONS,
        tls::ALL,
        tls::Https::OPTIONS,
        acme::ALL,
        workers::ALL,
        queue::ALL,
        rack::Rack::OPTIONS,
        reload::Reload::OPTIONS,
        maintenance::Maintenance::OPTIONS,
        files::ALL,
        site::ALL,
        site::SitePages::OPTIONS,
        site::FileCache::OPTIONS,
        compression::Compression::OPTIONS,
        cache::Cache::OPTIONS,
        hub::Hub::OPTIONS,
        logs::Logs::OPTIONS,
        stats::Stats::OPTIONS,
        traces::Traces::OPTIONS,
        timeouts::Timeouts::OPTIONS,
        limits::Limits::OPTIONS,
        shared::Shared::OPTIONS,
        mruby::ALL,
        mruby::HandlerLimits::OPTIONS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::raw::Raw;

    fn abouts() -> impl Iterator<Item = &'static About> {
        entries().map(|entry| entry.about())
    }

    fn assert_unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            assert!(seen.insert(name), "{what} {name} is there twice");
        }
        assert!(!seen.is_empty(), "there is no {what}");
    }

    #[test]
    fn every_default_is_read() {
        for entry in entries() {
            let about = entry.about();
            let raw = Raw::Word(about.default.to_owned());
            assert_eq!(entry.check(&raw), Ok(()), "the default of {}", about.key);
        }
    }

    #[test]
    fn every_entry_is_documented() {
        for entry in entries() {
            let about = entry.about();
            assert!(!about.doc.is_empty() && !about.doc.ends_with('.'), "{}", about.key);
            assert!(about.doc.starts_with(char::is_uppercase), "{}", about.key);
            assert!(about.doc.len() <= 72, "{}: one line, not {}", about.key, about.doc.len());
            assert!(about.more.is_empty() || about.more.ends_with('.'), "{}", about.key);
            assert!(about.shown_default().is_some(), "{} shows no default", about.key);
            assert!(!entry.expected().is_empty(), "{}", about.key);
            assert!(!about.flags.is_empty() || about.positional.is_some(), "{} cannot be typed", about.key);
            let only_off = about.flags.first().is_some_and(|flag| flag.takes == Takes::Nothing("false"));
            assert!(!only_off || !about.off.is_empty(), "{} says nothing of its flag", about.key);
            assert!(about.off.len() <= 72 && !about.off.ends_with('.'), "{}", about.key);
        }
    }

    #[test]
    fn commands_take_options_that_exist() {
        for command in COMMANDS {
            if let commands::Options::These(keys) = command.options {
                assert!(keys.iter().all(|key| abouts().any(|about| about.key == *key)), "{}", command.name);
            }
            for own in command.arguments {
                let clashes = |about: &&About| {
                    command.options.include(about.key) && about.flags.iter().any(|flag| flag.long == own.name)
                };
                assert!(!abouts().any(|about| clashes(&about)), "{} --{}", command.name, own.name);
            }
        }
        assert_unique("command", COMMANDS.iter().map(|command| command.name));
    }

    #[test]
    fn no_names_clash() {
        assert_unique("key", abouts().map(|about| about.key));
        assert_unique("variable", abouts().flat_map(|about| about.env.iter().copied()));
        let flags = || abouts().flat_map(|about| about.flags);
        // The command line adds these itself.
        assert_unique("flag", flags().map(|flag| flag.long).chain(["help", "version", "json"]));
        let letters: Vec<String> =
            flags().filter_map(|flag| flag.short).chain(['h', 'V']).map(String::from).collect();
        assert_unique("letter", letters.iter().map(String::as_str));
        assert_unique("other name", abouts().flat_map(|about| about.known_as.iter().copied()));
    }

    #[test]
    fn names_have_their_usual_spelling() {
        for about in abouts() {
            // Digits occur in protocol versions: `http3`.
            let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let parts: Vec<&str> = about.key.split('.').collect();
            assert!(parts.len() <= 2 && parts.iter().all(|part| part.chars().all(snake)), "{}", about.key);
            for flag in about.flags {
                assert!(
                    flag.long.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                    "--{}",
                    flag.long
                );
                // Completion scripts of zsh separate their fields with colons.
                assert!(!matches!(flag.takes, Takes::Value(name) if name.contains(':')), "--{}", flag.long);
            }
            for other in about.known_as {
                assert!(abouts().all(|about| about.key != *other), "{other} is a key");
            }
        }
    }

    #[test]
    fn no_key_is_a_table_too() {
        let tables: BTreeSet<&str> =
            abouts().filter_map(|about| Some(about.key.split_once('.')?.0)).collect();
        assert!(abouts().all(|about| !tables.contains(about.key)));
    }

    #[test]
    fn flags_without_a_value_stand_for_one_that_is_taken() {
        for entry in entries() {
            for flag in entry.about().flags {
                if let Takes::Nothing(means) = flag.takes {
                    assert_eq!(entry.check(&Raw::Word(means.to_owned())), Ok(()), "--{}", flag.long);
                }
            }
        }
    }

    #[test]
    fn categories_stand_together() {
        let mut titles: Vec<&str> = abouts().map(|about| about.category.title()).collect();
        titles.dedup();
        assert_unique("category", titles.into_iter());
    }
}
