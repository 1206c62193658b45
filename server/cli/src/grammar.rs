//! The command line as a grammar for clap, built from the table.
//!
//! Options may come before or after the command. Clap splits words into options and counts them. `settings`
//! judges the values, together with variables and the file, so that all mistakes are reported at once.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, StyledStr, TypedValueParser};
use clap::{Arg, ArgAction, Command, ValueHint};
use settings::Completion;
use settings::table::commands::{Form, Own};
use settings::table::{self, About, AnyEntry, COMMANDS, Flag, Takes};

use crate::help;

/// The word that asks for the help of all options.
pub(crate) const HELP_ALL: &str = "--help-all";

/// Returns the whole grammar. Where a command takes all options, `--help` prints the frequent ones.
pub(crate) fn grammar() -> Command {
    let paged = |grammar: Command, described: &'static table::commands::Command| {
        grammar.mut_subcommand(described.name, |command| command.override_help(help::page(Some(described))))
    };
    let all = COMMANDS.iter().filter(|described| described.takes_all());
    all.fold(full_grammar().override_help(help::page(None)), paged)
}

/// Returns the grammar whose `--help` prints all options.
pub(crate) fn full_grammar() -> Command {
    let root = Command::new("firebrick")
        .version(crate::version())
        .about(crate::ABOUT)
        .after_help(
            "Values come from flags, then variables, then firebrick.toml, then defaults. \
             --help shows more about each option.",
        )
        .after_long_help(
            "Values come from flags, then variables, then firebrick.toml, then defaults.\n\
             Sizes: 65536, 64KiB, 10MB. Times: 30, 30s, 500ms, 2m.",
        )
        .args(arguments(|_| true))
        .arg(help_all());
    COMMANDS.iter().fold(root, |root, described| root.subcommand(command(described)))
}

fn command(described: &'static table::commands::Command) -> Command {
    let options = arguments(|about| described.options.include(about.key));
    let command = Command::new(described.name).about(described.doc).args(described.arguments.iter().map(own));
    let command = command.args(options);
    let command = if described.takes_all() { command.arg(help_all()) } else { command };
    measuring(described.name, command)
}

/// The option is found before the words are parsed, because it stands for help, whatever else is missing.
fn help_all() -> Arg {
    Arg::new("help-all").long("help-all").action(ArgAction::SetTrue).help("Print help with all options")
}

/// Adds the options of the measuring commands, which their crates define.
#[cfg(feature = "measuring")]
fn measuring(name: &str, command: Command) -> Command {
    match name {
        "bench" => bench::arguments(command),
        "tune" => tuner::arguments(command),
        "plan" => plan::arguments(command),
        "profile" => profiler::arguments(command),
        "top" => top::arguments(command),
        _ => command,
    }
}

/// Accepts any words in a build without the measuring commands, so that the error says that the command is missing.
#[cfg(not(feature = "measuring"))]
fn measuring(name: &str, command: Command) -> Command {
    let words = Arg::new("words").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true).hide(true);
    if matches!(name, "bench" | "tune" | "plan" | "profile" | "top") { command.arg(words) } else { command }
}

/// Returns the app's folder where it stands in the place of the time of a profile.
#[cfg(feature = "measuring")]
pub(crate) fn only_dir(given: &clap::ArgMatches) -> Option<&str> {
    profiler::only_dir(given)
}

/// As above.
#[cfg(not(feature = "measuring"))]
pub(crate) fn only_dir(_given: &clap::ArgMatches) -> Option<&str> {
    None
}

fn own(own: &'static Own) -> Arg {
    let arg = Arg::new(own.name).help(own.doc);
    match own.form {
        Form::Positional { value, words: [] } => arg.required(true).value_name(value),
        Form::Positional { value, words } => {
            arg.required(true).value_name(value).value_parser(words.to_vec())
        }
        Form::Words { value } => arg.value_name(value).num_args(0..).action(ArgAction::Append),
        Form::Choice { value, words } => arg.value_name(value).value_parser(words.to_vec()),
        Form::Value { value, repeated } => {
            let action = if repeated { ArgAction::Append } else { ArgAction::Set };
            arg.long(own.name).value_name(value).action(action)
        }
        Form::Switch => arg.long(own.name).action(ArgAction::SetTrue),
    }
}

