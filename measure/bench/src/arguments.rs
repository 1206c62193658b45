//! Command-line arguments of `firebrick bench`.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command, ValueHint};

const EXAMPLES: &str = "\
Examples:
  firebrick bench http://localhost:9292/                       10 s, 50 users
  firebrick bench http://localhost:9292/ -c 200 -n 10000       until 10,000 requests are done
  firebrick bench http://localhost:9292/ --rate 500/s -d 1m    500 requests per second, whatever the server does
  firebrick bench http://localhost:9292/ --rate 100..2000/s:30s   from 100 to 2,000 per second in 30 s
  firebrick bench http://localhost:9292/ --find 'p95<200ms'    the highest rate that holds it
  firebrick bench https://localhost:9293/ -k --http 3 --streams 8   HTTP/3, 8 requests at once on each connection
  firebrick bench -f urls.txt -c 20 --think 0..2s              URLs from a file (siege's format), with pauses
  firebrick bench http://localhost:9292 --journey login.toml -c 20   log in, take a token, next page
  firebrick bench http://localhost:9292 --replay access.log --speed 2x
  firebrick bench http://localhost:9292/events --sse -c 500 -d 30s   hold 500 event streams
  firebrick bench ws://localhost:9292/echo --send hello --rate 2/s -c 1000   1,000 WebSockets, 2 messages a second each
  firebrick bench http://localhost:9292/ --html report.html --fail-if 'p99>200ms' --fail-if 'errors>0'
  firebrick bench http://localhost:9292/ -c 400 --workers 4    four processes, one report
  firebrick bench http://app/ --rate 9k/s --workers 3 --listen 0.0.0.0:9299   for three machines with --join
  firebrick bench --merge a.json b.json                        merge the results of several machines

Times: 30, 30s, 500ms, 1m30s. Rates: 500/s, 375/min. Counts: 600, 10k.
Exit status: 0 success; 1 a --fail-if condition holds, no successful response, or a lost process of --workers; 2 wrong usage.
docs/bench.md explains the output.";

pub(crate) fn arguments(command: Command) -> Command {
    let command = command
        .after_help(EXAMPLES)
        .arg(
            Arg::new("url")
                .value_name("URL")
                .num_args(0..)
                .value_hint(ValueHint::Url)
                .help("Where to send requests: http://localhost:9292/, https://…, unix:/run/app.sock:/path; several URLs are used in turn"),
        )
        .args(amount())
        .args(timing())
        .args(requests())
        .args(held())
        .args(transport());
    command.args(checks()).args(output()).args(other())
}

fn valued(name: &'static str, value: &'static str, heading: &'static str, help: impl Into<StyledStr>) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value).help_heading(heading).help(help);
    // A negative number gets a message about its value.
    arg.allow_hyphen_values(matches!(value, "N" | "TIME" | "RATE" | "FACTOR" | "BYTES"))
}

fn flag(name: &'static str, heading: &'static str, help: impl Into<StyledStr>) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help_heading(heading).help(help)
}

fn path(arg: Arg) -> Arg {
    arg.value_hint(ValueHint::FilePath)
}

fn amount() -> [Arg; 7] {
    const H: &str = "Load and duration";
    [
        valued("connections", "N", H, "Concurrent users, each with its own connection; a user waits for the response before sending the next request [default: 50]. With --rate or --replay: most connections [default: 1000]")
            .short('c')
            .visible_alias("users"),
        valued("requests", "N", H, "Stop after N requests").short('n'),
        valued("duration", "TIME", H, "Stop after this time [default: 10s if nothing else ends the run]").short('d'),
        valued("reps", "N", H, "Stop after N requests per user (siege's -r)").short('r'),
        valued("warm-up", "TIME", H, "Send requests for this long before counting"),
        valued("threads", "N", H, "Threads of the load generator, with --workers of each process [default: half of the cores, at most 4, divided by --workers]").short('t'),
        valued("workers", "N", H, "Processes of the load generator, each with its share of users, rate and requests; one report [default: 1]"),
    ]
}

