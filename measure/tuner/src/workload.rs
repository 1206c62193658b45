//! The load of a cell: requests without an address, which is filled in once the server's port is known.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use load::inputs::url;
use load::inputs::urls_file::{Resolver, urls_file as read_urls};
use load::scenario::{
    Arrivals, Checks, Order, Origin, Protocol, Request, Scenario, Stop, Think, Timeouts, Tls, Traffic,
    Transport,
};

use crate::options::{Amount, LoadOptions};

/// Returns a placeholder for the origin.
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

/// Returns requests for paths; for `/` if there are none.
///
/// # Errors
/// The invalid paths.
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
    Err("expected a path that begins with /, such as /reports?year=2026; tune chooses the servers' addresses"
        .to_owned())
}

/// Returns the requests of a URL file.
///
/// # Errors
/// The mistakes in the file, each with its line.
pub(crate) fn urls_file(path: &Path) -> Result<Vec<Request>, Vec<String>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| vec![format!("--urls: {name}: {error}")])?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut resolver = Resolver { file: &mut file, variable: &|name| std::env::var(name).ok() };
    let lines = read_urls(&name, &text, &mut resolver)?;
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

/// Parses `Name: value`.
///
/// # Errors
/// A description of what is expected.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let read = text.split_once(':').map(|(name, value)| (name, value.trim()));
    match read {
        Some((name, value)) if text::is_token(name.as_bytes()) && !value.contains(char::is_control) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("{text:?} is not a header field; expected one such as 'Accept: application/json'")),
    }
}

/// The load of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Portion {
    /// Concurrent users.
    pub(crate) users: usize,
    /// A number of requests or a duration.
    pub(crate) amount: Amount,
    /// The time limit for runs that count requests.
    pub(crate) at_most: Option<Duration>,
}

/// Returns the scenario of one run against 127.0.0.1:`port`. With `stages` it requests timings from a Firebrick server.
pub(crate) fn scenario(load: &LoadOptions, portion: Portion, port: u16, stages: bool) -> Scenario {
    let origin = Origin { port, ..nowhere() };
    let requests: Vec<Request> =
        load.requests.iter().map(|request| Request { origin: origin.clone(), ..request.clone() }).collect();
    let (requests_at_most, after) = match portion.amount {
        Amount::Requests(requests) => (Some(requests.max(1)), portion.at_most),
        Amount::Time(time) => (None, Some(time)),
    };
    let traffic = match &load.open {
        Some(stages) => Traffic::Open {
            stages: stages.clone(),
            arrivals: Arrivals::Random(1),
            connections: most_connections(load),
        },
        None => Traffic::Closed {
            users: portion.users.max(1),
            think: if load.think.is_zero() { Think::None } else { Think::Fixed(load.think) },
        },
    };
    Scenario {
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
        timeouts: Timeouts { connect: Duration::from_secs(5), request: load.timeout, grace: load.timeout },
        checks: Checks::default(),
        threads: 1,
        cookies: false,
        stages,
        part: load::scenario::Part::default(),
    }
}

/// Returns the connections of an open model: the requests in flight at the highest rate with a response time of one second.
fn most_connections(load: &LoadOptions) -> usize {
    let rates = load.open.iter().flatten().flat_map(|stage| [stage.from, stage.to]);
    rates.fold(100.0, f64::max).min(10_000.0) as usize
}

/// Returns a description such as "30 concurrent users, 600 requests per cell, GET /".
pub(crate) fn words(load: &LoadOptions) -> String {
    let how_much = match load.amount {
        Amount::Requests(requests) => format!("{requests} requests"),
        Amount::Time(time) => format!("{:.3} s", time.as_secs_f64()).replace(".000", ""),
    };
    let who = match &load.open {
        Some(_) => "an open load".to_owned(),
        None if load.users == 1 => "1 user".to_owned(),
        None => format!("{} concurrent users", load.users),
    };
    let names: Vec<String> = load
        .requests
        .iter()
        .take(3)
        .map(|request| format!("{} {}", request.method, request.target))
        .collect();
    let different: HashSet<&String> = names.iter().collect();
    let more = match load.requests.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = if different.len() == 1 { names[0].clone() } else { names.join(", ") };
    format!("{who}, {how_much} per cell, {names}{more}")
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
    fn headers_are_validated() {
        assert_eq!(header("Accept:  text/html "), Ok(("Accept".into(), "text/html".into())));
        for wrong in ["", "X", ": y", "X Y: z", "X: a\r\nB: c"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }
}
