//! What can be typed after `firebrick tune`.

use clap::{Arg, ArgAction, Command, ValueHint};

const SHAPES: &str = "Shapes";
const LOAD: &str = "Load";
const BUDGET: &str = "Budget";
const SERVERS: &str = "Servers";
const OUTPUT: &str = "Output";

const EXAMPLES: &str = "\
Examples:
  firebrick tune                                     the app in this folder, few cells, best shape
  firebrick tune --memory 512MB --slo 'p95<200ms'    the best that fits
  firebrick tune --rate 100/s --memory 1GB           the least memory that serves 100 requests a second
  firebrick tune --workers 1,2,10 --threads 1,10,100 every cell of the table
  firebrick tune --path /reports --path / -d 10s     other pages, ten seconds for each cell
  firebrick tune --against puma,unicorn --html tune.html
  firebrick tune --write                             puts what is recommended into firebrick.toml

Counts: 600, 10k. Times: 30s, 500ms, 1m30s. Sizes: 512MB, 1GiB. Rates: 100/s, 375/min.
Memory is PSS: shared pages are divided among the processes that share them, so the sum is what is really taken.
Ctrl-C ends it at any time; what was measured until then is shown. docs/tune.md says how to read it all.";

/// The arguments of the command.
pub(crate) fn arguments(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new("app")
                .value_name("APP")
                .value_hint(ValueHint::DirPath)
                .default_value(".")
                .help("Folder of the app, or its config.ru"),
        )
        .arg(Arg::new(crate::guard::FLAG).long(crate::guard::FLAG).action(ArgAction::SetTrue).hide(true));
    [shapes(), load(), budget(), servers(), output()]
        .into_iter()
        .flatten()
        .fold(command, Command::arg)
        .after_help(EXAMPLES)
}

fn value(name: &'static str, value: &'static str, heading: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help_heading(heading).help(help)
}

fn switch(name: &'static str, heading: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help_heading(heading).help(help)
}

fn shapes() -> Vec<Arg> {
    vec![
        value(
            "workers",
            "LIST|auto",
            SHAPES,
            "Numbers of worker processes to try, such as 1,2,10 [default: auto]",
        )
        .short('w'),
        value(
            "threads",
            "LIST|auto",
            SHAPES,
            "Numbers of threads in each worker, such as 1,10,100 [default: auto]",
        )
        .short('t'),
        switch(
            "auto",
            SHAPES,
            "Of the shapes that --workers and --threads span, measure only those that decide",
        ),
        value(
            "repeats",
            "N",
            SHAPES,
            "A cell is measured in 2 parts, and again, up to N times, while they differ [default: 5]",
        ),
        value("spread", "PERCENT", SHAPES, "How far the parts of a cell may differ [default: 10%]"),
    ]
}

fn load() -> Vec<Arg> {
    vec![
        value("connections", "N", LOAD, "Users at a time, each with a connection of its own [default: 30]").short('c'),
        value("requests", "N", LOAD, "Requests of each cell [default: 600]").short('n'),
        value("duration", "TIME", LOAD, "Load each cell for so long instead").short('d').conflicts_with("requests"),
        value("think", "TIME", LOAD, "What each user waits between an answer and the next request"),
        value("open-rate", "RATE", LOAD, "Send at this rate whether answers come or not, such as 100/s; needs --workers, --threads and --duration")
            .conflicts_with_all(["connections", "requests", "think", "auto"]),
        value("warm-up", "N|TIME", LOAD, "Not counted: so many requests, or so long [default: a tenth of --requests]"),
        value("path", "PATH", LOAD, "Path (and query) to ask for; may be repeated [default: /]").action(ArgAction::Append),
        value("urls", "FILE", LOAD, "File of URLs as siege reads it; scheme and host are left out")
            .value_hint(ValueHint::FilePath)
            .conflicts_with("path"),
        value("header", "NAME: VALUE", LOAD, "Field of every request; may be repeated").short('H').action(ArgAction::Append),
        value("timeout", "TIME", LOAD, "For one answer [default: 60s]"),
    ]
}

fn budget() -> Vec<Arg> {
    vec![
        value(
            "memory",
            "SIZE",
            BUDGET,
            "Memory for all processes together, such as 512MB [default: what the cgroup grants]",
        ),
        value(
            "cpus",
            "N",
            BUDGET,
            "CPUs that the server gets; it is kept on so many while it is measured [default: all]",
        ),
        value(
            "db-connections",
            "N",
            BUDGET,
            "Connections that the database grants; each thread may need one",
        ),
        value("slo", "PROMISE", BUDGET, "How fast answers have to be, such as 'p95<200ms'"),
        value(
            "rate",
            "RATE",
            BUDGET,
            "Requests to be served, such as 100/s; then the least memory wins, else the largest rate",
        ),
    ]
}

fn servers() -> Vec<Arg> {
    vec![
        value(
            "environment",
            "NAME",
            SERVERS,
            "What the app is told as RACK_ENV and RAILS_ENV [default: production]",
        )
        .short('e'),
        value(
            "against",
            "LIST",
            SERVERS,
            "The same cells under other servers, in turn: puma, unicorn, webrick, passenger",
        ),
        value("boot-timeout", "TIME", SERVERS, "For the app to start and answer [default: 60s]"),
    ]
}

fn output() -> Vec<Arg> {
    vec![
        switch("write", OUTPUT, "Put what is recommended into the app's firebrick.toml"),
        value("html", "FILE", OUTPUT, "Write a report with plots, one file that needs no network")
            .value_hint(ValueHint::FilePath),
        value("json", "FILE", OUTPUT, "Write all figures as JSON, which `firebrick plan --from` reads")
            .value_hint(ValueHint::FilePath),
        value("format", "FORMAT", OUTPUT, "What is printed: human or json [default: human]")
            .value_parser(["human", "json"]),
        switch("quiet", OUTPUT, "No progress").short('q'),
    ]
}
