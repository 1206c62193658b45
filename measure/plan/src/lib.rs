//! `firebrick plan`: computes from a few measured facts how many machines are needed and what they cost.
//!
//! `options` and `sources` collect the `Inputs` (every fact with its source), `planner` computes the results, and `screen` and `json` print them.
//! This crate calculates nothing.
#![forbid(unsafe_code)]

mod arguments;
mod helm;
mod json;
mod options;
mod screen;
mod sourced;
mod sources;
mod table;
mod units;

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use planner::bill::bill;
use planner::compare;
use planner::sizing::Sizing;

use options::Options;
use sourced::SourceFacts;

/// Adds the arguments of `firebrick plan`; the caller sets name and description.
pub fn arguments(command: Command) -> Command {
    arguments::arguments(command)
}

/// Reads the price of a machine, such as `7/month`, `$0.01/h` or `12€/month`. Returns the price of a month, and the currency.
///
/// # Errors
/// The text is not a price; the message tells what was expected.
pub fn price(text: &str) -> Result<(f64, String), String> {
    units::price(text).map(|price| (price.per_month, price.currency))
}

/// Runs the command. Exit status: 0; 1 if the given instances are not enough; 2 if there is no result.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match result(matches) {
        Ok((text, enough)) => {
            output::print(text);
            if enough { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            output::complain(format_args!("error: {message}"));
            ExitCode::from(2)
        }
    }
}

fn result(matches: &ArgMatches) -> Result<(String, bool), String> {
    let options = Options::read(matches)?;
    let found = match &options.from {
        Some(from) => {
            let (look_ms, routes, token) = (options.look_ms, options.live, options.token.clone());
            sources::read(from, sources::SourceWish { look_ms, routes, token })
                .map_err(|why| format!("--from: {why}"))?
        }
        None if options.look_ms.is_some() => {
            return Err(
                "--look requires --from with the folder of a running server, e.g. --from .".to_owned()
            );
        }
        None => SourceFacts::default(),
    };
    let inputs = options.with(&found)?;
    let sizings = compare(&inputs.facts, &inputs.sizes, options.instances).map_err(|error| error.0)?;
    let enough = sizings.first().is_some_and(enough);
    let bill = match sizings.first().filter(|_| options.live && !found.routes.is_empty()) {
        Some(best) => Some(bill(&inputs.facts, best, &found.routes, &found.advice).map_err(|error| error.0)?),
        None => None,
    };
    let text = match (sizings.first(), options.helm, options.json) {
        (Some(best), true, _) => helm::values(&inputs, best),
        (_, _, true) => json::document(&inputs, &sizings, bill.as_ref())?,
        _ => screen::text(&inputs, &sizings, bill.as_ref(), options.explain),
    };
    Ok((text, enough))
}

/// Returns whether the best result keeps up, meets the objective, and has the required reserve.
fn enough(best: &Sizing) -> bool {
    best.load.times.is_some() && best.keeps_slo != Some(false) && best.instances >= best.needed.with_headroom
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn plan(words: &[&str]) -> Result<(String, bool), String> {
        let command = arguments(Command::new("plan"));
        let matches =
            command.try_get_matches_from([&["plan"], words].concat()).map_err(|error| error.to_string())?;
        result(&matches)
    }

    const MANUAL: [&str; 4] = ["--rate", "375/min", "--response-time", "7ms"];

    #[test]
    fn the_most_important_result_comes_first() {
        let (text, enough) = plan(&MANUAL).unwrap();
        assert_eq!(text.lines().next(), Some("1 instance is enough: it could handle 22 times this rate."));
        assert!(enough);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().count() <= 40, "{text}");
    }

    #[test]
    fn too_few_instances_and_missed_objectives_fail() {
        let (text, enough) =
            plan(&["--rate", "500/s", "--response-time", "7ms", "--instances", "2"]).unwrap();
        assert!(!enough && text.starts_with("2 instances are not enough"), "{text}");
        assert!(text.contains("5 instances are needed"), "{text}");
        let (text, enough) =
            plan(&["--rate", "900/s", "--response-time", "7ms", "--instances", "7"]).unwrap();
        assert!(!enough && text.starts_with("9 instances are needed to keep 30 % headroom; 7"), "{text}");
        let (text, enough) = plan(&[&MANUAL[..], &["--slo", "p99<5ms"]].concat()).unwrap();
        assert!(!enough && text.starts_with("No number of instances meets p99 < 5 ms"), "{text}");
        let (text, enough) =
            plan(&["--rate", "120/s", "--response-time", "7ms", "--instances", "1", "--slo", "p99<40ms"])
                .unwrap();
        assert!(!enough && text.contains("does not meet p99 < 40 ms"), "{text}");
    }

    #[test]
    fn look_requires_a_server() {
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
    fn explain_shows_formulas_numbers_and_sources() {
        let (text, _) = plan(&[&MANUAL[..], &["--explain"]].concat()).unwrap();
        for words in ["L = λ x S", "6.25/s x 7 ms", "Little", "Erlang C (1917)", "C(1, 0.0437)", "4.38 %"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn values_for_the_chart() {
        let shape = ["--workers", "2", "--threads", "5", "--cores", "1.5"];
        let (text, enough) =
            plan(&[&["--rate", "300/s", "--response-time", "100ms", "--helm"], &shape[..]].concat()).unwrap();
        assert!(enough, "{text}");
        for line in [
            "replicas: 4",
            "  workers: 2",
            "  threads: 5",
            "    cpu: \"1500m\"",
            "  kind: none",
            "  minReplicas: 4",
            "  maxReplicas: 8",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("Memory was not measured"), "{text}");
        let (text, _) = plan(&[&MANUAL[..], &["--helm", "--average-rate", "60/min"]].concat()).unwrap();
        assert!(text.contains("replicas: 2\n"), "one pod alone would be an outage: {text}");
        let (text, enough) =
            plan(&["--rate", "500/s", "--response-time", "7ms", "--instances", "2", "--helm"]).unwrap();
        assert!(!enough && text.contains("# NOT ENOUGH: 5 pods would be needed."), "{text}");
        let (text, _) = plan(&[
            "--rate",
            "50/s",
            "--response-time",
            "1s",
            "--cpu-time",
            "1ms",
            "--fibers",
            "500",
            "--helm",
        ])
        .unwrap();
        assert!(text.contains("args: [--fibers, \"500\"]\n"), "{text}");
        assert!(plan(&[&MANUAL[..], &["--helm", "--json"]].concat()).is_err());
    }

    #[test]
    fn the_cheapest_size_comes_first() {
        let sizes = ["--size", "large:4x5:25/month", "--size", "small:2x5:7/month"];
        let (text, _) =
            plan(&[&["--rate", "100/s", "--response-time", "100ms"], &sizes[..]].concat()).unwrap();
        assert!(text.starts_with("2 instances of `small` are enough and cheapest: 14 per month."), "{text}");
        assert!(text.contains("large"), "{text}");
    }
}
