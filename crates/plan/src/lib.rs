//! `firebrick plan`: how many machines, and what they cost: from a few measured facts.
//!
//! `given` and `sources` come to a `Basis` (every fact with its origin), `planner` to the answers, `screen` and `json` to
//! what is printed. Nothing here calculates.
#![forbid(unsafe_code)]

mod arguments;
mod given;
mod json;
mod known;
mod screen;
mod sources;
mod table;
mod units;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use planner::sizing::{Answer, compare};

use given::Given;
use known::Found;

/// What can be typed after `firebrick plan`; the caller gives it its name and one line about it.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

/// Does what was typed: 0, or 1 when the instances that were asked about are not enough, or 2 when there is no answer.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match answer(matches) {
        Ok((text, enough)) => {
            // Whoever reads may have seen enough (`| head`): that is no failure.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            let _ = writeln!(io::stderr().lock(), "error: {message}");
            ExitCode::from(2)
        }
    }
}

fn answer(matches: &ArgMatches) -> Result<(String, bool), String> {
    let given = Given::read(matches)?;
    let found = match &given.from {
        Some(from) => {
            sources::read(from, given.look_ms, given.token.clone()).map_err(|why| format!("--from: {why}"))?
        }
        None if given.look_ms.is_some() => {
            return Err("--look: there is nothing to watch; add --from with the folder of a running server, e.g. --from .".to_owned());
        }
        None => Found::default(),
    };
    let basis = given.with(&found)?;
    let answers = compare(&basis.facts, &basis.sizes, given.instances).map_err(|impossible| impossible.0)?;
    let enough = answers.first().is_some_and(enough);
    let text = match given.json {
        true => json::document(&basis, &answers)?,
        false => screen::text(&basis, &answers, given.explain),
    };
    Ok((text, enough))
}

/// Whether the best answer keeps up and keeps the promise.
fn enough(answer: &Answer) -> bool {
    answer.load.times.is_some() && answer.keeps_slo != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn plan(words: &[&str]) -> Result<(String, bool), String> {
        let command = arguments(Command::new("plan"));
        let matches =
            command.try_get_matches_from([&["plan"], words].concat()).map_err(|error| error.to_string())?;
        answer(&matches)
    }

    const MANUAL: [&str; 4] = ["--rate", "375/min", "--response-time", "7ms"];

    #[test]
    fn the_most_important_comes_first() {
        let (text, enough) = plan(&MANUAL).unwrap();
        assert_eq!(text.lines().next(), Some("1 instance is enough: it could take 22 times this rate."));
        assert!(enough);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().count() <= 40, "{text}");
    }

    #[test]
    fn too_few_and_broken_promises_fail() {
        let (text, enough) =
            plan(&["--rate", "500/s", "--response-time", "7ms", "--instances", "2"]).unwrap();
        assert!(!enough && text.starts_with("2 instances are not enough"), "{text}");
        assert!(text.contains("It takes 5"), "{text}");
        let (text, enough) = plan(&[&MANUAL[..], &["--slo", "p99<5ms"]].concat()).unwrap();
        assert!(!enough && text.starts_with("No number of instances keeps p99 < 5 ms"), "{text}");
        let (text, enough) =
            plan(&["--rate", "120/s", "--response-time", "7ms", "--instances", "1", "--slo", "p99<40ms"])
                .unwrap();
        assert!(!enough && text.contains("does not keep p99 < 40 ms"), "{text}");
    }

    #[test]
    fn there_has_to_be_something_to_look_at() {
        assert!(plan(&[&MANUAL[..], &["--look", "5s"]].concat()).unwrap_err().contains("--from ."));
    }

    #[test]
    fn json_is_a_document_with_steps() {
        let (text, _) = plan(&[&MANUAL[..], &["--json", "--instance-cost", "$7/month"]].concat()).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["kind"], &json["version"]), (&"firebrick plan".into(), &1.into()));
        assert_eq!(
            (&json["answers"][0]["instances"], &json["facts"]["rate_per_s"]),
            (&1.into(), &6.25.into())
        );
        assert_eq!(json["answers"][0]["cost"]["per_month"], 7.0);
        assert!(json["answers"][0]["steps"].as_array().unwrap().len() > 6);
        assert!(json["facts_from"]["rate"].as_str().unwrap().contains("--rate"));
    }

    #[test]
    fn explaining_shows_formula_numbers_and_whose_it_is() {
        let (text, _) = plan(&[&MANUAL[..], &["--explain"]].concat()).unwrap();
        for words in ["L = λ x S", "6.25/s x 7 ms", "Little", "Erlang C (1917)", "C(1, 0.0437)", "4.38 %"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn the_cheapest_size_is_named_first() {
        let sizes = ["--size", "large:4x5:25/month", "--size", "small:2x5:7/month"];
        let (text, _) =
            plan(&[&["--rate", "100/s", "--response-time", "100ms"], &sizes[..]].concat()).unwrap();
        assert!(text.starts_with("2 instances of `small` are enough and cost least: 14 a month."), "{text}");
        assert!(text.contains("large"), "{text}");
    }
}
