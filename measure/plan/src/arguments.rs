//! Command-line arguments of `firebrick plan`.

use clap::{Arg, ArgAction, Command};

const EXAMPLES: &str = "\
Examples:
  firebrick plan --rate 375/min --response-time 7ms
      number of instances, their headroom, the effect of a burst
  firebrick plan --rate 200/s --response-time 80ms --workers 2 --threads 5 \\
                 --p95 250ms --slo 'p95<400ms'
      the same for a response time objective
  firebrick plan --rate 200/s --response-time 80ms --cpu-time 30ms \\
                 --size 'small:2x5:1core:7/month' --size 'large:4x5:2cores:12/month'
      the cheapest size of instance
  firebrick plan --from log/access.log --slo 'p99<1s' --instance-cost 7/month
  firebrick plan --from .                  the server running in this folder
  firebrick plan --from bench.json --rate 50/s --explain
  firebrick plan --live --instance-cost 40/month
      what each route of the running app costs, and what advice saves
  firebrick plan --from . --helm > values.yaml

Exit status: 0; 1 if the instances given by --instances cannot keep up with the
headroom, or --slo is not met; 2 on wrong usage.";

pub(crate) fn arguments(command: Command) -> Command {
    command
        .args(traffic())
        .args(app())
        .args(instance())
        .args(requirements())
        .args(what_if())
        .args(output())
        .after_help(EXAMPLES)
}

/// Returns a flag with a value. Values may begin with a hyphen, so that `-5/s` gets a proper error message.
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

fn traffic() -> [Arg; 3] {
    const HEADING: &str = "Traffic";
    [
        value("rate", "RATE", HEADING, "Request rate in the busiest minute: 375/min, 6.25/s, 20k/h"),
        value(
            "average-rate",
            "RATE",
            HEADING,
            "Average request rate, for costs [default: the busiest minute's]",
        ),
        value(
            "from",
            "FROM",
            HEADING,
            "Take facts from the JSON of bench or tune, an access log (- for standard input), the folder of a running server, a control socket or tcp://HOST:PORT; flags override them",
        ),
    ]
}

fn app() -> [Arg; 4] {
    const HEADING: &str = "App";
    [
        value("response-time", "TIME", HEADING, "Mean time in the app, without waiting for a worker: 7ms"),
        value(
            "p95",
            "TIME",
            HEADING,
            "95th percentile of the response time, from which the variation is computed",
        ),
        value(
            "cv",
            "NUMBER",
            HEADING,
            "Coefficient of variation: standard deviation divided by mean [default: 1]",
        ),
        value(
            "cpu-time",
            "TIME",
            HEADING,
            "CPU time of a request; threads are then limited by cores and locks",
        ),
    ]
}

fn instance() -> [Arg; 7] {
    const HEADING: &str = "Instance";
    [
        value("workers", "N", HEADING, "Worker processes [default: 1]"),
        value("threads", "N", HEADING, "Threads per worker [default: 1]"),
        value("fibers", "N|off", HEADING, "Fibers per thread; requires the CPU time of a request [default: off]"),
        value("cores", "N", HEADING, "Cores, such as 2 or 0.5 [default: one per worker]"),
        value("instance-cost", "PRICE", HEADING, "Price of an instance: 7/month, $0.01/h"),
        value("size", "SIZE", HEADING, "A size to compare, NAME:WORKERSxTHREADS[xFIBERS][:CORES]:PRICE, such as small:2x5:1core:7/month; may be repeated")
            .action(ArgAction::Append),
        value("instances", "N", HEADING, "Evaluate this number of instances instead of computing how many are needed"),
    ]
}

fn requirements() -> [Arg; 2] {
    const HEADING: &str = "Requirements";
    [
        value("slo", "OBJECTIVE", HEADING, "Response time objective: 'p95<100ms'"),
        value("headroom", "PERCENT", HEADING, "Required reserve over the rate [default: 30%]"),
    ]
}

fn what_if() -> [Arg; 3] {
    const HEADING: &str = "What if";
    [
        value("burst", "N", HEADING, "Simultaneous requests of a burst [default: 1000]"),
        value("backlog", "N", HEADING, "Length of the accept backlog [default: 1024]"),
        value("router-timeout", "TIME", HEADING, "Timeout of the router in front [default: 30s]"),
    ]
}

fn output() -> [Arg; 6] {
    const HEADING: &str = "Output";
    [
        flag(
            "live",
            HEADING,
            "Add the bill of the running server (--from, otherwise the one in this folder): what each route costs, also at twice the load, and what the advice of `firebrick routes` saves",
        )
        .conflicts_with("helm"),
        flag("explain", HEADING, "Show the formulas with numbers filled in, and their sources"),
        flag("json", HEADING, "Print JSON, for programs"),
        flag("helm", HEADING, "Print values for the Helm chart (docs/kubernetes.md)")
            .conflicts_with_all(["json", "explain"]),
        value(
            "look",
            "TIME",
            HEADING,
            "Observe a running server for this time instead of reading its history",
        ),
        value("token", "TOKEN", HEADING, "Token of a control port [default: FIREBRICK_CONTROL_TOKEN]"),
    ]
}