fn timing() -> [Arg; 11] {
    const H: &str = "Timing requests are sent";
    [
        valued(
            "find",
            "OBJECTIVE",
            H,
            "Search the highest rate that holds this: p95<200ms, p99<1s, mean<50ms, errors<0.1%; may be repeated. --rate is the first rate to try",
        )
        .action(ArgAction::Append),
        valued("within", "TIME", H, "With --find: the longest time of the search [default: 90s]"),
        valued(
            "rate",
            "RATE",
            H,
            "Send at this rate, whether or not responses arrive (open model): 500/s, 375/min, a ramp 100..2000/s:30s, steps 100/s:10s,200/s:10s",
        ),
        valued(
            "arrivals",
            "HOW",
            H,
            "With --rate: even, or random[:SEED] for Poisson arrivals, as of independent users [default: even]",
        ),
        valued(
            "think",
            "TIME",
            H,
            "Pause of a user between a response and the next request: 2s, or 0..2s for a random time",
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
            "Send the requests of an access log, or of a file of `firebrick record`, to URL, with the same gaps; - reads standard input",
        )),
        path(valued(
            "journey",
            "FILE",
            H,
            "Each user sends the requests of a TOML file one after the other, with values of earlier responses; --rate begins so many journeys",
        )),
        valued("speed", "FACTOR", H, "With --replay: speed factor, such as 2x or 0.5x; max sends the requests of a recording as fast as -c users can [default: 1x]"),
        flag("replay-unsafe", H, "With --replay: also send POST, PUT, PATCH and DELETE; of a log without bodies, of a recording with them"),
        path(
            valued(
                "urls",
                "FILE",
                H,
                "File of URLs, one per line: siege's format, optionally with weight=3 at the end of a line",
            )
            .short('f'),
        ),
    ]
}

fn requests() -> [Arg; 8] {
    const H: &str = "Requests";
    [
        valued("method", "METHOD", H, "Request method [default: GET, or POST with a body]").short('X'),
        valued(
            "header",
            "NAME: VALUE",
            H,
            "Header field; may be repeated; replaces the default field of the same name",
        )
        .short('H')
        .action(ArgAction::Append),
        valued("body", "TEXT", H, "Request body").conflicts_with("body-file"),
        path(valued("body-file", "FILE", H, "Read the request body from FILE")),
        valued(
            "content-type",
            "TYPE",
            H,
            "Content type of the body [default: by the file name, otherwise application/x-www-form-urlencoded]",
        ),
        valued("user", "NAME:PASSWORD", H, "Basic authentication"),
        valued("cookie", "NAME=VALUE", H, "Cookie to send with every request; may be repeated")
            .short('b')
            .action(ArgAction::Append),
        flag("cookies", H, "Keep cookies that the server sets, separately for each user"),
    ]
}

fn held() -> [Arg; 6] {
    const H: &str = "Event streams and WebSockets";
    [
        flag("sse", H, "Hold -c event streams (Server-Sent Events) open instead of sending requests"),
        flag("ws", H, "Hold -c WebSockets open instead of sending requests; ws:// and wss:// imply it"),
        valued(
            "send",
            "TEXT",
            H,
            "With --ws: message to send, each time the reply to the last one has come, or --rate times a second on each connection; ${user} is the connection's number, ${turn} the message's; may be repeated, to send in turn",
        )
        .action(ArgAction::Append),
        path(valued("send-file", "FILE", H, "With --ws: send the contents of FILE; binary unless they are UTF-8")),
        valued(
            "first",
            "TEXT",
            H,
            "With --ws: message to send once, after the handshake, such as a subscription; may be repeated",
        )
        .action(ArgAction::Append),
        valued(
            "reply",
            "WHICH",
            H,
            "With --ws: the message that replies to one: echo (the same), next, match:REGEX, or none [default: echo]",
        ),
    ]
}

