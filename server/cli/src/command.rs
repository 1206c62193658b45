//! Reads the typed command and loads its settings.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::ArgMatches;
use clap_complete::Shell;
use control::Target;
use control::by_route::RoutesOrder;
use control::cache::CacheAction;
use control::client::ControlClient;
use control::interrupt::MaintenanceAction;
use control::leaks::LeaksOrder;
use control::orders::PauseOrder;
use control::record::RecordOrder;
use control::set::SetAction;
use front::explain::Question;
use settings::{Argument, At, Environment, Errors, Loaded, WithoutSecrets};
use stats::ReloadWish;

use crate::arguments::{arguments, values};
use crate::by_route;
use crate::deploy_check::{self, DeployCheckWish};
use crate::foreign;
use crate::grammar::{HELP_ALL, full_grammar, grammar, only_dir};
use crate::interruption;
use crate::leaks;
use crate::purge;
use crate::reload;
use crate::replay::{self, ReplayWish};
use crate::set;
use crate::trust::Trust;
use crate::words::Words;

/// The task of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Serve(Box<Loaded>, Vec<Argument>),
    Check {
        loaded: Box<Loaded>,
        arguments: Vec<Argument>,
        /// Write a `firebrick.toml` from `puma.rb`.
        write: bool,
    },
    /// Find what starts well and goes wrong in production.
    DeployCheck {
        loaded: Box<Loaded>,
        arguments: Vec<Argument>,
        wish: DeployCheckWish,
    },
    /// Show the rule that responds to a request.
    Explain(Box<Loaded>, Question),
    Stats {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Show what each route takes.
    Routes {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        wish: RoutesOrder,
    },
    /// Show the shape that follows the objective of response times.
    Shape {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Show why workers of a running server ended.
    Deaths {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// Print JSON instead of text.
        json: bool,
        /// Show all that is known of their last minutes.
        minute: bool,
    },
    /// Repeat the requests that a dead worker was serving.
    Replay {
        /// The app to boot.
        loaded: Box<Loaded>,
        arguments: Vec<Argument>,
        client: ControlClient,
        wish: ReplayWish,
    },
    /// Show what grows in a worker.
    Leaks {
        /// The app's directory.
        dir: PathBuf,
        client: ControlClient,
        wish: LeaksOrder,
    },
    /// Write the requests of a running server to a file.
    Record {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        order: RecordOrder,
        file: PathBuf,
    },
    /// Load the app of a running server again.
    Reload {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// Reload, or return to the previous code.
        wish: ReloadWish,
    },
    /// List what the shadow of the last reload has found.
    Differences {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        json: bool,
    },
    /// Start the program of a running server again; the old process hands over to the new one.
    Upgrade {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
    },
    /// Show what the cache keeps, or purge it.
    Cache {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        action: CacheAction,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Show the clients and streams of the hub.
    Hub {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Hold the requests for the app.
    Pause {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        order: PauseOrder,
        /// Wait until the app has finished the requests that it has.
        wait: bool,
    },
    /// End a pause.
    Resume {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
    },
    /// Switch maintenance on or off, or show it.
    Maintenance {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        action: MaintenanceAction,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Change settings of the running server, or show the changes.
    Set {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        action: SetAction,
        /// Print JSON instead of text.
        json: bool,
    },
    /// List the servers of this machine.
    Ps {
        /// Print JSON instead of text.
        json: bool,
    },
    /// Report whether a server runs.
    Status {
        target: Target,
        /// Print JSON instead of text.
        json: bool,
    },
    Stop {
        target: Target,
        /// The longest wait.
        timeout: Duration,
    },
    Certs {
        /// The settings of the server.
        loaded: Box<Loaded>,
        /// The connection to the server; `None` if its control socket is off.
        client: Option<ControlClient>,
        /// Print JSON instead of text.
        json: bool,
    },
    /// Measure a server under load.
    Bench(ArgMatches),
    /// Find the best settings.
    Tune(ArgMatches),
    /// Size a fleet.
    Plan(ArgMatches),
    /// Show where the workers of a running server spend their time.
    Profile {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// The other typed options.
        given: ArgMatches,
    },
    Top {
        /// The app's directory, for messages.
        dir: PathBuf,
        client: ControlClient,
        /// The other typed options.
        given: ArgMatches,
    },
    /// Make this machine trust the authority of development certificates.
    Trust(Trust),
    Completions(Shell),
    Version,
    Man,
}

/// Reads the command line (the program's name first) and loads the settings that the command needs.
///
/// # Errors
/// The exit code, after help, the version or an error was printed.
pub fn parse<Word: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = Word>,
    environment: &dyn Environment,
) -> Result<Command, ExitCode> {
    let command = interpret(words, environment);
    if let Ok(Command::Serve(loaded, _)) = &command {
        // With a `puma.rb` the warnings are known only after it has been evaluated.
        for warning in loaded.warnings.iter().filter(|_| loaded.settings.puma_rb.is_none()) {
            output::complain(format_args!("warning: {warning}"));
        }
    }
    command.map_err(Output::print)
}

/// Loads the settings of a front that a Ruby process has started, from the words for `serve`. Mistakes are reported to that process.
///
/// # Errors
/// The exit code.
pub fn parse_attached(
    attached: settings::Attached,
    words: Vec<OsString>,
    environment: &dyn Environment,
) -> Result<(Box<Loaded>, front::Reread), ExitCode> {
    let words = [OsString::from("firebrick"), OsString::from("serve")].into_iter().chain(words);
    let loaded = grammar().try_get_matches_from(words).map_err(Output::Clap).and_then(|matches| {
        let loaded = settings::load_attached(&arguments(&matches), environment, &attached);
        loaded.map_err(|errors| wrong(errors, 2))
    });
    let loaded = loaded.map_err(|output| {
        let (text, code) = match output {
            Output::Clap(error) => (error.to_string(), 2),
            Output::Wrong { errors, code } => (errors.join("\n"), code),
        };
        front::refuse(text.trim().trim_start_matches("error: "));
        ExitCode::from(code)
    })?;
    for warning in loaded.warnings.iter().filter(|_| loaded.settings.puma_rb.is_none()) {
        output::complain(format_args!("firebrick: warning: {warning}"));
    }
    Ok((Box::new(loaded), reread(None, environment)))
}

/// Returns how to load the settings of `serve` again: the same words, typed in the same place. `None`: the words cannot be read again,
/// because the app is in the process that started the front.
pub fn reread(arguments: Option<Vec<Argument>>, environment: &dyn Environment) -> front::Reread {
    Rc::new(Words { arguments, here: At(environment.current_dir()) })
}

/// Output that is printed instead of running a command.
#[derive(Debug)]
pub(crate) enum Output {
    /// From clap: help, version, or a wrong option.
    Clap(clap::Error),
    /// Mistakes in the settings; the exit code is `code`.
    Wrong { errors: Vec<String>, code: u8 },
}

impl Output {
    /// Prints the output. If a server that is being upgraded has started this program, it gets the message, too.
    fn print(self) -> ExitCode {
        match self {
            Output::Clap(error) => {
                front::decline(&error.to_string());
                let printed = error.print().and_then(|()| std::io::stdout().flush());
                if !error.use_stderr() {
                    output::note(printed);
                }
                output::verdict(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)))
            }
            Output::Wrong { errors, code } => {
                front::decline(&errors.join("\n"));
                for error in errors {
                    output::complain(format_args!("error: {error}"));
                }
                ExitCode::from(code)
            }
        }
    }
}

/// Parses the command line after translating flags of other servers.
fn matches<Word: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = Word>,
) -> Result<ArgMatches, Output> {
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    if let Some(asked) = words.iter().take_while(|word| *word != "--").position(|word| word == HELP_ALL) {
        words[asked] = "--help".into();
        return full_grammar().try_get_matches_from(&words).map_err(Output::Clap);
    }
    let mut notes = Vec::new();
    // Each turn removes a word or accepts it.
    for _ in 0..=words.len() {
        let error = match grammar().try_get_matches_from(&words) {
            Ok(matches) => {
                notes.iter().for_each(output::complain);
                return Ok(matches);
            }
            Err(error) => error,
        };
        match foreign::translate(&error, &words) {
            Some(Ok((rest, note))) => {
                words = rest;
                notes.extend(note);
            }
            Some(Err(message)) => return Err(Output::Wrong { errors: vec![message], code: 2 }),
            None => return Err(Output::Clap(error)),
        }
    }
    Err(Output::Wrong { errors: vec!["these words lead to no command".to_owned()], code: 2 })
}

