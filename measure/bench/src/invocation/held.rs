//! `--sse` and `--ws`: connections that are held open.

use std::time::Duration;

use load::held::{Conversation, Message, Pace, Plan, Reply, Talk};
use load::inputs;
use load::inputs::condition::{Condition, Metric, View};
use load::scenario::{Protocol, Think};

use super::flags::Flags;
use super::output::{Format, Output};
use super::{default_threads, requests, transport};

const CONNECTIONS: usize = 50;
const DURATION: Duration = Duration::from_secs(10);
/// The flags that both kinds use.
const USED: [&str; 26] = [
    "url",
    "sse",
    "ws",
    "connections",
    "duration",
    "threads",
    "header",
    "user",
    "cookie",
    "http",
    "streams",
    "connect-to",
    "insecure",
    "ca",
    "resume",
    "timeout",
    "connect-timeout",
    "grace",
    "fail-if",
    "format",
    "json",
    "csv",
    "html",
    "name",
    "quiet",
    "no-progress",
];
/// The flags of WebSockets.
const OF_WEB_SOCKETS: [&str; 6] = ["send", "send-file", "first", "reply", "rate", "think"];

/// A run with `--sse` or `--ws`.
pub(crate) struct HoldRun {
    pub plan: Plan,
    /// The URLs for display.
    pub urls: Vec<String>,
    pub output: Output,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldKind {
    Events,
    WebSockets,
}

/// Returns what the command line asks to hold, if anything.
pub(super) fn kind(flags: &mut Flags<'_>) -> Option<HeldKind> {
    flags.not_with("sse", &["ws"], "a run holds one kind of connections");
    let names_web_socket = flags.texts("url").any(|url| of_web_socket(url).is_some());
    match (flags.is_set("sse"), flags.is_set("ws") || names_web_socket) {
        (true, _) => Some(HeldKind::Events),
        (false, true) => Some(HeldKind::WebSockets),
        (false, false) => {
            for name in ["send", "send-file", "first", "reply"] {
                flags.needs(name, "ws", "it is about messages of WebSockets");
            }
            None
        }
    }
}

/// Returns the `http` URL of a `ws` one.
fn of_web_socket(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "ws" => Some(format!("http://{rest}")),
        "wss" => Some(format!("https://{rest}")),
        _ => None,
    }
}

pub(super) fn read(
    flags: &mut Flags<'_>,
    kind: HeldKind,
    output: Output,
    conditions: Vec<Condition>,
) -> Option<HoldRun> {
    let (name, used) = match kind {
        HeldKind::Events => ("sse", USED.to_vec()),
        HeldKind::WebSockets => ("ws", [&USED[..], &OF_WEB_SOCKETS].concat()),
    };
    flags.only(&used, &format!("--{name} holds connections open instead of sending requests"));
    formats(flags, name, output.format);
    conditions.iter().for_each(|condition| fits(flags, name, condition));
    let typed: Vec<(String, inputs::ParsedUrl)> = flags
        .texts("url")
        .map(|url| {
            let target = match of_web_socket(url) {
                Some(_) if kind == HeldKind::Events => {
                    return Err(format!("{url:?}: --sse needs http:// or https://"));
                }
                Some(http) => inputs::url(&http)?,
                None => inputs::url(url)?,
            };
            Ok((url.to_owned(), target))
        })
        .filter_map(|read: Result<_, String>| read.map_err(|why| flags.mistake(why)).ok())
        .collect();
    if !flags.given("url") {
        flags.mistake(
            "no URL: expected one such as http://localhost:9292/events --sse, or ws://localhost:9292/cable",
        );
    }
    let requests = if typed.is_empty() { None } else { requests::to_hold(flags, typed) };
    let transport = transport::read(flags, requests.as_ref().and_then(|requests| requests.unix.clone()));
    if !matches!(transport.protocol, Protocol::Http1 { .. }) {
        flags.mistake(format!("--{name} needs HTTP/1.1: connections over HTTP/2 and 3 are not supported"));
    }
    let timeouts = transport::timeouts(flags);
    let talk = match kind {
        HeldKind::Events => Some(Talk::Events),
        HeldKind::WebSockets => conversation(flags).map(Talk::WebSocket),
    };
    let connections = flags.count("connections").unwrap_or(CONNECTIONS);
    let threads = flags.count("threads").unwrap_or_else(default_threads).min(connections).max(1);
    let duration = flags.positive_duration("duration").unwrap_or(DURATION);
    let (requests, talk) = (requests?, talk?);
    let plan =
        Plan { requests: requests.requests, transport, timeouts, connections, duration, threads, talk };
    Some(HoldRun { plan, urls: requests.shown, output, conditions })
}

fn formats(flags: &mut Flags<'_>, name: &str, format: Format) {
    if !matches!(format, Format::Human | Format::Json | Format::Csv) {
        flags.mistake(format!(
            "--format: the formats of ab, siege and wrk cannot show --{name}: expected human, json or csv"
        ));
    }
}

/// Checks that a condition has a value in such a run.
fn fits(flags: &mut Flags<'_>, name: &str, condition: &Condition) {
    let why = match condition.metric {
        Metric::Time(View::Service | View::Corrected, _) => "there are no requests",
        Metric::Differences => "there are no recorded responses",
        Metric::Time(View::Latency, _)
            if name == "ws" && !(flags.given("send") || flags.given("send-file")) =>
        {
            "round trips need --send"
        }
        _ => return,
    };
    flags.mistake(format!("--fail-if {}: it has no value with --{name}: {why}", condition.text));
}

fn conversation(flags: &mut Flags<'_>) -> Option<Conversation> {
    let text = |text: &str| Message { content: text.as_bytes().to_vec().into(), binary: false };
    let file = flags.value("send-file", |name| {
        let content = requests::whole(name)?;
        Ok(Message { binary: std::str::from_utf8(&content).is_err(), content: content.into() })
    });
    let send: Vec<Message> = flags.texts("send").map(text).chain(file).collect();
    let first = flags.texts("first").map(text).collect();
    let reply = flags.value("reply", reply);
    let sends = flags.given("send") || flags.given("send-file");
    if !sends {
        for name in ["rate", "think", "reply"] {
            if flags.given(name) {
                flags.mistake(format!(
                    "--{name} requires --send or --send-file: there is nothing to reply to"
                ));
            }
        }
    }
    flags.not_with("rate", &["think"], "the rate determines when messages are sent");
    let rate = flags.value("rate", |text| {
        inputs::rate(text)
            .map_err(|why| format!("with --ws it is that of messages on each connection: {why}"))
    });
    let think = flags.value("think", inputs::think).unwrap_or(Think::None);
    if matches!(reply, Some(Reply::None)) && !flags.given("rate") {
        flags.mistake(
            "--reply none requires --rate: without replies nothing says when the next message is sent",
        );
    }
    let pace = rate.map_or(Pace::AfterReply(think), Pace::Rate);
    Some(Conversation { first, send, pace, reply: reply.unwrap_or(Reply::Echo) })
}

fn reply(text: &str) -> Result<Reply, String> {
    match text {
        "echo" => Ok(Reply::Echo),
        "next" => Ok(Reply::Next),
        "none" => Ok(Reply::None),
        _ => match text.strip_prefix("match:") {
            Some(regex) => regex::bytes::Regex::new(regex)
                .map(Reply::Matching)
                .map_err(|why| format!("{regex:?} is not a valid regular expression: {why}")),
            None => Err(format!("{text:?}: expected echo, next, none or match:REGEX")),
        },
    }
}
