//! The options of `firebrick profile`.

use crate::choose::Choice;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use control::profile::{LONGEST, MOST_HZ, ProfileOrder};
use regex::Regex;
use settings::table::DIR_WORD;
use std::path::PathBuf;
use std::time::Duration;

/// How a profile is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Text,
    Json,
    Speedscope,
    Pprof,
}

/// Words, and how the files end.
const FORMATS: [(&str, Format, &str); 5] = [
    ("html", Format::Html, ".html"),
    ("text", Format::Text, ".txt"),
    ("json", Format::Json, ".json"),
    ("speedscope", Format::Speedscope, ".speedscope.json"),
    ("pprof", Format::Pprof, ".pb"),
];

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) order: ProfileOrder,
    pub(crate) choice: Choice,
    pub(crate) format: Format,
    /// `None`: only text on standard output.
    pub(crate) file: Option<PathBuf>,
    /// The page is shown in a browser.
    pub(crate) opens: bool,
    /// A profile to compare with.
    pub(crate) diff: Option<PathBuf>,
    /// A profile to read instead of taking one.
    pub(crate) from: Option<PathBuf>,
}

/// The ids of the arguments with the app's folder: after the time, or with a flag.
const DIRS: [&str; 2] = [DIR_WORD, "dir"];

pub(crate) fn arguments(command: Command) -> Command {
    let has_dir = command.get_arguments().any(|argument| argument.get_id() == DIR_WORD);
    let command = if has_dir { command.mut_arg(DIR_WORD, |dir| dir.index(2)) } else { command };
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).help_heading("Profile")
    };
    let switch = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help).help_heading("Profile")
    };
    let file = |name, help| value(name, "FILE", help).value_hint(ValueHint::FilePath);
    command
        .arg(Arg::new("time").value_name("TIME").index(1).help("How long: 20s, 2m (default: 10s)"))
        .arg(value("hz", "N", "Samples per second, from 1 to 1000 (default: 100)"))
        .arg(switch("wall", "Count the time that passes: also waits (default)").conflicts_with("cpu"))
        .arg(switch("cpu", "Count processor time: what computes"))
        .arg(value("path", "REGEXP", "Only requests whose path matches"))
        .arg(value("route", "NAME", "Only requests of this route, such as posts#show"))
        .arg(value("slowest", "PERCENT", "Only the slowest requests: 1%"))
        .arg(value(
            "format",
            "FORMAT",
            "html, text, json, speedscope or pprof (default: html, or what FILE ends with)",
        ))
        .arg(
            file("out", "Write to this file (default: firebrick-profile.html; text: the terminal)")
                .short('o'),
        )
        .arg(file("diff", "Compare with this profile (a file of --format json)"))
        .arg(file("from", "Read this profile (a file of --format json) instead of taking one"))
        .arg(switch("no-open", "Do not show the page in a browser"))
}

impl Options {
    /// # Errors
    /// Which option is wrong, and what it may be.
    pub(crate) fn read(matches: &ArgMatches) -> Result<Options, String> {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        let path = |name: &str| text(name).map(PathBuf::from);
        let mut order = ProfileOrder::default();
        if let Some(given) = text("time").filter(|_| only_dir(matches).is_none()) {
            order.time = time(given)?;
        }
        if let Some(given) = text("hz") {
            let hz = given.parse().ok().filter(|hz| (1..=MOST_HZ).contains(hz));
            order.hz = hz
                .ok_or_else(|| format!("--hz {given}: expected a number from 1 to {MOST_HZ}, such as 100"))?;
        }
        order.cpu = matches.get_flag("cpu");
        let (from, output) = (path("from"), path("out"));
        let has_time = text("time").is_some() && only_dir(matches).is_none();
        let takes = has_time || text("hz").is_some();
        if from.is_some() && (takes || order.cpu || matches.get_flag("wall")) {
            return Err("--from reads a profile: TIME, --hz, --wall and --cpu are for taking one".to_owned());
        }
        let format = format(text("format"), output.as_ref())?;
        let file = output.or_else(|| match format {
            Format::Text => None,
            _ => Some(default_file(format)),
        });
        Ok(Options {
            order,
            choice: choice(text("path"), text("route"), text("slowest"))?,
            format,
            file,
            opens: format == Format::Html && !matches.get_flag("no-open"),
            diff: path("diff"),
            from,
        })
    }
}