/// Returns the arguments of the options that `wanted` selects.
fn arguments(wanted: impl Fn(&About) -> bool) -> Vec<Arg> {
    let entries = table::entries().filter(|entry| wanted(entry.about()));
    entries.flat_map(|entry| positional(entry).into_iter().chain(flags(entry))).collect()
}

fn positional(entry: &'static dyn AnyEntry) -> Option<Arg> {
    let about = entry.about();
    let name = about.positional?;
    // The flags, whose ids are their names, say the same.
    let flags = about.flags.iter().map(|flag| flag.long);
    Some(
        Arg::new(name)
            .conflicts_with_all(flags)
            .value_name(name)
            .value_hint(ValueHint::AnyPath)
            .help(short_help(about))
            .long_help(long_help(entry)),
    )
}

fn flags(entry: &'static dyn AnyEntry) -> impl Iterator<Item = Arg> {
    let about = entry.about();
    let siblings: Vec<&str> = about.flags.iter().map(|flag| flag.long).collect();
    about.flags.iter().enumerate().map(move |(index, flag)| {
        let arg = Arg::new(flag.long).long(flag.long).help_heading(about.category.title());
        let arg = flag.short.map_or(arg.clone(), |short| arg.short(short));
        // The last of contradicting flags wins, so that a script can add flags to its own arguments.
        let arg = if entry.is_list() { arg } else { arg.overrides_with_all(&siblings) };
        match flag.takes {
            Takes::Nothing(means) => bare(arg, about, index, means),
            Takes::Value(name) if index == 0 => valued(arg, entry, name),
            Takes::Value(name) => same(valued(arg, entry, name), about),
        }
    })
}

fn valued(arg: Arg, entry: &'static dyn AnyEntry, name: &'static str) -> Arg {
    let arg = arg
        .value_name(name)
        .action(if entry.is_list() { ArgAction::Append } else { ArgAction::Set })
        .help(short_help(entry.about()))
        .long_help(long_help(entry))
        .hide_possible_values(true);
    match entry.completion() {
        Completion::File => arg.value_hint(ValueHint::FilePath),
        Completion::Any => arg.value_hint(ValueHint::AnyPath),
        Completion::Directory => arg.value_hint(ValueHint::DirPath),
        Completion::Nothing if entry.words().is_empty() => arg.value_hint(ValueHint::Other),
        Completion::Nothing => arg.value_parser(Offered(entry.words())),
    }
}

/// Completes an argument that is another name of the option's first flag.
fn same(arg: Arg, about: &About) -> Arg {
    let text = format!("Same as --{}", about.flags.first().map_or(about.key, |flag| flag.long));
    arg.help(text.clone()).long_help(text)
}

/// Completes a flag without a value. The first flag is the option itself, unless it means `false`; others
/// show the value that they stand for.
fn bare(arg: Arg, about: &'static About, index: usize, means: &str) -> Arg {
    let arg = arg.action(ArgAction::SetTrue);
    match (index, means) {
        (_, "false") => arg.help(turned_off(about)),
        (0, _) => arg.help(short_help(about)).long_help(format!("{}{}", about.doc, details(about))),
        _ => {
            arg.help(format!("Same as --{} {means}", about.flags.first().map_or(about.key, |flag| flag.long)))
        }
    }
}

/// Returns the help of the flag that turns the option off.
fn turned_off(about: &About) -> String {
    match about.flags.first() {
        Some(first) if about.off.is_empty() => format!("Turn --{} off", first.long),
        _ => about.off.to_owned(),
    }
}

