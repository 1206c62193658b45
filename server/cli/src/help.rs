//! The page of `firebrick --help` (and of `serve`, `check` and `deploy-check`, which take all options): the commands by task, the
//! options that most people need, and examples.
//!
//! Why a page of its own: a list of all options is longer than anybody reads. `--help-all` prints that.
//!
//! Contract: each command is in one group; the page has fewer than [`LINES`] lines of at most [`WIDTH`] columns. Names and texts come from the table.

use clap::builder::StyledStr;
use settings::table::commands::{Command, Form, Own};
use settings::table::{self, About, COMMANDS, Takes};
use std::fmt::Write;

/// The width of a terminal that every user has.
const WIDTH: usize = 80;
/// The most lines of a page.
#[cfg(test)]
const LINES: usize = 150;
/// The columns before the text of a command, and of an option.
const COMMAND_COLUMNS: usize = 16;
const OPTION_COLUMNS: usize = 27;

/// The commands by task.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve", &["serve", "check", "deploy-check", "explain", "trust"]),
    ("Deploy", &["reload", "upgrade", "set", "pause", "resume", "maintenance", "ps", "status", "stop"]),
    (
        "Look inside",
        &["top", "stats", "routes", "profile", "leaks", "deaths", "shape", "cache", "hub", "certs"],
    ),
    ("Measure", &["bench", "tune", "plan", "record"]),
    ("Shell", &["completions", "man", "version"]),
];

/// The first flags of the options that most people need.
const OPTIONS: [&str; 18] = [
    "config",
    "environment",
    "port",
    "bind",
    "https",
    "domain",
    "workers",
    "threads",
    "fibers",
    "slo",
    "root",
    "mruby",
    "cache",
    "max-body",
    "worker-timeout",
    "access-log",
    "control",
    "quiet",
];

pub(crate) const EXAMPLES: [(&str, &str); 6] = [
    ("firebrick", "the app (config.ru) or the static site in this directory"),
    ("firebrick ~/shop -e production -w 4 -t 5", "4 processes of 5 threads"),
    ("firebrick --root public --port 8080", "a directory as a static site"),
    ("firebrick --domain shop.example.org", "HTTPS with certificates of its own"),
    ("firebrick reload ~/shop", "new code, without a lost request"),
    ("firebrick tune", "the best number of processes and threads"),
];

pub(crate) const VALUES: &str = "Values come from flags, then variables, then firebrick.toml, then defaults. \
                      Sizes: 65536, 64KiB, 10MB. Times: 30, 30s, 500ms, 2m.";

/// Returns the page of the program, or of a command that takes all options.
pub(crate) fn page(command: Option<&Command>) -> StyledStr {
    let mut page = Page::default();
    match command {
        None => page.program(),
        Some(command) => page.command(command),
    }
    page.heading("Frequent options");
    let entries = OPTIONS.iter().filter_map(|name| about(name));
    entries.for_each(|about| page.option(about));
    page.gap();
    page.paragraph(VALUES);
    page.gap();
    let all =
        command.map_or("firebrick --help-all".to_owned(), |one| format!("firebrick {} --help-all", one.name));
    page.row(&all, all.len() + 3, "all options, with their defaults, variables and keys");
    if command.is_none() {
        page.row("firebrick COMMAND --help", all.len() + 3, "the options of a command");
    }
    page.text.into()
}

/// Returns the option with this first flag.
fn about(flag: &str) -> Option<&'static About> {
    table::entries()
        .map(|entry| entry.about())
        .find(|about| about.flags.first().is_some_and(|one| one.long == flag))
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn program(&mut self) {
        self.paragraph(crate::ABOUT);
        self.gap();
        self.usage("firebrick [COMMAND] [DIR|config.ru] [OPTIONS]");
        self.heading("Examples");
        let columns = EXAMPLES.iter().map(|(command, _)| command.len()).max().unwrap_or_default() + 3;
        for (command, text) in EXAMPLES {
            self.row(command, columns, text);
        }
        for (title, names) in GROUPS {
            self.heading(title);
            for command in names.iter().filter_map(|name| COMMANDS.iter().find(|one| one.name == *name)) {
                self.row(command.name, COMMAND_COLUMNS, command.doc);
            }
        }
    }

    fn command(&mut self, command: &Command) {
        self.paragraph(command.doc);
        self.gap();
        self.usage(&format!("firebrick {} [DIR|config.ru] [OPTIONS]", command.name));
        if !command.arguments.is_empty() {
            self.heading("Options of this command");
            command.arguments.iter().for_each(|own| self.own(own));
        }
    }

    fn usage(&mut self, words: &str) {
        let _ = writeln!(self.text, "\x1b[1m\x1b[4mUsage:\x1b[0m {words}");
    }

    fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "\n\x1b[1m\x1b[4m{title}:\x1b[0m");
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn option(&mut self, about: &About) {
        let Some(flag) = about.flags.first() else { return };
        let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let value = match flag.takes {
            Takes::Value(name) => format!(" <{name}>"),
            Takes::Nothing(_) => String::new(),
        };
        let default =
            about.shown_default().filter(|default| !matches!(*default, "none" | "false" | "off" | "0"));
        let default = default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        self.row(
            &format!("{short}--{}{value}", flag.long),
            OPTION_COLUMNS,
            &format!("{}{default}", about.doc),
        );
    }

    fn own(&mut self, own: &Own) {
        let value = match own.form {
            Form::Value { value, .. } => format!(" <{value}>"),
            _ => String::new(),
        };
        self.row(&format!("--{}{value}", own.name), OPTION_COLUMNS, own.doc);
    }

    /// Writes a term and, from this column on, its text.
    fn row(&mut self, term: &str, columns: usize, text: &str) {
        let _ = write!(self.text, "  \x1b[1m{term}\x1b[0m");
        let indent = columns + 2;
        if term.len() >= columns {
            let _ = write!(self.text, "\n{:indent$}", "");
        } else {
            let _ = write!(self.text, "{:1$}", "", columns - term.len());
        }
        self.wrapped(text, indent);
    }

    fn paragraph(&mut self, text: &str) {
        self.wrapped(text, 0);
    }

    fn wrapped(&mut self, text: &str, indent: usize) {
        let mut column = indent;
        for word in text.split_whitespace() {
            let width = word.chars().count();
            if column > indent && column + 1 + width > WIDTH {
                let _ = write!(self.text, "\n{:indent$}", "");
                column = indent;
            }
            if column > indent {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += width;
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Vec<(&'static str, String)> {
        let all =
            COMMANDS.iter().filter(|one| one.takes_all()).map(|one| (one.name, page(Some(one)).to_string()));
        all.chain([("firebrick", page(None).to_string())]).collect()
    }

    #[test]
    fn a_page_is_short_and_narrow() {
        let pages = pages();
        assert!(pages.len() >= 4);
        for (name, text) in pages {
            assert!(text.lines().count() < LINES, "{name}: {}", text.lines().count());
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
        }
    }

    #[test]
    fn each_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in COMMANDS {
            assert_eq!(grouped.iter().filter(|name| **name == command.name).count(), 1, "{}", command.name);
        }
        assert_eq!(grouped.len(), COMMANDS.len(), "each name is a command");
    }

    #[test]
    fn each_frequent_option_exists() {
        for name in OPTIONS {
            assert!(about(name).is_some(), "--{name}");
        }
    }
}