/// Returns the app's folder where it is the only word. A word that begins with a digit is meant as a time, unless it is a path.
pub(crate) fn only_dir(matches: &ArgMatches) -> Option<&str> {
    let has_dir = DIRS.iter().any(|id| matches.try_get_one::<String>(id).is_ok_and(|dir| dir.is_some()));
    let word = matches.get_one::<String>("time").map(String::as_str).filter(|_| !has_dir)?;
    (word.contains('/') || !word.starts_with(|first: char| first.is_ascii_digit())).then_some(word)
}

fn time(given: &str) -> Result<Duration, String> {
    let time = text::span::parse(given).map_err(|_| {
        format!(
            "{given}: expected a time such as 20s or 2m; a folder comes after it: firebrick profile 20s DIR"
        )
    })?;
    let fits = (Duration::from_millis(100)..=LONGEST).contains(&time);
    fits.then_some(time)
        .ok_or_else(|| format!("{given}: expected a time from 100ms to {}s", LONGEST.as_secs()))
}

fn format(given: Option<&str>, file: Option<&PathBuf>) -> Result<Format, String> {
    if let Some(word) = given {
        let found = FORMATS.iter().find(|(name, ..)| *name == word);
        return found.map(|(_, format, _)| *format).ok_or_else(|| {
            let words: Vec<&str> = FORMATS.iter().map(|(name, ..)| *name).collect();
            format!("--format {word}: expected one of {}", words.join(", "))
        });
    }
    let Some(name) = file.and_then(|file| file.to_str()) else { return Ok(Format::Html) };
    let ending = FORMATS.iter().filter(|(_, _, end)| name.ends_with(end)).max_by_key(|(_, _, end)| end.len());
    let by_ending =
        || format!("-o {name}: --format is missing; only .html, .txt, .json and .pb say it themselves");
    ending.map(|(_, format, _)| *format).ok_or_else(by_ending)
}

fn default_file(format: Format) -> PathBuf {
    let end = FORMATS.iter().find(|(_, one, _)| *one == format).map_or("", |(_, _, end)| end);
    PathBuf::from(format!("firebrick-profile{end}"))
}

fn choice(path: Option<&str>, route: Option<&str>, slowest: Option<&str>) -> Result<Choice, String> {
    let path = path.map(|text| Regex::new(text).map_err(|error| format!("--path: {error}"))).transpose()?;
    let share = |text: &str| {
        let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
        let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        percent
            .map(|percent| percent / 100.0)
            .ok_or_else(|| format!("--slowest {text}: expected a share such as 1%"))
    };
    Ok(Choice { path, route: route.map(str::to_owned), slowest: slowest.map(share).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        let command = arguments(Command::new("profile").arg(Arg::new(DIR_WORD)));
        let words = std::iter::once(&"profile").chain(words);
        Options::read(&command.try_get_matches_from(words).unwrap())
    }

    #[test]
    fn options_are_read() {
        let all = ["2m", "app", "--hz", "49", "--cpu", "--path", "^/a", "--slowest", "1%", "-o", "x.pb"];
        let options = read(&all).unwrap();
        assert_eq!(options.order, ProfileOrder { time: Duration::from_secs(120), hz: 49, cpu: true });
        assert_eq!(
            (options.format, options.choice.slowest, options.opens),
            (Format::Pprof, Some(0.01), false)
        );
        let plain = read(&[]).unwrap();
        assert_eq!((plain.order, plain.format), (ProfileOrder::default(), Format::Html));
        assert_eq!(plain.file, Some(PathBuf::from("firebrick-profile.html")));
        assert_eq!(read(&["./app"]).unwrap().order, ProfileOrder::default());
        assert_eq!(read(&["--format", "text"]).unwrap().file, None);
        assert_eq!(read(&["-o", "a.speedscope.json"]).unwrap().format, Format::Speedscope);
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (words, what) in [
            (&["soon", "app"][..], "a folder comes after it"),
            (&["1ms"], "from 100ms to 600s"),
            (&["--hz", "0"], "from 1 to 1000"),
            (&["--path", "("], "--path"),
            (&["--slowest", "0%"], "such as 1%"),
            (&["--format", "svg"], "html, text, json, speedscope, pprof"),
            (&["-o", "x.out"], "--format is missing"),
            (&["10s", "--from", "a.json"], "for taking one"),
        ] {
            let why = read(words).unwrap_err();
            assert!(why.contains(what), "{words:?}: {why}");
        }
    }
}
