//! Connection pools against threads, and their sum against the database's limit.
//!
//! A pool of Active Record belongs to a process: each thread or fiber that uses the database takes a connection from it, and waits five
//! seconds for one before it raises `ActiveRecord::ConnectionTimeoutError`.

use settings::{Pool, Settings};

use super::super::facts::{ConnectionPool, DeployFacts};
use super::super::finding::DeployFinding;
use super::counted;

const QUESTION: &str = "database";

/// The largest number of requests that a worker serves at a time, with the words for it.
struct WorkerSeats {
    number: u64,
    threads: u64,
    text: String,
}

pub(super) fn database(facts: &DeployFacts) -> Vec<DeployFinding> {
    let Some(Ok(answer)) = &facts.ruby else { return Vec::new() };
    if let Some(why) = &answer.pools_error {
        return vec![
            DeployFinding::red(QUESTION, format!("the pools cannot be read: {why}"))
                .with("error", why.as_str())
                .paste("config/database.yml", "pool: <%= ENV.fetch(\"RAILS_MAX_THREADS\", 5) %>"),
        ];
    }
    let seats = seats(&facts.settings);
    let mut findings: Vec<DeployFinding> =
        answer.pools.iter().map(|pool| against_threads(pool, &seats, facts)).collect();
    findings.extend(against_database(&answer.pools, &seats, facts));
    findings
}

/// Returns the seats of the worker that has most of them.
fn seats(settings: &Settings) -> WorkerSeats {
    let mut own = settings.default_pool();
    // With an objective the server never uses more threads than there are connections, except for those of the start.
    if let Some(shape) = settings.shape {
        own.threads.max = own.threads.max.min(shape.start);
    }
    let most = std::iter::once(&own).chain(&settings.pools).map(of_pool).max_by_key(|seats| seats.number);
    most.unwrap_or_else(|| of_pool(&own))
}

fn of_pool(pool: &Pool) -> WorkerSeats {
    let threads = u64::from(pool.threads.max);
    match pool.fibers {
        0 => WorkerSeats { number: threads, threads, text: counted(threads, "thread") },
        fibers => {
            let number = threads * u64::from(fibers);
            WorkerSeats { number, threads, text: counted(number, "fiber") }
        }
    }
}

fn against_threads(pool: &ConnectionPool, seats: &WorkerSeats, facts: &DeployFacts) -> DeployFinding {
    let ConnectionPool { name, adapter, size, origin } = pool;
    let seat_text = &seats.text;
    let Some(size) = size else {
        return DeployFinding::green(
            QUESTION,
            format!("{name} ({adapter}): only the app knows the size of its pool; a worker has {seat_text}"),
        )
        .with("pool", name.as_str())
        .with("seats", seats.number);
    };
    let connections = counted((*size).into(), "connection");
    let text = format!("{name} ({adapter}): {connections} ({origin}) for {seat_text} of a worker");
    let finding = if u64::from(*size) >= seats.number {
        DeployFinding::green(QUESTION, text)
    } else {
        let text = format!("{text}: the others wait and fail after 5 s");
        // Fibers that wait for something else than the database need no connection.
        let finding = if u64::from(*size) < seats.threads {
            DeployFinding::red(QUESTION, text)
        } else {
            DeployFinding::yellow(QUESTION, text)
        };
        match origin.as_str() {
            "DATABASE_URL" => finding.paste("environment", format!("DATABASE_URL=…?pool={}", seats.number)),
            _ => finding.paste("config/database.yml", format!("pool: {}", seats.number)),
        }
    };
    let workers = facts.settings.workers.max;
    finding
        .with("pool", name.as_str())
        .with("size", *size)
        .with("seats", seats.number)
        .with("workers", workers)
}

/// Compares the connections that all workers can open with the limit of the database.
fn against_database(
    pools: &[ConnectionPool],
    seats: &WorkerSeats,
    facts: &DeployFacts,
) -> Option<DeployFinding> {
    let limit = facts.database_limit?;
    let settings = &facts.settings;
    // Several pools of one app may lead to one database; SQLite has no connections.
    let each: u64 = pools
        .iter()
        .filter(|pool| !pool.adapter.starts_with("sqlite"))
        .map(|pool| pool.size.map_or(seats.number, |size| u64::from(size).min(seats.number)))
        .sum();
    let each = if pools.is_empty() { seats.number } else { each };
    let workers = super::all_workers(settings);
    // A new worker starts before the old one ends.
    let (most, reloading) = (workers * each, (workers + 1) * each);
    let counts = format!("{} x {}", counted(workers, "worker"), counted(each, "connection"));
    let finding = if most > limit.into() {
        DeployFinding::red(QUESTION, format!("{counts} are {most}, and the database accepts {limit}"))
    } else if reloading > limit.into() {
        DeployFinding::yellow(
            QUESTION,
            format!(
                "{counts} are {most}, and {reloading} while a worker is replaced: the database accepts {limit}"
            ),
        )
    } else {
        DeployFinding::green(QUESTION, format!("{counts} are {most} of {limit} that the database accepts"))
    };
    let finding = if most > limit.into() || reloading > limit.into() {
        let fitting = (u64::from(limit) / each.max(1)).saturating_sub(1).max(1);
        finding.paste_line(super::set(facts, "workers", &fitting.to_string()))
    } else {
        finding
    };
    Some(
        finding
            .with("connections", most)
            .with("while_a_worker_is_replaced", reloading)
            .with("database_connections", limit),
    )
}
