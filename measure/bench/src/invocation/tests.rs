//! Tests of parsing command lines, and of error messages.

use std::time::Duration;

use clap::Command;
use load::scenario::{Arrivals, ConnectTo, Length, Protocol, RequestOrder, Stage, Think, Traffic};

use super::*;

fn typed(words: &str) -> Result<Invocation, Vec<String>> {
    let words = words.split_whitespace().map(|word| word.replace('\u{1}', " "));
    let matches = crate::arguments(Command::new("bench"))
        .try_get_matches_from(std::iter::once("bench".to_owned()).chain(words));
    read(&matches.unwrap_or_else(|error| panic!("{error}")))
}

fn run(words: &str) -> Run {
    match typed(words) {
        Ok(Invocation::Run(run)) => *run,
        Ok(_) => panic!("{words}: not a run"),
        Err(mistakes) => panic!("{words}: {mistakes:?}"),
    }
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn defaults_are_fifty_users_for_ten_seconds() {
    let run = run("localhost:9292");
    assert!(matches!(run.scenario.traffic, Traffic::Closed { users: 50, think: Think::None }));
    assert_eq!((run.scenario.stop.after, run.scenario.stop.requests), (seconds(10), None));
    assert_eq!(run.scenario.transport.protocol, Protocol::Http1 { keep_alive: true, pipeline: 1 });
    assert!(run.scenario.stages && run.scenario.threads >= 1);
    assert_eq!(run.description.target(), "localhost:9292");
}

#[test]
fn passwords_of_urls_are_sent_and_not_shown() {
    for (typed, shown) in [
        ("http://ann:secret@h/x?y@z", "http://ann:…@h/x?y@z"),
        ("ann:p%40ss:w@h:81", "ann:…@h:81"),
        ("http://ann@h/", "http://ann@h/"),
        ("http://h/a:b@c", "http://h/a:b@c"),
    ] {
        let run = run(typed);
        assert_eq!(run.description.target(), shown);
        let sent = run.scenario.requests[0].headers.iter().any(|(name, _)| name == "Authorization");
        assert_eq!(sent, typed.contains("ann"), "{typed}");
    }
}

#[test]
fn values_that_look_like_flags_are_mistakes_of_their_flags() {
    for (words, why) in [
        ("h -c -1", "--connections: \"-1\""),
        ("h -d -5s", "--duration"),
        ("h --rate -5/s", "--rate"),
        ("h --json -", "--json"),
    ] {
        let mistakes = typed(words).err().unwrap_or_default();
        assert!(mistakes.iter().any(|mistake| mistake.starts_with(why)), "{words}: {mistakes:?}");
    }
}

#[test]
fn closed_models() {
    let scenario = run("h -c 200 -n 10k").scenario;
    assert!(matches!(scenario.traffic, Traffic::Closed { users: 200, .. }));
    assert_eq!((scenario.stop.after, scenario.stop.requests), (None, Some(10_000)));
    let scenario = run("h --users 30 -r 20 --think 0..2s -d 1m").scenario;
    assert!(
        matches!(scenario.traffic, Traffic::Closed { users: 30, think: Think::UpTo(pause) } if pause == Duration::from_secs(2))
    );
    assert_eq!((scenario.stop.after, scenario.stop.rounds), (seconds(60), Some(20)));
    assert!(matches!(
        run("h --think 500ms").scenario.traffic,
        Traffic::Closed { think: Think::Fixed(_), .. }
    ));
    assert!(matches!(run("h -n 3").scenario.traffic, Traffic::Closed { users: 3, .. }));
}

#[test]
fn open_models() {
    let open = |words: &str| {
        let scenario = run(words).scenario;
        match scenario.traffic {
            Traffic::Open { stages, arrivals, connections } => {
                (stages, arrivals, connections, scenario.stop.after)
            }
            other => panic!("{words}: {other:?}"),
        }
    };
    let flat = |rate: f64, duration| Stage { from: rate, to: rate, duration };
    assert_eq!(open("h --rate 500/s"), (vec![flat(500.0, None)], Arrivals::Even, 1_000, seconds(10)));
    assert_eq!(
        open("h --rate 500/s -d 1m -c 20 --arrivals random:7"),
        (vec![flat(500.0, None)], Arrivals::Random(7), 20, seconds(60))
    );
    let ramp = |duration| vec![Stage { from: 100.0, to: 2_000.0, duration }];
    assert_eq!(open("h --rate 100..2000/s:30s").0, ramp(seconds(30)));
    assert_eq!(open("h --rate 100..2000/s:30s").3, None);
    assert_eq!(open("h --rate 100..2000/s -d 20s").0, ramp(seconds(20)));
    assert_eq!(open("h --rate 100..2000/s").0, ramp(seconds(10)));
    let steps = open("h --rate 100/s:5s,200/s");
    assert_eq!((steps.0, steps.3), (vec![flat(100.0, seconds(5)), flat(200.0, None)], seconds(15)));
    assert_eq!(open("h --rate 100/s -n 500").3, None);
}

#[test]
fn requests() {
    let scenario =
        run("http://joe:pw@h/x -H Accept:text/html -b a=b -b c=d --body a=1 --order random").scenario;
    let request = &scenario.requests[0];
    assert_eq!((request.method.as_str(), &request.body[..]), ("POST", &b"a=1"[..]));
    let has = |name: &str, value: &str| request.headers.contains(&(name.to_owned(), value.to_owned()));
    assert!(
        has("Accept", "text/html") && has("Cookie", "a=b; c=d") && has("Authorization", "Basic am9lOnB3"),
        "{request:?}"
    );
    assert!(has("Content-Type", "application/x-www-form-urlencoded"));
    assert_eq!(scenario.order, RequestOrder::Random(1));
    let request =
        &run("h -X put --body {} --content-type application/json --user a:b:c").scenario.requests[0];
    assert_eq!(request.method, "PUT");
    assert!(request.headers.contains(&("Content-Type".to_owned(), "application/json".to_owned())));
    assert!(request.headers.contains(&("Authorization".to_owned(), "Basic YTpiOmM=".to_owned())));
}

#[test]
fn transports() {
    let transport = |words: &str| run(words).scenario.transport;
    assert_eq!(transport("h --no-keep-alive").protocol, Protocol::Http1 { keep_alive: false, pipeline: 1 });
    assert_eq!(transport("h --pipeline 8").protocol, Protocol::Http1 { keep_alive: true, pipeline: 8 });
    assert_eq!(transport("h --http 2").protocol, Protocol::Http2 { streams: 1 });
    assert_eq!(transport("h --streams 100").protocol, Protocol::Http2 { streams: 100 });
    assert_eq!(transport("https://h --http 3").protocol, Protocol::Http3 { streams: 1 });
    assert_eq!(transport("https://h --http 3 --streams 8").protocol, Protocol::Http3 { streams: 8 });
    assert_eq!(transport("unix:/run/a.sock:/x").to, Some(ConnectTo::Unix("/run/a.sock".into())));
    assert_eq!(
        transport("h --connect-to 127.0.0.1:80").to,
        Some(ConnectTo::Tcp("127.0.0.1:80".parse().unwrap()))
    );
    assert_eq!(transport("h --connect-to unix:/a").to, Some(ConnectTo::Unix("/a".into())));
    assert!(transport("https://h -k").tls.insecure);
}

#[test]
fn default_checks_depend_on_the_format() {
    let checks = |words: &str| run(words).scenario.checks;
    assert_eq!((checks("h").statuses, checks("h").length), (vec![], None));
    assert_eq!(
        (checks("h --format ab").statuses, checks("h --format ab").length),
        (vec![(100, 999)], Some(Length::Same))
    );
    assert_eq!(checks("h --format wrk").length, None);
    assert_eq!(checks("h --format ab --expect-status 2xx --expect-length 5").statuses, vec![(200, 299)]);
    let hash = checks(&format!("h --expect-sha256 {}", "0f".repeat(32))).sha256;
    assert_eq!(hash, Some([15; 32]));
}

#[test]
fn url_files_and_logs() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    put("b.json", "{}");
    let urls = put("urls.txt", "http://h/a weight=3\nhttp://h/b POST <b.json\n");
    let found = run(&format!("-f {urls} http://h/c"));
    let shown: Vec<(&str, &str, u32)> =
        found.scenario.requests.iter().map(|r| (r.method.as_str(), r.target.as_str(), r.weight)).collect();
    assert_eq!(shown, vec![("GET", "/c", 1), ("GET", "/a", 3), ("POST", "/b", 1)]);
    assert_eq!(found.description.url_count, 3);
    let log = put(
        "access.log",
        "h - - [31/Jan/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 1\nh - - [31/Jan/2026:12:00:04 +0000] \"POST /b HTTP/1.1\" 200 1\nx\n\
         h - - [31/Jan/2026:12:00:08 +0000] \"GET /c HTTP/1.1\" 200 1\n",
    );
    let found = run(&format!("http://h:1 --replay {log} --speed 2x"));
    let Traffic::Replay { arrivals, connections: 1_000 } = &found.scenario.traffic else {
        panic!("{:?}", found.scenario.traffic)
    };
    assert_eq!(*arrivals, vec![(Duration::ZERO, 0), (Duration::from_secs(4), 1)]);
    assert_eq!(found.remarks.len(), 3, "{:?}", found.remarks);
    assert_eq!(
        run(&format!("http://h:1 --replay {log} --replay-unsafe")).scenario.requests[1].method,
        "POST"
    );
}

