//! `firebrick check`: shows the resulting settings with their origins, and all mistakes.

use std::fmt::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use control::client::ControlClient;
use front::explain::Question;
use settings::puma::CallDescription;
use settings::{Loaded, Settings, ValueSource};

use crate::print::print;

/// Tries to load the app once. Returns a line to print, or the reason why the app does not load.
pub type CheckTrial<'a> = &'a dyn Fn(&Settings) -> Result<String, String>;

/// Prints the settings, and loads the app if `trial` can. Fails if the app could not be served.
pub fn check(loaded: &Loaded, trial: Option<CheckTrial<'_>>) -> ExitCode {
    let warnings: String = loaded.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    // Printed before the trial, which may take a while or print lines of its own.
    let changes = running(&loaded.settings).map_or_else(String::new, |client| changes_of(&client));
    let printed = print(text::masked(&format!("{}{changes}{warnings}", Plan(loaded))).as_bytes());
    match try_app(&loaded.settings, trial) {
        Ok(_) if printed != ExitCode::SUCCESS => printed,
        Ok(line) => print(text::masked(&format!("{line}\n")).as_bytes()),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the line about an app that can be served, or the reason why it cannot.
pub(crate) fn try_app(settings: &Settings, trial: Option<CheckTrial<'_>>) -> Result<String, String> {
    settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
    settings.control.safe_to_listen()?;
    trial.map_or_else(|| Ok("The configuration is valid.".to_owned()), |trial| trial(settings))
}

/// Prints the rule that responds to a request; fails if there is none.
pub fn explain(loaded: &Loaded, explain: CheckTrial<'_>) -> ExitCode {
    match explain(&loaded.settings) {
        Ok(text) => print(text.as_bytes()),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Describes what the running server's cache has for the request of `firebrick explain`, and its changes of settings; empty
/// without server.
pub fn kept(settings: &Settings, question: &Question) -> String {
    let Some(client) = running(settings) else { return String::new() };
    let scheme = if question.https { "https" } else { "http" };
    let key = match &question.host {
        Some(host) => format!("{scheme}://{}{}", host.to_ascii_lowercase(), question.target),
        None => question.target.clone(),
    };
    let kept =
        control::cache::explain_kept(&client, &key).map(|text| format!("\n{text}")).unwrap_or_default();
    kept + &changes_of(&client)
}

/// Returns a client of the running server's control socket, if there may be one.
fn running(settings: &Settings) -> Option<ControlClient> {
    let control = &settings.control;
    let client = ControlClient::new(control.ask.clone()?, control.token.clone());
    Some(client.within(Duration::from_secs(2)))
}

/// Describes the changes of settings of the running server; empty without any, or without a server.
fn changes_of(client: &ControlClient) -> String {
    let changes = control::set::changes_in_force(client);
    changes
        .map(|lines| format!("\nThe running server has other values (firebrick set):\n{lines}"))
        .unwrap_or_default()
}

/// Returns the files that were read, as text.
fn configuration(settings: &Settings) -> String {
    let ruby = settings.puma_rb.as_ref().map(|file| &file.path);
    let files: Vec<String> =
        settings.config.iter().chain(ruby).map(|path| path.display().to_string()).collect();
    if files.is_empty() { "no file".to_owned() } else { files.join(", ") }
}

/// The table of a `puma.rb` with the effect of each call.
struct Table<'a> {
    file: &'a Path,
    rows: &'a [CallDescription],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, evaluated once:", self.file.display())?;
        let cells = |row: &CallDescription| {
            let place = if row.place.0 == self.file {
                row.place.1.to_string()
            } else {
                format!("{}:{}", row.place.0.display(), row.place.1)
            };
            (place, row.call.clone(), row.outcome.to_string())
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        let width = |cell: fn(&(String, String, String)) -> &str| {
            rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0).min(44)
        };
        let (places, calls) = (width(|row| &row.0), width(|row| &row.1));
        for (place, call, outcome) in &rows {
            writeln!(f, "  {place:>places$}  {call:<calls$}  {outcome}")?;
        }
        if rows.is_empty() {
            writeln!(f, "  it sets nothing")?;
        }
        Ok(())
    }
}

/// Displays the settings for people.
pub(crate) struct Plan<'a>(pub(crate) &'a Loaded);

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.0.settings;
        let served = settings.app.as_deref().unwrap_or(&settings.dir);
        writeln!(f, "Firebrick {} would serve {}\n", crate::VERSION, served.display())?;
        for (name, text) in self.lines() {
            writeln!(f, "  {name:<13} {text}")?;
        }
        writeln!(f)?;
        if let (Some(file), Some(rows)) = (&settings.puma_rb, &self.0.puma) {
            writeln!(f, "{}", Table { file: &file.shown, rows })?;
        }
        if !self.0.choices.is_empty() {
            writeln!(f, "Not at its default:\n{}", self.choices())?;
        }
        Ok(())
    }
}

