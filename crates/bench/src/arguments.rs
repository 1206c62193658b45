//! What can be typed after `firebrick bench`.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, ValueHint};

const EXAMPLES: &str = "\
Examples:
  firebrick bench http://localhost:9292/                       10 s, 50 users
  firebrick bench http://localhost:9292/ -c 200 -n 10000       until 10,000 requests are done
  firebrick bench http://localhost:9292/ --rate 500/s -d 1m    500 requests per second, come what may
  firebrick bench http://localhost:9292/ --rate 100..2000/s:30s   from 100 to 2,000 per second within 30 s
  firebrick bench -f urls.txt -c 20 --think 0..2s              siege's file of URLs, users who pause
  firebrick bench http://localhost:9292 --replay access.log --speed 2x
  firebrick bench http://localhost:9292/ --html report.html --fail-if 'p99>200ms' --fail-if 'errors>0'
  firebrick bench --merge a.json b.json                        one result of several machines'

Times: 30, 30s, 500ms, 1m30s. Rates: 500/s, 375/min. Counts: 600, 10k.
Exit status: 0 done, 1 a condition of --fail-if is met or nothing answered, 2 wrong usage.
docs/bench.md explains the figures.";

/// Adds the arguments.
pub(crate) fn arguments(command: Command) -> Command {
    let command = command
        .after_help(EXAMPLES)
        .arg(
            Arg::new("url")
                .value_name("URL")
                .num_args(0..)
                .value_hint(ValueHint::Url)
                .help("Whom to ask: http://localhost:9292/, https://…, unix:/run/app.sock:/path; several are asked in turn"),
        )
        .args(how_much())
        .args(how_often())
        .args(what_is_sent())
        .args(how_it_travels());
    command.args(what_is_right()).args(what_is_shown()).args(how_it_joins())
}

fn valued(name: &'static str, value: &'static str, heading: &'static str, help: impl Into<StyledStr>) -> Arg {
    Arg::new(name).long(name).value_name(value).help_heading(heading).help(help)
}

fn flag(name: &'static str, heading: &'static str, help: impl Into<StyledStr>) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help_heading(heading).help(help)
}

fn path(arg: Arg) -> Arg {
    arg.value_hint(ValueHint::FilePath)
}

fn how_much() -> [Arg; 6] {
    const H: &str = "How much and how long";
    [
        valued("connections", "N", H, "Users, each with a connection of its own who waits for the answer before it asks again [default: 50]; with --rate or --replay: connections at most [default: 1000]")
            .short('c')
            .visible_alias("users"),
        valued("requests", "N", H, "End after so many requests").short('n'),
        valued("duration", "TIME", H, "End after this time [default: 10s, when nothing else ends the run]").short('d'),
        valued("reps", "N", H, "End when each user has asked so many times (siege's -r)").short('r'),
        valued("warm-up", "TIME", H, "Ask for this long before anything is counted"),
        valued("threads", "N", H, "Threads of the load generator [default: half of the cores, at most 4]").short('t'),
    ]
}

fn how_often() -> [Arg; 8] {
    const H: &str = "When requests are sent";
    [
        valued(
            "rate",
            "RATE",
            H,
            "Send at this rate, whether or not answers come (open model): 500/s, 375/min, a ramp 100..2000/s:30s, steps 100/s:10s,200/s:10s",
        ),
        valued(
            "arrivals",
            "HOW",
            H,
            "With --rate: even, or random[:SEED] as independent people come (Poisson) [default: even]",
        ),
        valued(
            "think",
            "TIME",
            H,
            "What users wait between an answer and the next question: 2s, or 0..2s for a random time up to it",
        ),
        valued(
            "order",
            "HOW",
            H,
            "Which of several URLs is next: in-turn, or random[:SEED] [default: in-turn]",
        ),
        path(valued(
            "replay",
            "FILE",
            H,
            "Send what an access log says, with its gaps, to URL; - reads standard input",
        )),
        valued(
            "speed",
            "FACTOR",
            H,
            "With --replay: so many times as fast, such as 2x or 0.5x [default: 1x]",
        ),
        flag("replay-unsafe", H, "With --replay: send POST, PUT, PATCH and DELETE too, without bodies"),
        path(
            valued("urls", "FILE", H, "URLs, one per line: siege's format, and weight=3 at a line's end")
                .short('f'),
        ),
    ]
}

