//! Command-line arguments of `firebrick top`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use std::time::Duration;

/// The shortest interval; a shorter one would mostly measure its own load.
pub(crate) const SHORTEST: Duration = Duration::from_millis(100);
pub(crate) const LONGEST: Duration = Duration::from_secs(3_600);

/// The servers of the fleet, and the address of a page for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetOptions {
    /// The addresses as typed.
    pub(crate) servers: Vec<String>,
    /// A file with more addresses.
    pub(crate) file: Option<PathBuf>,
    /// The address at which to serve a page instead of drawing a screen.
    pub(crate) serve: Option<String>,
}

/// The validated command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The time between samples.
    pub(crate) interval: Duration,
    /// Whether to print one screen as text.
    pub(crate) once: bool,
    /// Whether to print it as JSON.
    pub(crate) json: bool,
    /// Whether colours may be used.
    pub(crate) colour: bool,
    /// The servers of a fleet, instead of one server.
    pub(crate) fleet: Option<FleetOptions>,
}

pub(crate) fn arguments(command: Command) -> Command {
    let heading = "Watching";
    command
        .arg(
            Arg::new("interval")
                .long("interval")
                .short('i')
                .value_name("TIME")
                .default_value("1s")
                .help_heading(heading)
                .help("Time between samples: 500ms, 1s, 2m (100ms to 1h)"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help_heading(heading)
                .help("Print one screen as text and exit: two samples, one interval apart"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .requires("once")
                .help_heading(heading)
                .help("With --once: print one JSON object, for programs"),
        )
        .arg(
            Arg::new("fleet")
                .long("fleet")
                .value_name("ADDRESS")
                .action(ArgAction::Append)
                .num_args(1..)
                .help_heading(heading)
                .help("Several servers: HOST:PORT or unix:PATH of their control servers; a name stands for all of its addresses"),
        )
        .arg(
            Arg::new("fleet-file")
                .long("fleet-file")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help_heading(heading)
                .help("The same from a file, one on a line; it is read again when it changes"),
        )
        .arg(
            Arg::new("serve")
                .long("serve")
                .value_name("ADDRESS")
                .num_args(0..=1)
                .default_missing_value("tcp://127.0.0.1:9294")
                .conflicts_with("once")
                .help_heading(heading)
                .help("With --fleet: a page for browsers instead of the screen, at tcp://127.0.0.1:9294"),
        )
        .after_help(
            "Examples:\n  \
             firebrick top                                         the server of this folder\n  \
             firebrick top --control tcp://10.0.0.7:9293           on another machine; token in FIREBRICK_CONTROL_TOKEN\n  \
             firebrick top --fleet web-1:9293 web-2:9293           several servers on one screen\n  \
             firebrick top --fleet shop-control:9293 --serve       all pods of a Kubernetes service, as a page\n  \
             firebrick top --once --interval 10s                   ten seconds as text\n  \
             firebrick top --once --json | jq .total_ms.p95        one number, in milliseconds\n\n\
             Keys: q quit, arrows select a request, Enter shows its backtrace, s sorts the workers, p pauses, + and -\n\
             change the interval, ? shows help. NO_COLOR turns colours off.",
        )
}

impl Options {
    pub(crate) fn read(matches: &ArgMatches) -> Result<Options, String> {
        let text = matches.get_one::<String>("interval").map_or("1s", String::as_str);
        let interval = interval(text).ok_or_else(|| {
            format!("--interval {text}: expected a time such as 500ms, 1s or 2m, from 100ms to 1h")
        })?;
        let servers: Vec<String> =
            matches.get_many::<String>("fleet").map(|words| words.cloned().collect()).unwrap_or_default();
        let (file, serve) =
            (matches.get_one::<PathBuf>("fleet-file").cloned(), matches.get_one::<String>("serve").cloned());
        let fleet = match servers.is_empty() && file.is_none() {
            true if serve.is_some() => {
                return Err("--serve shows several servers: name them with --fleet or --fleet-file; one server has its own page (--control tcp://…)".to_owned());
            }
            true => None,
            false => Some(FleetOptions { servers, file, serve }),
        };
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Options {
            interval,
            once: matches.get_flag("once"),
            json: matches.get_flag("json"),
            colour,
            fleet,
        })
    }
}

/// Parses `500ms`, `1s`, `1.5s`, `2m`, `1h`; a bare number is seconds.
fn interval(text: &str) -> Option<Duration> {
    text::span::parse(text).ok().filter(|interval| (SHORTEST..=LONGEST).contains(interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals() {
        for (text, ms) in
            [("1s", 1_000), ("500ms", 500), ("2", 2_000), ("1.5s", 1_500), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(interval(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "0", "99ms", "2h", "-1s", "1e3", "1d", ".", "1.2.3", "nan", "inf"] {
            assert_eq!(interval(text), None, "{text}");
        }
    }

    #[test]
    fn arguments_are_parsed_or_explained() {
        let read = |words: &[&str]| {
            let matches = arguments(Command::new("top")).try_get_matches_from(["top"].iter().chain(words));
            matches.map_err(|error| error.to_string()).and_then(|matches| Options::read(&matches))
        };
        let options = read(&["--once", "--json", "--interval", "200ms"]).unwrap();
        assert_eq!((options.once, options.json, options.interval), (true, true, Duration::from_millis(200)));
        assert!(read(&["--json"]).unwrap_err().contains("--once"));
        let fleet = read(&["--fleet", "a:1", "b:2", "--fleet", "c:3", "--serve"]).unwrap().fleet.unwrap();
        assert_eq!((fleet.servers.len(), fleet.serve.as_deref()), (3, Some("tcp://127.0.0.1:9294")));
        assert!(read(&["--serve"]).unwrap_err().contains("name them with --fleet"));
        let wrong = read(&["--interval", "fast"]).unwrap_err();
        assert_eq!(wrong, "--interval fast: expected a time such as 500ms, 1s or 2m, from 100ms to 1h");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            prop_assert!(interval(&text).is_none_or(|interval| interval <= LONGEST));
        }
    }
}