impl Plan<'_> {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let Loaded { settings, workers_why, front_threads_why, .. } = self.0;
        let path = |path: &Option<std::path::PathBuf>, none: &str| {
            path.as_ref().map_or_else(|| none.to_owned(), |path| path.display().to_string())
        };
        let mut lines = vec![
            ("environment", self.with_origin("environment", &settings.process.environment)),
            ("configuration", configuration(settings)),
        ];
        for (index, bind) in settings.binds.iter().enumerate() {
            lines.push((if index == 0 { "listen" } else { "" }, bind.to_string()));
        }
        if let Some(site) = &settings.sites.main {
            lines.push(("rules", path(&site.static_json, "none (no static.json)")));
        }
        lines.extend(
            settings
                .sites
                .hosts
                .iter()
                .map(|host| ("site", format!("{} for {}", host.site.dir.display(), host.host))),
        );
        lines.extend(
            settings.mruby.routes.iter().rev().map(|route| ("mruby", route.describe(settings.base()))),
        );
        let plural = if settings.front_threads == 1 { "thread" } else { "threads" };
        lines.push(("front", format!("{} {plural} ({front_threads_why})", settings.front_threads)));
        if settings.app.is_some() {
            let seats = settings.seats_text(settings.fibers);
            lines.push(("workers", format!("{} x {seats} ({workers_why})", settings.workers)));
            lines.extend(settings.pools.iter().map(|pool| ("pool", format!("{}: {pool}", pool.name))));
            lines.push(("files", path(&settings.files.public, "off")));
        }
        lines.extend(settings.sendfile.iter().map(|rule| {
            let missing = if rule.folder.is_dir() { "" } else { " (there is no such folder)" };
            ("sendfile", format!("{} in {}{missing}", rule.prefix, rule.folder.display()))
        }));
        lines.extend(settings.queue.classes.iter().map(|class| ("queue class", class.to_string())));
        lines.extend(settings.rate_limits.iter().map(|limit| ("rate limit", limit.to_string())));
        let environment = &settings.process.environment;
        lines.extend(settings.services.iter().map(|service| {
            let elsewhere = if service.runs_in(environment) { "" } else { " (not in this environment)" };
            ("service", format!("{}: {}{elsewhere}", service.name, service.program))
        }));
        let control = &settings.control.listen;
        lines.extend(control.is_empty().then(|| ("control", "off".to_owned())));
        lines.extend(
            control
                .iter()
                .enumerate()
                .map(|(index, address)| (if index == 0 { "control" } else { "" }, address.to_string())),
        );
        lines
    }

    fn with_origin(&self, key: &str, value: &str) -> String {
        let choice = self.0.choices.iter().find(|choice| choice.key == key);
        format!("{value} ({})", choice.map_or(&ValueSource::Default, |choice| &choice.origin))
    }

    /// Returns one line for each written value in force, with its origin.
    fn choices(&self) -> String {
        let rows: Vec<(String, String)> = self
            .0
            .choices
            .iter()
            .map(|choice| (format!("{} = {}", choice.key, choice.value), choice.origin.to_string()))
            .collect();
        let width = rows.iter().map(|(value, _)| value.chars().count()).max().unwrap_or(0).min(60);
        rows.iter().fold(String::new(), |mut text, (value, origin)| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {value:<width$}  {origin}");
            text
        })
    }
}
