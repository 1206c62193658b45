//! `firebrick check`: the resulting settings, where they come from, and what is wrong.

use std::fmt::{self, Write};
use std::process::ExitCode;

use settings::{Loaded, Origin, Settings};

use crate::print::print;

/// Tries to load the app once: a line to print about it, or why it does not load.
pub type Trial<'a> = &'a dyn Fn(&Settings) -> Result<String, String>;

/// Prints the settings, and loads the app if `trial` can; fails when it could not be served.
pub fn check(loaded: &Loaded, trial: Option<Trial<'_>>) -> ExitCode {
    let warnings: String = loaded.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    // Printed before the app is tried, which may take a while or print lines of its own.
    let printed = print(format!("{}{warnings}", Plan(loaded)).as_bytes());
    match try_app(&loaded.settings, trial) {
        Ok(_) if printed != ExitCode::SUCCESS => printed,
        Ok(line) => print(format!("{line}\n").as_bytes()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The line about an app that can be served, or why it cannot.
pub(crate) fn try_app(settings: &Settings, trial: Option<Trial<'_>>) -> Result<String, String> {
    settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
    settings.control.safe_to_listen()?;
    trial.map_or_else(|| Ok("The configuration is right.".to_owned()), |trial| trial(settings))
}

/// Prints which rule responds to a request; fails when there is none to show.
pub fn explain(loaded: &Loaded, explain: Trial<'_>) -> ExitCode {
    match explain(&loaded.settings) {
        Ok(text) => print(text.as_bytes()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The settings, for people.
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
            ("configuration", path(&settings.config, "no file")),
        ];
        for (index, bind) in settings.binds.iter().enumerate() {
            lines.push((if index == 0 { "listen" } else { "" }, bind.to_string()));
        }
        let threads = settings.threads;
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
        lines
            .extend(settings.mruby.routes.iter().rev().map(|route| ("mruby", route.describe(&settings.dir))));
        lines.push(("front", format!("{} threads ({front_threads_why})", settings.front_threads)));
        if settings.app.is_some() {
            lines.push(("workers", format!("{} x {threads} threads ({workers_why})", settings.workers)));
            lines.push(("files", path(&settings.files.public, "off")));
        }
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
        format!("{value} ({})", choice.map_or(&Origin::Default, |choice| &choice.origin))
    }

    /// A line for each value that was written and counts, and where.
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
