//! Flags of Puma, Unicorn and rackup that do not exist here.
//!
//! Why: users who move from those servers have such flags in unit files, Procfiles and scripts. Flags for
//! behaviour that is always on are accepted, renamed flags are translated, and for all others a message gives
//! the replacement.
//!
//! Contract: a word is looked up only if clap does not know it, so no flag of this program is ever hidden.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use settings::table::COMMANDS;

/// The treatment of a flag of another server.
enum Fate {
    /// Accepted without effect, for this reason.
    Taken(&'static str),
    /// Replaced by these words; `{DEFAULT}` is its value.
    Means(&'static [&'static str]),
    /// Refused; the text says what to write instead.
    Refused(&'static str),
}
use Fate::{Means, Refused, Taken};

/// A flag with its names, and whether a value follows.
struct Foreign(&'static [&'static str], bool, Fate);

const FOREIGN: &[Foreign] = &[
    Foreign(&["--preload"], false, Taken("workers are always forked from a process that has loaded the app")),
    Foreign(
        &["--prune-bundler"],
        false,
        Taken("the server is no gem in your bundle, and a new release brings its own Gemfile"),
    ),
    Foreign(
        &["--extra-runtime-dependencies"],
        true,
        Taken("it belongs to --prune-bundler, which is not needed"),
    ),
    Foreign(&["--redirect-append"], false, Taken("log files are always appended to")),
    Foreign(&["--no-redirect-append"], false, Taken("log files are always appended to")),
    Foreign(&["--debug"], false, Taken("there are no debug messages to switch on")),
    Foreign(
        &["-R", "--restart-cmd"],
        true,
        Taken("`firebrick upgrade` starts the program again as it was started"),
    ),
    Foreign(&["-N", "--no-default-middleware"], false, Taken("no middleware is added")),
    Foreign(
        &["--bind-to-activated-sockets"],
        false,
        Taken("sockets of systemd are used where their address is one of --bind"),
    ),
    Foreign(&["-s", "--silent"], false, Means(&["--quiet"])),
    Foreign(&["--no-config"], false, Means(&["--config", "-"])),
    Foreign(&["--redirect-stderr"], true, Means(&["--error-log", "{}"])),
    Foreign(&["-f", "--fork-worker"], false, Means(&["--refork-after", "{1000}"])),
    Foreign(&["-P", "--pid"], true, Means(&["--pidfile", "{}"])),
    Foreign(&["-E", "--env"], true, Means(&["--environment", "{}"])),
    Foreign(&["-l", "--listen"], true, Means(&["--bind", "{}"])),
    Foreign(
        &["--redirect-stdout"],
        true,
        Refused(
            "send it there when you start it (`firebrick >> FILE`), or write stdout_redirect in puma.rb; requests are logged to a file with --access-log FILE",
        ),
    ),
    Foreign(&["-I", "--include"], true, Refused("set RUBYLIB, which adds to Ruby's load path")),
    Foreign(&["--plugin"], true, Refused("write plugin :NAME in config/puma.rb")),
    Foreign(&["--idle-timeout"], true, Refused("the server does not end by itself; leave it out")),
    Foreign(
        &["-d", "-D", "--daemonize", "--daemon"],
        false,
        Refused(
            "the server stays in the foreground; let systemd or another supervisor start it (docs/systemd.md)",
        ),
    ),
    Foreign(
        &["-c", "--config-file"],
        true,
        Refused("a configuration of Unicorn is not read; docs/from-unicorn.md says what its lines are here"),
    ),
];

/// The replaced words, and a note.
type Translated = (Vec<OsString>, Option<String>);

/// Translates the flag that clap did not know. Returns the command line without the flag together with a
/// note, or a message. `None` if the flag is not in this list.
pub(crate) fn translate(error: &clap::Error, words: &[OsString]) -> Option<Result<Translated, String>> {
    if error.kind() != ErrorKind::UnknownArgument || words.iter().skip(1).any(|word| is_other_command(word)) {
        return None;
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = unknown.split(['=', ' ']).next().unwrap_or_default();
    let Foreign(_, valued, fate) = FOREIGN.iter().find(|foreign| foreign.0.contains(&flag))?;
    // The first word is the program.
    let at = 1 + words.iter().skip(1).position(|word| is_it(word, flag))?;
    let inside = inner_value(&words[at], flag);
    // This one flag may be followed by a word, as `--bind-to-activated-sockets only`.
    let behind = words.get(at + 1).filter(|next| {
        inside.is_none() && (*valued || flag == "--bind-to-activated-sockets" && *next == "only")
    });
    let value = inside.or_else(|| behind.cloned());
    let mut rest = words.to_vec();
    let count = 1 + usize::from(behind.is_some());
    match fate {
        Refused(remedy) => Some(Err(format!("Firebrick has no flag {flag}: {remedy}"))),
        _ if *valued && value.is_none() => Some(Err(format!("{flag}: a value is required"))),
        Taken(why) => {
            rest.drain(at..at + count);
            Some(Ok((rest, Some(format!("{flag} is ignored: {why}")))))
        }
        Means(ours) => {
            let word = |ours: &&str| match ours.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(default) => value.clone().unwrap_or_else(|| default.into()),
                None => OsString::from(ours),
            };
            let ours: Vec<OsString> = ours.iter().map(word).collect();
            rest.splice(at..at + count, ours);
            Some(Ok((rest, None)))
        }
    }
}

/// Returns whether the word is a command with flags of its own.
fn is_other_command(word: &OsStr) -> bool {
    COMMANDS
        .iter()
        .any(|command| word == command.name && !["serve", "check", "deploy-check"].contains(&command.name))
}

fn is_it(word: &OsStr, flag: &str) -> bool {
    word == flag || inner_value(word, flag).is_some()
}

/// Returns the value in `--flag=value` or `-fvalue`.
fn inner_value(word: &OsStr, flag: &str) -> Option<OsString> {
    let rest = word.to_str()?.strip_prefix(flag)?;
    let rest = match rest.strip_prefix('=') {
        Some(value) => value,
        None if flag.starts_with("--") => return None,
        None => rest,
    };
    (!rest.is_empty()).then(|| rest.into())
}