pub(crate) fn interpret<Word: Into<OsString> + Clone>(
    words: impl IntoIterator<Item = Word>,
    environment: &dyn Environment,
) -> Result<Command, Output> {
    let matches = matches(words)?;
    let load = |code| settings::load(&arguments(&matches), environment).map_err(|errors| wrong(errors, code));
    // For commands that ask a running server: secrets may be in its environment alone.
    let here = WithoutSecrets(environment);
    let live = || settings::load(&arguments(&matches), &here).map_err(|errors| wrong(errors, 2));
    match matches.subcommand() {
        Some(("check", given)) => Ok(Command::Check {
            loaded: Box::new(load(1)?),
            arguments: arguments(&matches),
            write: given.get_flag("write"),
        }),
        Some(("deploy-check", given)) => {
            let wish = deploy_check::wish(given).map_err(mistyped)?;
            Ok(Command::DeployCheck { loaded: Box::new(load(2)?), arguments: arguments(&matches), wish })
        }
        Some(("explain", given)) => Ok(Command::Explain(Box::new(load(2)?), question(given))),
        Some(("stats", given)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Stats { dir, client, json: given.get_flag("json") })
        }
        Some(("routes", given)) => {
            let wish = by_route::wish(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Routes { dir, client, wish })
        }
        Some(("deaths", given)) => {
            if let Some(wish) = replay::wish(given).map_err(mistyped)? {
                let loaded = load(2)?;
                let (_, client) = running(loaded.clone())?;
                return Ok(Command::Replay {
                    loaded: Box::new(loaded),
                    arguments: arguments(&matches),
                    client,
                    wish,
                });
            }
            let (dir, client) = running(live()?)?;
            Ok(Command::Deaths {
                dir,
                client,
                json: given.get_flag("json"),
                minute: given.get_flag("minute"),
            })
        }
        Some(("leaks", given)) => {
            let wish = leaks::wish(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Leaks { dir, client, wish })
        }
        Some(("record", given)) => {
            let words: Vec<&str> = values(given, "file").collect();
            let file = control::record::file(&words).map_err(mistyped)?;
            let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
            let order = control::record::options(text).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Record { dir, client, order, file })
        }
        Some(("reload", given)) => {
            let wish = reload::wish(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(match wish {
                Some(wish) => Command::Reload { dir, client, wish },
                None => Command::Differences { dir, client, json: given.get_flag("json") },
            })
        }
        Some(("upgrade", _)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Upgrade { dir, client })
        }
        Some(("cache", given)) => {
            let action = purge::cache(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Cache { dir, client, action, json: given.get_flag("json") })
        }
        Some(("hub", given)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Hub { dir, client, json: given.get_flag("json") })
        }
        Some(("pause", given)) => {
            let order = interruption::pause(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Pause { dir, client, order, wait: given.get_flag("wait") })
        }
        Some(("resume", _)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Resume { dir, client })
        }
        Some(("maintenance", given)) => {
            let action = interruption::maintenance(given, &environment.current_dir()).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Maintenance { dir, client, action, json: given.get_flag("json") })
        }
        Some(("set", given)) => {
            let action = set::set(given).map_err(mistyped)?;
            let (dir, client) = running(live()?)?;
            Ok(Command::Set { dir, client, action, json: given.get_flag("json") })
        }
        Some(("shape", given)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Shape { dir, client, json: given.get_flag("json") })
        }
        Some(("ps", given)) => Ok(Command::Ps { json: given.get_flag("json") }),
        Some(("status", given)) => {
            Ok(Command::Status { target: target(live()?)?, json: given.get_flag("json") })
        }
        Some(("stop", given)) => {
            Ok(Command::Stop { timeout: stop_timeout(given)?, target: target(live()?)? })
        }
        Some(("certs", given)) => {
            let loaded = load(2)?;
            let control = &loaded.settings.control;
            let client =
                control.ask.clone().map(|address| ControlClient::new(address, control.token.clone()));
            Ok(Command::Certs { loaded: Box::new(loaded), client, json: given.get_flag("json") })
        }
        Some(("profile", given)) => {
            let dir = only_dir(given).map(|dir| Argument {
                key: "dir",
                flag: "argument".to_owned(),
                values: vec![dir.to_owned()],
            });
            let all: Vec<Argument> = dir.into_iter().chain(arguments(&matches)).collect();
            let loaded = settings::load(&all, &here).map_err(|errors| wrong(errors, 2))?;
            let (dir, client) = running(loaded)?;
            Ok(Command::Profile { dir, client, given: given.clone() })
        }
        Some(("top", given)) => {
            let (dir, client) = running(live()?)?;
            Ok(Command::Top { dir, client, given: given.clone() })
        }
        Some(("bench", given)) => Ok(Command::Bench(given.clone())),
        Some(("tune", given)) => Ok(Command::Tune(given.clone())),
        Some(("plan", given)) => Ok(Command::Plan(given.clone())),
        Some(("trust", given)) => Ok(Command::Trust(trust(given)?)),
        Some(("completions", given)) => Ok(Command::Completions(shell(given))),
        Some(("version", _)) => Ok(Command::Version),
        Some(("man", _)) => Ok(Command::Man),
        _ => Ok(Command::Serve(Box::new(load(2)?), arguments(&matches))),
    }
}

