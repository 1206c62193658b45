//! What each cell is asked: requests without an address, which every server gets when its port is known.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use load::inputs::url;
use load::inputs::urls_file::{Surroundings, urls_file as read_urls};
use load::plan::{
    Arrivals, Checks, Order, Origin, Plan, Protocol, Request, Stop, Think, Timeouts, Tls, Traffic, Transport,
};

use crate::options::{Amount, Asking};

/// Addresses that are no one's yet.
fn nowhere() -> Origin {
    Origin { tls: false, host: "127.0.0.1".to_owned(), port: 0 }
}

fn get(target: String) -> Request {
    Request {
        origin: nowhere(),
        method: "GET".to_owned(),
        target,
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        weight: 1,
    }
}

/// Requests for paths; for `/` when there are none.
///
/// # Errors
/// Each path that is none.
pub(crate) fn paths(paths: &[&str]) -> Result<Vec<Request>, Vec<String>> {
    if paths.is_empty() {
        return Ok(vec![get("/".to_owned())]);
    }
    let (mut requests, mut mistakes) = (Vec::new(), Vec::new());
    for path in paths {
        match read_path(path) {
            Ok(target) => requests.push(get(target)),
            Err(why) => mistakes.push(format!("--path {path:?}: {why}")),
        }
    }
    if mistakes.is_empty() { Ok(requests) } else { Err(mistakes) }
}

fn read_path(path: &str) -> Result<String, String> {
    if path.starts_with('/') {
        return url::target(path);
    }
    Err("expected a path that begins with /, such as /reports?year=2026; the servers' addresses are tune's own"
        .to_owned())
}

/// Requests of a file of URLs.
///
/// # Errors
/// Each mistake of the file, with its line.
pub(crate) fn urls_file(path: &Path) -> Result<Vec<Request>, Vec<String>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| vec![format!("--urls: {name}: {error}")])?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut around = Surroundings { file: &mut file, variable: &|name| std::env::var(name).ok() };
    let lines = read_urls(&name, &text, &mut around)?;
    Ok(lines
        .into_iter()
        .map(|line| {
            let (body, kind) = line.body.unzip();
            let method = line.method.unwrap_or_else(|| "GET".to_owned());
            let headers = kind.map(|kind| ("Content-Type".to_owned(), kind.to_owned()));
            Request {
                method,
                body: body.unwrap_or_default(),
                weight: line.weight,
                headers: headers.into_iter().collect(),
                ..get(line.url.target)
            }
        })
        .collect())
}

/// Reads `Name: value`.
///
/// # Errors
/// Says what was expected.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let read = text.split_once(':').map(|(name, value)| (name, value.trim()));
    match read {
        Some((name, value))
            if !name.is_empty() && name.bytes().all(token) && !value.contains(char::is_control) =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("{text:?} is not a header field; expected such as 'Accept: application/json'")),
    }
}

/// How much of the load a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Portion {
    /// Users at a time.
    pub(crate) users: usize,
    /// How much they ask.
    pub(crate) amount: Amount,
    /// An end for runs that count requests.
    pub(crate) at_most: Option<Duration>,
}

/// The plan of one run against 127.0.0.1:`port`. `stages` asks a Firebrick where the time went.
pub(crate) fn plan(asking: &Asking, portion: Portion, port: u16, stages: bool) -> Plan {
    let origin = Origin { port, ..nowhere() };
    let requests: Vec<Request> =
        asking.requests.iter().map(|request| Request { origin: origin.clone(), ..request.clone() }).collect();
    let (requests_at_most, after) = match portion.amount {
        Amount::Requests(requests) => (Some(requests.max(1)), portion.at_most),
        Amount::Time(time) => (None, Some(time)),
    };
    let traffic = match &asking.open {
        Some(stages) => Traffic::Open {
            stages: stages.clone(),
            arrivals: Arrivals::Random(1),
            connections: most_connections(asking),
        },
        None => Traffic::Closed {
            users: portion.users.max(1),
            think: if asking.think.is_zero() { Think::None } else { Think::Fixed(asking.think) },
        },
    };
    Plan {
        requests,
        order: Order::InTurn,
        traffic,
        stop: Stop { requests: requests_at_most, rounds: None, after },
        warm_up: Duration::ZERO,
        transport: Transport {
            protocol: Protocol::Http1 { keep_alive: true, pipeline: 1 },
            to: None,
            tls: Tls::default(),
        },
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            request: asking.timeout,
            grace: asking.timeout,
        },
        checks: Checks::default(),
        threads: 1,
        cookies: false,
        stages,
    }
}

/// Connections of an open model: what would be under way at the highest rate if each answer took a second.
fn most_connections(asking: &Asking) -> usize {
    let rates = asking.open.iter().flatten().flat_map(|stage| [stage.from, stage.to]);
    rates.fold(100.0, f64::max).min(10_000.0) as usize
}

/// In words: "30 users, 600 requests each cell, GET /".
pub(crate) fn words(asking: &Asking) -> String {
    let how_much = match asking.amount {
        Amount::Requests(requests) => format!("{requests} requests"),
        Amount::Time(time) => format!("{:.3} s", time.as_secs_f64()).replace(".000", ""),
    };
    let who = match &asking.open {
        Some(_) => "an open load".to_owned(),
        None if asking.users == 1 => "1 user at a time".to_owned(),
        None => format!("{} users at a time", asking.users),
    };
    let names: Vec<String> = asking
        .requests
        .iter()
        .take(3)
        .map(|request| format!("{} {}", request.method, request.target))
        .collect();
    let different: HashSet<&String> = names.iter().collect();
    let more = match asking.requests.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = if different.len() == 1 { names[0].clone() } else { names.join(", ") };
    format!("{who}, {how_much} for each cell, {names}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_a_slash() {
        let two = paths(&["/a b", "/b"]).unwrap_err();
        assert_eq!(two.len(), 1);
        assert!(two[0].contains("%20"), "{two:?}");
        assert!(paths(&["http://x/"]).unwrap_err()[0].contains("/reports"));
        assert_eq!(paths(&[]).unwrap()[0].target, "/");
        assert_eq!(paths(&["/a?b=c#d"]).unwrap()[0].target, "/a?b=c");
    }

    #[test]
    fn headers_are_judged() {
        assert_eq!(header("Accept:  text/html "), Ok(("Accept".into(), "text/html".into())));
        for wrong in ["", "X", ": y", "X Y: z", "X: a\r\nB: c"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }
}
