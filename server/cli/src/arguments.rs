//! Converts clap's matches for `settings`, and reads lists of values for commands.

use clap::ArgMatches;
use clap::parser::ValueSource;
use settings::Argument;
use settings::table::{self, About, Flag, Takes};

use crate::grammar::flag_ids;

/// Returns all options in `matches`. Options after the command come first, because they are stronger.
pub(crate) fn arguments(matches: &ArgMatches) -> Vec<Argument> {
    let behind = matches.subcommand().map(|(_, matches)| matches);
    behind.into_iter().chain([matches]).flat_map(of_level).collect()
}

fn of_level(matches: &ArgMatches) -> Vec<Argument> {
    let entries = table::entries().map(|entry| entry.about());
    entries.flat_map(|about| positional(matches, about).into_iter().chain(flags(matches, about))).collect()
}

fn positional(matches: &ArgMatches, about: &'static About) -> Option<Argument> {
    let value = matches.try_get_one::<String>(about.positional?).ok().flatten()?;
    Some(Argument { key: about.key, flag: "argument".to_owned(), values: vec![value.clone()] })
}

fn flags(matches: &ArgMatches, about: &'static About) -> impl Iterator<Item = Argument> {
    flag_ids(about).filter_map(move |(id, flag)| {
        let typed = matches.ids().any(|known| known == id)
            && matches.value_source(id) == Some(ValueSource::CommandLine);
        let values = if typed { values_of(matches, id, flag) } else { return None };
        Some(Argument { key: about.key, flag: format!("--{}", flag.long), values })
    })
}

fn values_of(matches: &ArgMatches, id: &str, flag: &Flag) -> Vec<String> {
    match flag.takes {
        Takes::Nothing(means) => vec![means.to_owned()],
        Takes::Value(_) => values(matches, id).map(str::to_owned).collect(),
    }
}

/// Returns the values of an option that may be repeated, or of an argument.
pub(crate) fn values<'a>(matches: &'a ArgMatches, id: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    matches.get_many::<String>(id).into_iter().flatten().map(String::as_str)
}
