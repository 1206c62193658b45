//! The completion scripts and the manual page.

use std::io;
use std::process::ExitCode;

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use settings::CONFIG_FILE;
use settings::table::{self, COMMANDS};

use crate::grammar::full_grammar;
use crate::help::{EXAMPLES, VALUES};

/// Prints the completion script for a shell.
pub fn completions(shell: Shell) -> ExitCode {
    print(&completion_script(shell))
}

/// Prints the version like `--version`.
pub fn print_version() -> ExitCode {
    print(format!("firebrick {}\n", crate::version()).as_bytes())
}

/// Prints the manual page as roff.
pub fn man() -> ExitCode {
    match manual() {
        Ok(page) => print(&page),
        Err(error) => {
            output::complain(format_args!("error: no manual page: {error}"));
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut full_grammar(), "firebrick", &mut script);
    script
}

/// Returns one page with the description, the commands, each option once, and the exit codes.
pub(crate) fn manual() -> io::Result<Vec<u8>> {
    let man = Man::new(full_grammar());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    // Clap's own section would refer to a page per command, but there is only this one.
    section("COMMANDS", COMMANDS.iter().map(|command| (command.name, command.doc))).to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    Roff::new().control("SH", ["VALUES"]).text([roman(VALUES)]).to_writer(&mut page)?;
    section("SIGNALS", SIGNALS.iter().copied()).to_writer(&mut page)?;
    section("ENVIRONMENT", variables()).to_writer(&mut page)?;
    section("FILES", FILES.iter().copied()).to_writer(&mut page)?;
    section("EXIT STATUS", EXIT_CODES.iter().copied()).to_writer(&mut page)?;
    section("EXAMPLES", EXAMPLES.iter().copied()).to_writer(&mut page)?;
    Ok(page)
}

/// Returns the variables that set options, with what they set.
fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    table::entries()
        .map(|entry| entry.about())
        .flat_map(|about| about.env.iter().map(|name| (*name, about.doc)))
}

/// The signals to the server (`front::signals`).
const SIGNALS: &[(&str, &str)] = &[
    ("TERM, QUIT", "Finish the requests in progress, at most for --shutdown-timeout, and end."),
    ("INT", "The same; a second one ends the server at once, in development the first."),
    ("USR1", "Reload: new code, one worker after the other."),
    ("USR2", "Upgrade: a new process of this program takes the sockets over."),
    ("HUP", "Open the log files again."),
    ("TTIN, TTOU", "One worker more, one fewer."),
];

const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Success; a server has finished its requests and stopped."),
    ("1", "check found a mistake, deploy-check something red, or the server failed."),
    ("2", "The command line or the configuration is wrong."),
];

const FILES: &[(&str, &str)] = &[
    (CONFIG_FILE, "Configuration in the app's directory, in TOML; the options name their keys."),
    ("config/puma.rb", "Puma's configuration, which is read as well."),
    ("config.ru", "The Rack app."),
    ("static.json", "The rules of a static site."),
    ("tmp/restart.txt", "A reload begins when this file is touched."),
    (
        "$XDG_RUNTIME_DIR/firebrick/, /tmp/firebrick-UID/, /run/firebrick/",
        "The sockets by which commands such as stats and reload reach a server.",
    ),
    (
        "$STATE_DIRECTORY, $XDG_STATE_HOME/firebrick/, ~/.local/state/firebrick/",
        "Certificates, the secret of session tickets, and what the server has learnt.",
    ),
];

fn section<'a>(title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, text) in rows {
        roff.control("TP", []).text([bold(name)]).text([roman(text)]);
    }
    roff
}

/// Writes to standard output; a closed pipe is not a failure.
pub(crate) fn print(text: &[u8]) -> ExitCode {
    output::print(text);
    output::verdict(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> impl Iterator<Item = &'static str> {
        settings::table::entries().flat_map(|entry| entry.about().flags).map(|flag| flag.long)
    }

    #[test]
    fn completions_know_every_flag_and_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completion_script(shell)).expect("a script is text");
            for flag in flags() {
                assert!(script.contains(flag), "{shell} does not know --{flag}");
            }
            for command in COMMANDS {
                assert!(script.contains(command.name), "{shell} does not know {}", command.name);
            }
            assert!(script.contains("combined"), "{shell} does not know the words of an option");
        }
    }

    #[test]
    fn the_manual_knows_every_flag_command_and_exit_code() {
        let page = String::from_utf8(manual().expect("a page")).expect("a page is text");
        for flag in flags() {
            // Roff writes a hyphen that may not break a line as \-.
            assert!(page.contains(&flag.replace('-', "\\-")), "--{flag} is missing");
        }
        let commands = COMMANDS.iter().map(|command| command.name);
        for name in commands.chain(EXIT_CODES.iter().map(|(code, _)| *code)) {
            assert!(page.contains(&format!("\\fB{}\\fR", name.replace('-', "\\-"))), "{name} is missing");
        }
        for title in ["VALUES", "SIGNALS", "ENVIRONMENT", "FILES", "EXAMPLES"] {
            assert!(page.contains(&format!(".SH {title}\n")), "{title} is missing");
        }
        for name in ["WEB_CONCURRENCY", "TTIN, TTOU", "static.json", "firebrick tune"] {
            assert!(page.contains(name), "{name} is missing");
        }
        assert!(page.contains(".TH firebrick 1"), "{page}");
    }

    #[test]
    fn bash_accepts_its_script() {
        let script = completion_script(Shell::Bash);
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("firebrick.bash");
        std::fs::write(&path, script).expect("a file");
        match std::process::Command::new("bash").arg("-n").arg(&path).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "bash is only missing"),
        }
    }
}
