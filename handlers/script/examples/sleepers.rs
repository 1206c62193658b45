//! Runs many requests in `sleep` at the same time, without a network: `sleepers [REQUESTS [SECONDS]]`;
//! default 100,000 for 5 s.
//!
//! Prints the time of the slowest request, the memory that the requests hold while they sleep, and the time
//! of another request meanwhile.

#[path = "../tests/it/support/mod.rs"]
mod support;

use script::{HandlerSource, RouteLimits};
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::{Server, Visitor};

type Failed = Box<dyn std::error::Error>;

fn limits() -> RouteLimits {
    RouteLimits {
        request_heap: 64 << 20,
        step_time: Some(Duration::from_secs(5)),
        deadline: Some(Duration::from_secs(120)),
        max_tasks: 10_000_000,
        max_body: 0,
        reproxy: false,
    }
}

/// Returns the memory of this process in bytes.
fn resident() -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

async fn run(requests: usize, seconds: f64) -> Result<(), Failed> {
    let code = format!(
        "lambda do |env|\n  return [200, {{}}, ['Hello']] if env['PATH_INFO'] == '/'\n  sleep {seconds}\n  [200, {{}}, ['slept']]\nend\n"
    );
    let server = Server::open(HandlerSource { file: "sleepers.rb".into(), code }, limits()).await;
    let client = Rc::new(Visitor::default());
    let (empty, begun) = (resident()?, Instant::now());
    let mut sleeping = Vec::with_capacity(requests);
    for number in 0..requests {
        let (answer, came) = (server.get("/sleep", &Rc::new(Visitor::default())), Instant::now());
        sleeping.push(tokio::task::spawn_local(async move { (answer.await.status, came.elapsed()) }));
        if number % 100 == 99 {
            tokio::task::yield_now().await;
        }
    }
    tokio::task::yield_now().await;
    println!("{requests} requests came within {:.3?}", begun.elapsed());
    println!("{:.3} KiB of memory each", (resident()? - empty) as f64 / 1024.0 / requests as f64);
    let mut beside = Vec::new();
    while begun.elapsed().as_secs_f64() < seconds {
        let at = Instant::now();
        if server.get("/", &client).await.status != 200 {
            return Err(server.log.borrow().first().cloned().unwrap_or_default().into());
        }
        beside.push(at.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut slowest = Duration::ZERO;
    for answer in sleeping {
        let (status, took) = answer.await?;
        if status != 200 {
            return Err(server.log.borrow().first().cloned().unwrap_or_default().into());
        }
        slowest = slowest.max(took);
    }
    println!("slowest: {slowest:.3?}; all done after {:.3?}", begun.elapsed());
    beside.sort_unstable();
    if let (Some(p99), Some(most)) = (beside.get(beside.len() * 99 / 100), beside.last()) {
        println!("a request beside them: p99 {p99:.3?}, longest {most:.3?}");
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let requests = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let seconds = args.next().map_or(Ok(5.0), |text| text.parse())?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())?
        .block_on(run(requests, seconds))
}
