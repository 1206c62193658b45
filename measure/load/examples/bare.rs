//! Runs the engine without the command around it, to measure its own cost: `bare URL CONNECTIONS SECONDS
//! THREADS [key=value…]` with `pipeline=16`, `streams=100` (HTTP/2), `rate=500` (open model). Prints requests
//! per second and CPU time per request. Use it under `pidstat`, `perf` or `strace`.

use std::time::Duration;

use load::scenario::{
    Arrivals, Checks, Origin, Protocol, Request, RequestOrder, Scenario, Stage, Stop, Think, Timeouts,
    Traffic, Transport,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, connections, seconds, threads, rest @ ..] = arguments.as_slice() else {
        return Err("usage: bare http://127.0.0.1:8080/ CONNECTIONS SECONDS THREADS [key=value...]".into());
    };
    let given = |key: &str| rest.iter().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let protocol = match (given("streams"), given("pipeline")) {
        (Some(streams), _) => Protocol::Http2 { streams: streams.parse()? },
        (None, depth) => Protocol::Http1 { keep_alive: true, pipeline: depth.map_or(Ok(1), str::parse)? },
    };
    let connections = connections.parse()?;
    let traffic = match given("rate") {
        None => Traffic::Closed { users: connections, think: Think::None },
        Some(rate) => {
            let rate = rate.parse()?;
            let stages = vec![Stage { from: rate, to: rate, duration: None }];
            Traffic::Open { stages, arrivals: Arrivals::Even, connections }
        }
    };
    let address = url.strip_prefix("http://").ok_or("the URL has to begin with http://")?;
    let (authority, path) = address.split_once('/').ok_or("the URL has to have a path")?;
    let (host, port) = authority.rsplit_once(':').ok_or("the URL has to have a port")?;
    let scenario = Scenario {
        requests: vec![Request {
            origin: Origin { tls: false, host: host.to_owned(), port: port.parse()? },
            method: "GET".to_owned(),
            target: format!("/{path}"),
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            weight: 1,
        }],
        order: RequestOrder::InTurn,
        traffic,
        stop: Stop { after: Some(Duration::from_secs_f64(seconds.parse()?)), ..Stop::default() },
        warm_up: Duration::ZERO,
        transport: Transport { protocol, to: None, tls: load::scenario::Tls::default() },
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(30),
            grace: Duration::from_secs(1),
        },
        checks: Checks::default(),
        threads: threads.parse()?,
        cookies: false,
        stages: false,
        journey: None,
        part: load::scenario::Part::default(),
    };
    let outcome = load::run(&scenario, &mut |_| load::Flow::Continue)?;
    #[allow(clippy::cast_precision_loss)]
    let (rate, cost) = (outcome.ok as f64 / outcome.seconds, outcome.cpu_seconds * 1e6 / outcome.ok as f64);
    println!("{rate:.0} requests/s, {cost:.2} us CPU per request, busy {:.0} %", outcome.busy * 100.0);
    println!(
        "p50 {} us, p99 {} us",
        outcome.latency.value_at_quantile(0.5),
        outcome.latency.value_at_quantile(0.99)
    );
    println!("sent {} ok {} errors {:?}", outcome.sent, outcome.ok, outcome.errors);
    Ok(())
}
