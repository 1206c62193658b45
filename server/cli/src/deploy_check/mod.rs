//! `firebrick deploy-check`: a traffic light before the first production start.
//!
//! Why: `check` fails for what would fail at the start. Much starts well and goes wrong later: a keep-alive that is shorter than the load
//! balancer's, a pool of connections that is smaller than the number of threads, a key that only the developer's machine has. Each of these
//! can be seen before, on the machine or in the container where the app will run.
//!
//! Contract:
//! 1. Settings are resolved as for `serve`, `puma.rb` included. Without an environment the questions are about production, and a finding says so.
//! 2. The app is not loaded, no address listens, nothing is written, no value of a secret is printed. Each thing that may
//!    take long has a limit. Bundler, which `puma.rb` may load, writes a missing Gemfile.lock, as at each start.
//! 3. Each question gives a finding: green, yellow or red, with its figure, and below it the line to paste. Facts are read by [`read`];
//!    [`questions`] is pure.
//! 4. Exit codes: 0 nothing is red, 1 something is red (with `--strict`: or yellow), 2 the command line or the configuration is wrong.

mod facts;
mod finding;
mod platform;
mod questions;
mod read;
mod show;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::ArgMatches;
use front::Rereads;
use settings::{Argument, Environment, Loaded, Machine, ProcessEnvironment, ValueSource};

use crate::print::print;
use crate::words::Words;
use facts::EnvironmentName;
use finding::TrafficLight;
use platform::ProxyInFront;

/// The options of the command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeployCheckWish {
    behind: Option<ProxyInFront>,
    /// The time between TERM and KILL.
    grace: Option<Duration>,
    /// The most connections that the database accepts.
    database_connections: Option<u32>,
    /// Whether no host name is looked up.
    offline: bool,
    /// Whether yellow findings fail, too.
    strict: bool,
    json: bool,
}

/// Reads the options.
///
/// # Errors
/// A value is wrong. The message names the flag and what was expected.
pub(crate) fn wish(given: &ArgMatches) -> Result<DeployCheckWish, String> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let grace = |text: &str| {
        settings::period(text).map_err(|expected| format!("--grace {text}: expected {expected}"))
    };
    let connections = |text: &str| {
        let number =
            text::digits(text).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| format!("--database-connections {text}: expected a whole number from 1"))
    };
    Ok(DeployCheckWish {
        behind: text("behind").map(ProxyInFront::parse).transpose()?,
        grace: text("grace").map(grace).transpose()?,
        database_connections: text("database-connections").map(connections).transpose()?,
        offline: given.get_flag("offline"),
        strict: given.get_flag("strict"),
        json: given.get_flag("json"),
    })
}

/// Answers all questions about the app of `loaded`, which the words of the command line are in `arguments`.
pub fn deploy_check(loaded: Loaded, arguments: Vec<Argument>, wish: &DeployCheckWish) -> ExitCode {
    let (loaded, environment) = match resolved(loaded, arguments) {
        Ok(resolved) => resolved,
        Err(why) => {
            output::complain(format_args!("error: {why}"));
            return ExitCode::from(2);
        }
    };
    if let Err(nothing) = loaded.settings.something_to_serve() {
        output::complain(format_args!("error: {nothing}"));
        return ExitCode::from(2);
    }
    let facts = read::read(&loaded, wish, environment);
    let findings = questions::answer(&facts);
    let text = if wish.json {
        format!("{:#}\n", show::json(&facts, &findings))
    } else {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = std::io::stdout().is_terminal() && !no_colour;
        show::people(&facts, &findings, colours)
    };
    let printed = print(text.as_bytes());
    let (worst, _) = show::summed(&findings);
    let fails = if wish.strict { TrafficLight::Yellow } else { TrafficLight::Red };
    if worst >= fails { ExitCode::FAILURE } else { printed }
}

/// The environment that is assumed if none is set.
const PRODUCTION: &str = "production";
const DEVELOPMENT: &str = "development";
/// The variables of the environment, the strongest first.
const VARIABLES: [&str; 3] = ["APP_ENV", "RACK_ENV", "RAILS_ENV"];
/// How long a `puma.rb` may take.
const PUMA_RB: Duration = Duration::from_secs(10);

/// Returns the settings with those of `puma.rb`, in production if no environment is set.
fn resolved(loaded: Loaded, arguments: Vec<Argument>) -> Result<(Loaded, EnvironmentName), String> {
    let evaluated =
        with_puma_rb(loaded, &Words { arguments: Some(arguments.clone()), here: MaybeProduction::AsItIs })?;
    let choice = evaluated.choices.iter().find(|choice| choice.key == "environment");
    // A puma.rb usually repeats the variable, or development.
    let is_set = choice.is_some_and(|choice| {
        !(matches!(choice.origin, ValueSource::Puma { .. }) && choice.value == DEVELOPMENT)
    });
    let name = evaluated.settings.process.environment.clone();
    if is_set {
        let origin = choice.map(|choice| choice.origin.to_string());
        let contradicting = VARIABLES
            .into_iter()
            .filter_map(|variable| Some((variable, std::env::var(variable).ok()?)))
            .filter(|(_, value)| !value.is_empty() && *value != name)
            .collect();
        return Ok((evaluated, EnvironmentName { name, origin, contradicting }));
    }
    let words = Words { arguments: Some(arguments), here: MaybeProduction::Production };
    let name = PRODUCTION.to_owned();
    Ok((
        with_puma_rb(words.read()?, &words)?,
        EnvironmentName { name, origin: None, contradicting: Vec::new() },
    ))
}

fn with_puma_rb(mut loaded: Loaded, words: &Words<MaybeProduction>) -> Result<Loaded, String> {
    if loaded.settings.puma_rb.is_none() {
        return Ok(loaded);
    }
    // Stops only the process that evaluates the file; the settings are resolved anew.
    let within = &mut loaded.settings.timeouts.worker_boot;
    *within = (*within).min(PUMA_RB);
    let reread: front::Reread = Rc::new(words.clone());
    // Dropping the process that has evaluated the file ends it.
    front::configure(loaded, &reread, None).map(|(loaded, _)| loaded)
}

/// The surroundings of this process as they are, or as if `RACK_ENV` were production.
#[derive(Clone, Copy, Debug)]
enum MaybeProduction {
    AsItIs,
    Production,
}

impl Environment for MaybeProduction {
    fn var(&self, name: &str) -> Option<String> {
        match self {
            MaybeProduction::Production if name == "RACK_ENV" => Some(PRODUCTION.to_owned()),
            _ => ProcessEnvironment.var(name),
        }
    }

    fn current_dir(&self) -> PathBuf {
        ProcessEnvironment.current_dir()
    }

    fn uid(&self) -> u32 {
        ProcessEnvironment.uid()
    }

    fn machine(&self) -> Machine {
        ProcessEnvironment.machine()
    }
}