fn what_is_sent() -> [Arg; 8] {
    const H: &str = "What is sent";
    [
        valued("method", "METHOD", H, "[default: GET, or POST with a body]").short('X'),
        valued(
            "header",
            "NAME: VALUE",
            H,
            "A header field; may be repeated; replaces what would be sent otherwise",
        )
        .short('H')
        .action(ArgAction::Append),
        valued("body", "TEXT", H, "The body").conflicts_with("body-file"),
        path(valued("body-file", "FILE", H, "The body is what is in FILE")),
        valued(
            "content-type",
            "TYPE",
            H,
            "What the body is [default: by the file's name, else application/x-www-form-urlencoded]",
        ),
        valued("user", "NAME:PASSWORD", H, "Basic authentication"),
        valued("cookie", "NAME=VALUE", H, "A cookie that is always sent; may be repeated")
            .short('b')
            .action(ArgAction::Append),
        flag("cookies", H, "Send back the cookies that the server sets, for each user its own"),
    ]
}

fn how_it_travels() -> [Arg; 11] {
    const H: &str = "How it travels";
    [
        valued(
            "http",
            "VERSION",
            H,
            "1 or 2; 2 is agreed upon with TLS, and simply spoken without [default: 1]",
        ),
        valued(
            "streams",
            "N",
            H,
            "Requests under way on each connection of HTTP/2; implies --http 2 [default: 1]",
        ),
        valued("pipeline", "N", H, "Requests under way on each connection of HTTP/1.1 [default: 1]"),
        flag("no-keep-alive", H, "A new connection for each request"),
        valued("connect-to", "PLACE", H, "Connect to HOST:PORT or unix:PATH instead of where the URL says"),
        flag("insecure", H, "Believe every certificate").short('k'),
        path(valued("ca", "FILE", H, "Believe the certificates in FILE (PEM), besides the system's")),
        valued("timeout", "TIME", H, "How long an answer may take [default: 30s]"),
        valued("connect-timeout", "TIME", H, "How long connecting may take, TLS included [default: 5s]"),
        valued(
            "grace",
            "TIME",
            H,
            "After the end, how long to wait for answers that are under way [default: 5s]",
        ),
        flag("no-stages", H, "Do not ask a Firebrick where the time went"),
    ]
}

fn what_is_right() -> [Arg; 5] {
    const H: &str = "What counts as right";
    [
        valued("expect-status", "SET", H, "Such as 200, 200,300-399 or 2xx [default: 100-399; every status with the formats of ab, siege and wrk]"),
        valued("expect-length", "BYTES", H, "Length of the body: a size, or same for as long as the first one [default: same with --format ab, else any]"),
        valued("expect-sha256", "HASH", H, "SHA-256 of the body, 64 hexadecimal digits"),
        valued("expect-body", "REGEX", H, "A regular expression that the body has to match"),
        valued("fail-if", "CONDITION", H, "Exit with status 1 if this is so: p99>200ms, errors>0, errors%>0.1, rate<500/s; may be repeated. Times: p50 p90 p95 p99 p999 max mean, also service.p99, corrected.p99; counts: errors timeouts requests").action(ArgAction::Append),
    ]
}

fn what_is_shown() -> [Arg; 7] {
    const H: &str = "What is shown";
    [
        valued(
            "format",
            "FORMAT",
            H,
            "human, json, csv (one line per second), or what other tools print: ab, ab-csv, siege, siege-json, wrk [default: human]",
        ),
        path(valued(
            "json",
            "FILE",
            H,
            "Write everything that was seen, for programs, --merge and `firebrick plan --from`",
        )),
        path(valued("csv", "FILE", H, "Write one line per second")),
        path(valued("html", "FILE", H, "Write a page with plots")),
        valued("name", "TEXT", H, "What to call this run"),
        flag("quiet", H, "Print no summary; files are written and --fail-if speaks").short('q'),
        flag("no-progress", H, "No live screen"),
    ]
}

fn how_it_joins() -> [Arg; 2] {
    const H: &str = "Together with others";
    [
        path(
            valued("merge", "FILE", H, "Load nothing: join the files of --json that several machines have written")
                .num_args(1..)
                .action(ArgAction::Append),
        ),
        valued("control", "PLACE", H, "The Firebrick that is asked for its CPU time and memory: its control socket, or the folder of its app")
            .value_hint(ValueHint::AnyPath),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_no_fault() {
        arguments(Command::new("bench")).debug_assert();
    }

    #[test]
    fn each_flag_has_a_heading_and_a_word_about_it() {
        for arg in arguments(Command::new("bench")).get_arguments() {
            assert!(arg.get_help().is_some(), "{}", arg.get_id());
            assert!(arg.get_help_heading().is_some() || arg.get_id() == "url", "{}", arg.get_id());
        }
    }
}