fn transport() -> [Arg; 12] {
    const H: &str = "Transport";
    [
        valued(
            "http",
            "VERSION",
            H,
            "HTTP version: 1, 2 (by ALPN over TLS, otherwise with prior knowledge), or 3 (over QUIC, https only) [default: 1]",
        ),
        valued(
            "streams",
            "N",
            H,
            "Concurrent requests per connection of HTTP/2 or 3; implies --http 2 [default: 1]",
        ),
        valued("pipeline", "N", H, "Pipelined requests per HTTP/1.1 connection [default: 1]"),
        flag("no-keep-alive", H, "Open a new connection for each request"),
        valued("connect-to", "ADDRESS", H, "Connect to HOST:PORT or unix:PATH instead of the URL's host"),
        flag("insecure", H, "Trust every certificate").short('k'),
        path(valued("ca", "FILE", H, "Trust the certificates in FILE (PEM) besides the system's")),
        flag(
            "resume",
            H,
            "Resume TLS sessions, as browsers do; otherwise every connection begins with a full handshake",
        ),
        valued("timeout", "TIME", H, "Time limit for a response [default: 30s]"),
        valued("connect-timeout", "TIME", H, "Time limit for connecting, including TLS [default: 5s]"),
        valued("grace", "TIME", H, "How long to wait for outstanding responses at the end [default: 5s]"),
        flag("no-stages", H, "Do not ask a Firebrick server where the time went"),
    ]
}

fn checks() -> [Arg; 5] {
    const H: &str = "Checks";
    [
        valued("expect-status", "SET", H, "Statuses that count as success, such as 200, 200,300-399 or 2xx [default: 100-399; all with the formats of ab, siege and wrk]"),
        valued("expect-length", "BYTES", H, "Expected body length: a size, or same as the first response [default: same with --format ab, otherwise any]"),
        valued("expect-sha256", "HASH", H, "Expected SHA-256 of the body, 64 hexadecimal digits"),
        valued("expect-body", "REGEX", H, "Regular expression that the body must match"),
        valued("fail-if", "CONDITION", H, "Exit with status 1 if this holds: p99>200ms, errors>0, errors%>0.1, rate<500/s, differences>0; may be repeated. Times: p50 p90 p95 p99 p999 max mean, also service.p99, corrected.p99; counts: errors timeouts requests").action(ArgAction::Append),
    ]
}

fn output() -> [Arg; 7] {
    const H: &str = "Output";
    [
        valued(
            "format",
            "FORMAT",
            H,
            "Output format: human, json, csv (one line per second), or that of another tool: ab, ab-csv, siege, siege-json, wrk [default: human]",
        ),
        path(valued(
            "json",
            "FILE",
            H,
            "Write the complete results as JSON, for programs, --merge and `firebrick plan --from`",
        )),
        path(valued("csv", "FILE", H, "Write one line per second")),
        path(valued("html", "FILE", H, "Write an HTML report with plots")),
        valued("name", "TEXT", H, "Title of this run"),
        flag("quiet", H, "Print no summary; still write files and report --fail-if").short('q'),
        flag("no-progress", H, "Show no live progress"),
    ]
}

fn other() -> [Arg; 4] {
    const H: &str = "Several machines and server statistics";
    [
        valued("listen", "ADDRESS", H, "With --workers: send nothing; wait here for so many workers on other machines that have the same secret in FIREBRICK_BENCH_TOKEN, start them together, report"),
        valued("join", "ADDRESS", H, "Send a share of the load for the coordinator that listens at HOST:PORT; URL and other flags as there"),
        path(
            valued("merge", "FILE", H, "Send nothing; merge the --json files of several machines")
                .num_args(1..)
                .action(ArgAction::Append),
        ),
        valued("control", "ADDRESS", H, "Firebrick server to ask for its CPU time and memory: its control socket, or the folder of its app")
            .value_hint(ValueHint::AnyPath),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_valid() {
        arguments(Command::new("bench")).debug_assert();
    }

    #[test]
    fn every_flag_has_a_heading_and_a_help_text() {
        for arg in arguments(Command::new("bench")).get_arguments() {
            assert!(arg.get_help().is_some(), "{}", arg.get_id());
            assert!(arg.get_help_heading().is_some() || arg.get_id() == "url", "{}", arg.get_id());
        }
    }
}
