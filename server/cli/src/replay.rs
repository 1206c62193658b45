//! `firebrick deaths --replay N`: reads its options, and prints what became of each request.

use clap::ArgMatches;
use control::client::ControlClient;
use control::replay;
use settings::{Argument, Environment, Loaded, ValueSource};
use std::process::ExitCode;
use std::time::Duration;

/// The usual time limit of a request, and the longest.
const USUAL: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(3600);

/// Which requests are repeated, and how long each may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayWish {
    pub number: u64,
    pub limit: Duration,
}

/// Returns the wish; `None` without `--replay`.
///
/// # Errors
/// An option is invalid, or does not go with another one.
pub(crate) fn wish(given: &ArgMatches) -> Result<Option<ReplayWish>, String> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let Some(number) = text("replay") else {
        return match text("limit") {
            Some(_) => {
                Err("--limit goes with --replay N: it is the time limit of the repeated request".to_owned())
            }
            None => Ok(None),
        };
    };
    let wrong = || {
        format!(
            "--replay {number}: expected the number of a record, such as 3: `firebrick deaths` lists them"
        )
    };
    let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    if given.get_flag("json") || given.get_flag("minute") {
        return Err(
            "--replay prints what became of the requests: --json and --minute do not go with it".to_owned()
        );
    }
    let limit = text("limit").map_or(Ok(USUAL), |text| {
        let limit =
            settings::period(text).ok().filter(|limit| (Duration::from_secs(1)..=LONGEST).contains(limit));
        limit.ok_or_else(|| format!("--limit {text}: expected a time such as 30s, from 1s to 1h"))
    })?;
    Ok(Some(ReplayWish { number, limit }))
}

/// An app to boot, and the words that lead to it.
pub type App = (Loaded, Vec<Argument>);

/// Returns the app in the environment in which the server serves it: a flag of the server is not known here. A variable of this terminal that
/// names another one takes precedence.
///
/// # Errors
/// No server runs; the settings are wrong in that environment.
fn as_served(app: App, client: &ControlClient, here: &dyn Environment) -> Result<App, String> {
    let (loaded, mut arguments) = app;
    let key = "environment";
    let chosen = loaded.choices.iter().find(|choice| choice.key == key);
    let served = replay::environment(&loaded.settings.dir, client)?;
    let here_wins = chosen.is_some_and(|choice| matches!(choice.origin, ValueSource::Env(_)));
    if here_wins || served == loaded.settings.process.environment {
        return Ok((loaded, arguments));
    }
    arguments.push(Argument { key, flag: "the environment of the server".to_owned(), values: vec![served] });
    let loaded = settings::load(&arguments, here).map_err(|errors| errors.to_string())?;
    Ok((loaded, arguments))
}

/// Repeats the requests with `repeat`, which gets their payloads and returns for each whether it went well, and what happened. Exits 0 only if all
/// went well.
pub fn replay(
    app: App,
    client: &ControlClient,
    number: u64,
    here: &dyn Environment,
    repeat: impl FnOnce(App, &[Vec<u8>]) -> Result<Vec<(bool, String)>, String>,
) -> ExitCode {
    let repeated = replay::kept(&app.0.settings.dir, client, number).and_then(|requests| {
        let payloads: Vec<Vec<u8>> = requests.iter().map(replay::payload).collect::<Result<_, _>>()?;
        let app = as_served(app, client, here)?;
        output::print(format!(
            "Repeating what no. {number} was serving, with the code in {}, environment {}. All effects are real.\n",
            app.0.settings.dir.display(),
            app.0.settings.process.environment
        ));
        Ok((repeat(app, &payloads)?, requests))
    });
    match repeated {
        Ok((outcomes, requests)) => {
            for ((_, text), request) in outcomes.iter().zip(&requests) {
                let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
                output::print(format!("\n{}\n{text}", replay::describe(request)));
            }
            if outcomes.iter().all(|(good, _)| *good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            output::complain(format_args!("firebrick: {error}"));
            ExitCode::FAILURE
        }
    }
}
