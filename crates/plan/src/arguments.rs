//! What can be typed after `firebrick plan`.

use clap::{Arg, ArgAction, Command};

const EXAMPLES: &str = "\
Examples:
  firebrick plan --rate 375/min --response-time 7ms
      how many instances, how far they go, what a burst does
  firebrick plan --rate 200/s --response-time 80ms --workers 2 --threads 5 \\
                 --p95 250ms --slo 'p95<400ms'
      the same for a promise about response times
  firebrick plan --rate 200/s --response-time 80ms --cpu-time 30ms \\
                 --size 'small:2x5:1core:7/month' --size 'large:4x5:2cores:12/month'
      which size of instance costs least
  firebrick plan --from log/access.log --slo 'p99<1s' --instance-cost 7/month
  firebrick plan --from .                  the server that runs in this folder
  firebrick plan --from bench.json --rate 50/s --explain

Exit status: 0; 1 when the instances of --instances cannot keep up or the promise
of --slo is not kept; 2 when something typed makes no sense.";

pub(crate) fn arguments(command: Command) -> Command {
    command
        .args(visitors())
        .args(app())
        .args(instance())
        .args(wanted())
        .args(events())
        .args(output())
        .after_help(EXAMPLES)
}

/// A flag with a value. Values may begin with a hyphen, so that `-5/s` is answered in words.
fn value(name: &'static str, placeholder: &'static str, heading: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(placeholder)
        .help_heading(heading)
        .help(help)
        .allow_hyphen_values(true)
}

fn flag(name: &'static str, heading: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help_heading(heading).help(help).action(ArgAction::SetTrue)
}

fn visitors() -> [Arg; 3] {
    const HEADING: &str = "Visitors";
    [
        value("rate", "RATE", HEADING, "Requests of the busiest minute: 375/min, 6.25/s, 20k/h"),
        value(
            "average-rate",
            "RATE",
            HEADING,
            "Requests over days and nights, for costs [default: the busiest minute's]",
        ),
        value(
            "from",
            "FROM",
            HEADING,
            "Take facts from a JSON of bench or tune, an access log (- for standard input), a folder whose server runs, a control socket or tcp://HOST:PORT; flags override them",
        ),
    ]
}

fn app() -> [Arg; 4] {
    const HEADING: &str = "The app";
    [
        value(
            "response-time",
            "TIME",
            HEADING,
            "Mean time in the app, waiting for a worker not included: 7ms",
        ),
        value("p95", "TIME", HEADING, "95th percentile of it, which says how much it varies"),
        value("cv", "NUMBER", HEADING, "Variation: its standard deviation over its mean [default: 1]"),
        value(
            "cpu-time",
            "TIME",
            HEADING,
            "CPU time of a request: then threads count only as far as cores and locks go",
        ),
    ]
}

fn instance() -> [Arg; 6] {
    const HEADING: &str = "An instance";
    [
        value("workers", "N", HEADING, "Worker processes [default: 1]"),
        value("threads", "N", HEADING, "Threads of each worker [default: 1]"),
        value("cores", "N", HEADING, "Its cores, such as 2 or 0.5 [default: one for each worker]"),
        value("instance-cost", "PRICE", HEADING, "What one costs: 7/month, $0.01/h"),
        value("size", "SIZE", HEADING, "A size to compare, NAME:WORKERSxTHREADS[:CORES]:PRICE, such as small:2x5:1core:7/month; may be repeated")
            .action(ArgAction::Append),
        value("instances", "N", HEADING, "Say how it goes with so many instead of as many as are needed"),
    ]
}

fn wanted() -> [Arg; 2] {
    const HEADING: &str = "What is wanted";
    [
        value("slo", "PROMISE", HEADING, "How fast answers have to be: 'p95<100ms'"),
        value(
            "headroom",
            "PERCENT",
            HEADING,
            "How much more than the rate instances can take [default: 30%]",
        ),
    ]
}

fn events() -> [Arg; 3] {
    const HEADING: &str = "What if";
    [
        value("burst", "N", HEADING, "So many requests at once [default: 1000]"),
        value(
            "backlog",
            "N",
            HEADING,
            "Connections that wait where a server does not accept them [default: 1024]",
        ),
        value("router-timeout", "TIME", HEADING, "When a router in front gives up [default: 30s]"),
    ]
}

fn output() -> [Arg; 4] {
    const HEADING: &str = "Output";
    [
        flag("explain", HEADING, "Show the formulas with numbers filled in, and whose they are"),
        flag("json", HEADING, "Print JSON, for programs to read"),
        value(
            "look",
            "TIME",
            HEADING,
            "Watch a running server for so long instead of taking what it remembers",
        ),
        value("token", "TOKEN", HEADING, "Token of a control port [default: FIREBRICK_CONTROL_TOKEN]"),
    ]
}