fn mistyped(error: String) -> Output {
    Output::Wrong { errors: vec![error], code: 2 }
}

fn wrong(errors: Errors, code: u8) -> Output {
    Output::Wrong { errors: errors.0.iter().map(ToString::to_string).collect(), code }
}

/// Returns the app's directory and a client of the server that runs there.
fn running(loaded: Loaded) -> Result<(PathBuf, ControlClient), Output> {
    let off = || {
        let choice = loaded.choices.iter().find(|choice| choice.key == "control");
        let place = choice.map(|choice| format!(" by {}", choice.origin)).unwrap_or_default();
        let error = format!("the control socket is turned off{place}, so the server cannot be reached");
        Output::Wrong { errors: vec![error], code: 2 }
    };
    let address = loaded.settings.control.ask.clone().ok_or_else(off)?;
    Ok((loaded.settings.dir, ControlClient::new(address, loaded.settings.control.token)))
}

/// Does the same, with the pid file.
fn target(loaded: Loaded) -> Result<Target, Output> {
    let pidfile = loaded.settings.process.pidfile.clone();
    let (dir, client) = running(loaded)?;
    Ok(Target { dir, client, pidfile })
}

/// The default of `stop --timeout`, as in systemd.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

fn stop_timeout(matches: &ArgMatches) -> Result<Duration, Output> {
    let Some(text) = matches.get_one::<String>("timeout") else { return Ok(STOP_TIMEOUT) };
    settings::period(text).map_err(|expected| Output::Wrong {
        errors: vec![format!("--timeout {text}: expected {expected}")],
        code: 2,
    })
}

fn trust(matches: &clap::ArgMatches) -> Result<Trust, Output> {
    let kinds = Trust::kinds(values(matches, "store"))
        .map_err(|error| Output::Wrong { errors: vec![error], code: 2 })?;
    let [undo, yes, dry_run] = ["undo", "yes", "dry-run"].map(|id| matches.get_flag(id));
    Ok(Trust { undo, yes, dry_run, kinds })
}

fn question(matches: &clap::ArgMatches) -> Question {
    let texts = |id: &str| values(matches, id).map(str::to_owned);
    Question {
        target: texts("path").next().unwrap_or_default(),
        host: texts("for-host").next(),
        headers: texts("header").collect(),
        https: matches.get_flag("https"),
    }
}

fn shell(matches: &clap::ArgMatches) -> Shell {
    match matches.get_one::<String>("shell").map(String::as_str) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