fn short_help(about: &About) -> StyledStr {
    let default = about.shown_default().map(|default| format!(" [default: {default}]")).unwrap_or_default();
    let env = match about.env {
        [] => String::new(),
        names => format!(" [env: {}]", names.join(", ")),
    };
    format!("{}{default}{env}", about.doc).into()
}

fn long_help(entry: &dyn AnyEntry) -> StyledStr {
    let about = entry.about();
    format!("{}{} Expected: {}.", about.doc, details(about), entry.expected()).into()
}

/// Returns one paragraph with more about the option, and one with its default, variables and key.
fn details(about: &About) -> String {
    let mut facts = Vec::new();
    if let Some(default) = about.shown_default() {
        facts.push(format!("Default: {default}."));
    }
    if !about.env.is_empty() {
        facts.push(format!("Variables: {}.", about.env.join(", ")));
    }
    if about.in_file {
        facts.push(format!("In {}: {}.", settings::CONFIG_FILE, about.key));
    }
    let more = if about.more.is_empty() { String::new() } else { format!("\n\n{}", about.more) };
    format!("{more}\n\n{}", facts.join(" "))
}

/// Accepts any text, but offers some words as completions.
#[derive(Clone)]
struct Offered(Vec<&'static str>);

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
    }
}

/// Returns the flags of an entry with their ids in the grammar.
pub(crate) fn flag_ids(about: &'static About) -> impl Iterator<Item = (&'static str, &'static Flag)> {
    about.flags.iter().map(|flag| (flag.long, flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(long: bool) -> String {
        let mut grammar = full_grammar();
        if long { grammar.render_long_help() } else { grammar.render_help() }.to_string()
    }

    #[test]
    fn clap_finds_no_fault() {
        grammar().debug_assert();
    }

    #[test]
    fn help_shows_every_option_with_default_and_variables() {
        for text in [help(false), help(true)] {
            // Wrapping may break a default in two.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for about in table::entries().map(|entry| entry.about()) {
                assert!(text.contains(about.category.title()), "{}", about.category.title());
                for flag in about.flags {
                    assert!(text.contains(&format!("--{}", flag.long)), "--{}", flag.long);
                }
                for name in about.env {
                    assert!(text.contains(name), "{name}");
                }
                let means_no = about.flags.first().is_some_and(|flag| flag.takes == Takes::Nothing("false"));
                if let Some(default) = about.shown_default().filter(|_| !means_no) {
                    assert!(text.contains(default), "the default of {}: {default}", about.key);
                    assert!(text.contains(about.doc), "{}", about.doc);
                }
            }
        }
    }

    #[test]
    fn long_help_names_the_keys_of_the_file() {
        let text = help(true);
        for about in table::entries().map(|entry| entry.about()).filter(|about| about.in_file) {
            let means_no = about.flags.first().is_some_and(|flag| flag.takes == Takes::Nothing("false"));
            assert!(means_no || text.contains(about.key), "{}", about.key);
        }
    }

    #[test]
    fn help_of_each_command_is_its_own() {
        for described in COMMANDS {
            let (name, doc) = (described.name, described.doc);
            let mut grammar = full_grammar();
            let command = grammar.find_subcommand_mut(name).expect("each command is in the grammar");
            let text = command.render_help().to_string();
            assert!(text.contains(doc), "{name}");
            assert_eq!(text.contains("--max-body"), described.takes_all(), "{name}");
        }
    }

    #[test]
    fn flags_that_turn_an_option_off() {
        let said = |key: &str| {
            table::entries().map(|entry| entry.about()).find(|about| about.key == key).map(turned_off)
        };
        assert_eq!(said("https").as_deref(), Some("Turn --https off"));
        assert_eq!(said("http3").as_deref(), Some("Turn HTTP/3 off"));
        assert_eq!(
            said("limits.predict_wait").as_deref(),
            Some("Let requests wait even if they are predicted to time out")
        );
    }
}
