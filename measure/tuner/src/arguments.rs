//! Command-line arguments of `firebrick tune`.

use clap::{Arg, ArgAction, Command, ValueHint};

const SHAPES: &str = "Shapes";
const LOAD: &str = "Load";
const BUDGET: &str = "Budget";
const SERVERS: &str = "Servers";
const OUTPUT: &str = "Output";

const EXAMPLES: &str = "\
Examples:
  firebrick tune                                     the app in this folder; few measurements, best shape
  firebrick tune --memory 512MB --slo 'p95<200ms'    the best shape within these limits
  firebrick tune --rate 100/s --memory 1GB           the least memory that serves 100 requests a second
  firebrick tune --workers 1,2,10 --threads 1,10,100 every combination
  firebrick tune --path /reports --path / -d 10s     other pages, ten seconds per cell
  firebrick tune --against puma,unicorn --html tune.html
  firebrick tune --write                             write the recommendation into firebrick.toml

Counts: 600, 10k. Times: 30s, 500ms, 1m30s. Sizes: 512MB, 1GiB. Rates: 100/s, 375/min.
Memory is PSS: shared pages are divided among the processes that share them, so the sum is the memory actually used.
Ctrl-C stops at any time and shows the results so far. docs/tune.md explains the output.";

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
    let arg = Arg::new(name).long(name).value_name(value).help_heading(heading).help(help);
    // A negative number gets a message about its value.
    arg.allow_hyphen_values(!matches!(value, "PATH" | "FILE" | "NAME: VALUE" | "NAME" | "FORMAT"))
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
        value(
            "fibers",
            "LIST|auto|off",
            SHAPES,
            "Numbers of fibers in each thread to try, such as 100,1000; auto tries as many as there are users, if the app waits [default: auto, but off if --workers and --threads are lists]",
        ),
        switch("auto", SHAPES, "Measure only the decisive shapes of those given by --workers and --threads"),
        value(
            "repeats",
            "N",
            SHAPES,
            "Measure each cell in at least 2 parts, and up to N while they differ [default: 5]",
        ),
        value(
            "spread",
            "PERCENT",
            SHAPES,
            "Largest accepted difference between the parts of a cell [default: 10%]",
        ),
    ]
}

fn load() -> Vec<Arg> {
    vec![
        value("connections", "N", LOAD, "Concurrent users, each with its own connection [default: 30]").short('c'),
        value("requests", "N", LOAD, "Requests per cell [default: 600]").short('n'),
        value("duration", "TIME", LOAD, "Measure each cell for this time instead").short('d').conflicts_with("requests"),
        value("think", "TIME", LOAD, "Pause of each user between a response and the next request"),
        value("open-rate", "RATE", LOAD, "Send at this rate, whether or not responses arrive, such as 100/s; requires --workers, --threads and --duration")
            .conflicts_with_all(["connections", "requests", "think", "auto"]),
        value("warm-up", "N|TIME", LOAD, "Requests or time before counting [default: a tenth of --requests]"),
        value("path", "PATH", LOAD, "Path (and query) to request; may be repeated [default: /]").action(ArgAction::Append),
        value("urls", "FILE", LOAD, "File of URLs in siege's format; scheme and host are ignored")
            .value_hint(ValueHint::FilePath)
            .conflicts_with("path"),
        value("header", "NAME: VALUE", LOAD, "Header field of every request; may be repeated").short('H').action(ArgAction::Append),
        value("timeout", "TIME", LOAD, "Time limit for a response [default: 60s]"),
    ]
}

fn budget() -> Vec<Arg> {
    vec![
        value(
            "memory",
            "SIZE",
            BUDGET,
            "Memory for all processes together, such as 512MB [default: the cgroup's limit]",
        ),
        value(
            "cpus",
            "N",
            BUDGET,
            "CPUs of the server; it is restricted to these while measuring [default: all]",
        ),
        value("db-connections", "N", BUDGET, "Database connections available; each thread may need one"),
        value("slo", "OBJECTIVE", BUDGET, "Latency objective, such as 'p95<200ms'"),
        value(
            "rate",
            "RATE",
            BUDGET,
            "Required throughput, such as 100/s: choose the least memory that reaches it, instead of the highest throughput",
        ),
    ]
}

fn servers() -> Vec<Arg> {
    vec![
        value("environment", "NAME", SERVERS, "RACK_ENV and RAILS_ENV of the app [default: production]")
            .short('e'),
        value("against", "LIST", SERVERS, "Also measure other servers: puma, unicorn, webrick, passenger"),
        value("boot-timeout", "TIME", SERVERS, "Time limit for the app to start and respond [default: 60s]"),
    ]
}

fn output() -> Vec<Arg> {
    vec![
        switch("write", OUTPUT, "Write the recommendation into the app's firebrick.toml"),
        switch("noisy", OUTPUT, "Recommend even if other programs used the CPU during most measurements"),
        value("html", "FILE", OUTPUT, "Write a report with plots, as one self-contained file")
            .value_hint(ValueHint::FilePath),
        value("json", "FILE", OUTPUT, "Write all results as JSON, for programs and `firebrick plan --from`")
            .value_hint(ValueHint::FilePath),
        value("format", "FORMAT", OUTPUT, "Output format: human or json [default: human]")
            .value_parser(["human", "json"]),
        switch("quiet", OUTPUT, "Show no progress").short('q'),
    ]
}