#[test]
fn workers() {
    assert_eq!(run("h").workers, 1);
    let four = run("h -c 10 -t 3 --workers 4");
    assert_eq!((four.workers, four.description.workers, four.description.connections), (4, 4, 10));
    assert_eq!(four.description.threads, 3 + 3 + 2 + 2, "a thread needs a user");
    assert!(matches!(four.scenario.traffic, Traffic::Closed { users: 10, .. }), "the users of all");
    assert_eq!(run("h --rate 4/s --workers 4").workers, 4);
    assert_eq!(run("h --rate 0..9/s:10s --workers 9").workers, 9);
}

#[test]
fn merging() {
    let invocation = typed("--merge a.json b.json --fail-if p99>1s --format ab").unwrap();
    assert!(
        matches!(invocation, Invocation::Merge { files, conditions, .. } if files.len() == 2 && conditions.len() == 1)
    );
    let mistakes = typed("--merge a.json -c 5").err().unwrap();
    assert!(mistakes[0].contains("--connections"), "{mistakes:?}");
}

#[test]
fn error_messages() {
    for (words, parts) in [
        ("", &["no URL", "http://localhost:9292/"][..]),
        ("-c 5", &["no URL"]),
        ("ftp://h/", &["ftp"]),
        ("h -c 0", &["--connections", "at least 1"]),
        ("h -d soon", &["--duration", "1m30s"]),
        ("h -d 0", &["--duration", "above 0"]),
        ("h --rate 5/s --think 1s", &["--think cannot be used with --rate"]),
        ("h --rate 5/s -r 3", &["--reps cannot be used with --rate", "-n"]),
        ("h --rate fast", &["--rate", "500/s"]),
        ("h --rate 5/s:10s,6/s -d 10s", &["longer --duration"]),
        ("h --arrivals random", &["--arrivals requires --rate"]),
        ("h --speed 2x", &["--speed requires --replay"]),
        ("h --replay /nowhere/a.log", &["--replay", "/nowhere/a.log"]),
        ("h/x --replay /nowhere/a.log", &["paths come from the log", "/nowhere"]),
        ("h --order backwards", &["in-turn"]),
        ("h --arrivals random:x --rate 1/s", &["random:7"]),
        ("h --think 1s..2s", &["0..2s"]),
        ("h --http 3", &["always encrypted", "https://"]),
        ("h --http 4", &["--http"]),
        ("h --http 1 --streams 3", &["--pipeline"]),
        ("h --http 2 --pipeline 3", &["--streams"]),
        ("h --no-keep-alive --pipeline 3", &["its own connection"]),
        ("h -H nonsense", &["Name: value"]),
        ("h -H Connection:close", &["--no-keep-alive"]),
        ("h -b nonsense", &["NAME=VALUE"]),
        ("h --user joe", &["NAME:PASSWORD"]),
        ("h -X CONNECT", &["tunnel"]),
        ("h --content-type text/plain", &["--body"]),
        ("h --body-file /nowhere", &["--body-file", "/nowhere"]),
        ("h --connect-to nowhere", &["HOST:PORT"]),
        ("h --connect-to unix:", &["no socket"]),
        ("unix:/a unix:/b", &["one Unix socket"]),
        ("h unix:/b", &["one Unix socket"]),
        ("unix:/a --connect-to 127.0.0.1:1", &["already"]),
        ("h --ca /nowhere", &["--ca", "/nowhere"]),
        ("h --expect-status 6xx", &["2xx"]),
        ("h --expect-length long", &["same"]),
        ("h --expect-sha256 abc", &["64"]),
        ("h --expect-body (", &["regular expression"]),
        ("h --fail-if p99>200", &["200ms"]),
        ("h --format yaml", &["siege-json"]),
        ("h --json /nowhere/a.json", &["no folder /nowhere"]),
        ("h --json a --html a", &["two kinds of output"]),
        ("h -f /nowhere/urls.txt", &["--urls", "/nowhere"]),
        ("h --workers 0", &["--workers", "at least 1"]),
        ("h --workers 257", &["--workers", "257 processes", "1 to 256"]),
        ("h --workers 51", &["--workers 51", "50 users (-c", "at most 50"]),
        ("h --workers 4 -n 3", &["--workers 4", "3 users", "-n", "at most 3"]),
        ("h --workers 4 --rate 3.5/s", &["--workers 4", "--rate is 3.5 per second", "at most 3"]),
        ("h --workers 4 --rate 9/s -n 2", &["--workers 4", "2 requests (-n)", "at most 2"]),
        ("h --workers 4 --rate 9/s -c 2", &["--workers 4", "2 connections (-c)", "at most 2"]),
        ("h --workers 2 --replay -", &["--replay - cannot be used with --workers", "a file name"]),
        ("--workers 2 -f -", &["--urls - cannot be used with --workers", "a file name"]),
        ("h --workers 2 --body-file -", &["--body-file - cannot be used with --workers"]),
        ("h --listen 127.0.0.1:0", &["--listen requires --workers", "FIREBRICK_BENCH_TOKEN", "16 bytes"]),
        ("h --listen nowhere --workers 2", &["--listen", "0.0.0.0:9299"]),
        ("h --join nowhere", &["--join", "HOST:PORT"]),
        ("h --join h:1 --html a", &["--html cannot be used with --join", "the coordinator"]),
        ("h --join h:1 --workers 2", &["--workers cannot be used with --join"]),
        ("--merge a.json --workers 2", &["--merge sends nothing", "--workers"]),
        (
            "h --expect-status x --expect-length y --order z",
            &["--expect-status", "--expect-length", "--order"],
        ),
    ] {
        let mistakes = typed(words).err().unwrap_or_else(|| panic!("{words}: accepted")).join("\n");
        for part in parts {
            assert!(mistakes.contains(part), "{words}: {mistakes}");
        }
    }
}
