//! The state of all servers: rows, sums, outliers, versions, the last hour. Pure: reports and the time go in.
//!
//! Contract:
//! 1. A server whose last answer is older than [`FRESH`] intervals does not count in the totals.
//! 2. A server that has left the list stays visible for [`KEPT`]. A server that is still in the list stays,
//!    even if it does not answer.
//! 3. Outliers are judged over [`WINDOW`] to twice that time, so that one slow request in one second does not count.

use super::outliers::{self, Figure};
use control::ControlAddress;
use serde::Serialize;
use stats::{DurationSummary, FineBuckets, Interval, Load, ServerSnapshot, WorkerState};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a server that has left is shown.
pub(crate) const KEPT: Duration = Duration::from_secs(60);
/// The number of intervals after which an answer is old.
const FRESH: u32 = 3;
/// The shortest time over which servers are compared.
const WINDOW: Duration = Duration::from_secs(10);
/// The time between two points of the last hour.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// The points of an hour.
const POINTS: usize = 360;
/// The number of requests from which percentiles of a server are compared.
const ENOUGH: u64 = 20;

/// The state of a server for the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The server does not answer.
    Unreachable,
    /// Queried, but no answer yet.
    Asked,
    /// The server answers.
    Up,
    /// The server has left the list.
    Gone,
}

/// A line about a server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) address: String,
    pub(crate) state: State,
    /// The reason why the server does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Seconds in this state; for a server that is up, seconds since its start.
    pub(crate) for_s: f64,
    pub(crate) version: String,
    pub(crate) dir: String,
    pub(crate) pid: u32,
    /// The generation of the code that new workers run.
    pub(crate) generation: u32,
    /// Workers that take requests, then all workers.
    pub(crate) workers_ready: u32,
    pub(crate) workers: u32,
    /// Workers that run older code than the newest.
    pub(crate) workers_old: u32,
    /// The change under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<String>,
    pub(crate) requests_per_s: f64,
    pub(crate) errors_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) queue: u64,
    pub(crate) busy: u64,
    pub(crate) seats: u64,
    pub(crate) saturation: f64,
    pub(crate) cpus: f64,
    pub(crate) cores: f64,
    pub(crate) pss_bytes: u64,
    pub(crate) memory_limit_bytes: u64,
    pub(crate) restarts: u32,
    /// The values in which the server is an outlier.
    pub(crate) outlier: Vec<String>,
}

/// The sums of all servers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) servers: usize,
    pub(crate) up: usize,
    pub(crate) unreachable: usize,
    pub(crate) requests_per_s: f64,
    #[serde(rename = "4xx_per_s")]
    pub(crate) refused_per_s: f64,
    #[serde(rename = "5xx_per_s")]
    pub(crate) errors_per_s: f64,
    pub(crate) client_gone_per_s: f64,
    pub(crate) total_ms: DurationSummary,
    pub(crate) queue: u64,
    pub(crate) busy: u64,
    pub(crate) seats: u64,
    /// Requests being served and waiting, divided by seats.
    pub(crate) saturation: f64,
    pub(crate) cpus: f64,
    pub(crate) cores: f64,
    pub(crate) pss_bytes: u64,
    pub(crate) restarts: u32,
    pub(crate) connections_open: u64,
}

/// Ten seconds of the last hour.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    /// Milliseconds since the epoch.
    pub(crate) at: u64,
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) refused: u64,
    pub(crate) mean_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) queue: u64,
    pub(crate) busy: u64,
    pub(crate) cpus: f64,
    pub(crate) pss_bytes: u64,
    pub(crate) up: usize,
}

/// The number of servers with one version or generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ServerGroup {
    pub(crate) name: String,
    pub(crate) servers: usize,
}

/// The state of the fleet at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    pub(crate) totals: Totals,
    /// Servers that need attention first, then by address.
    pub(crate) servers: Vec<Row>,
    pub(crate) versions: Vec<ServerGroup>,
    pub(crate) generations: Vec<ServerGroup>,
    /// Sentences about rollouts and about mistakes in the list.
    pub(crate) notices: Vec<String>,
}

/// A snapshot with its time.
type Sample = (Instant, Box<ServerSnapshot>);

/// The state of one server.
struct WatchedServer {
    address: ControlAddress,
    last: Option<Sample>,
    between: Option<Interval>,
    /// The beginning of the window of comparison, and of the next one.
    base: Option<Sample>,
    next_base: Option<Sample>,
    /// The time since when the server does not answer, and the reason.
    failing: Option<(Instant, String)>,
    left: Option<Instant>,
    joined: Instant,
}

/// All servers, and their last hour together.
pub(crate) struct Fleet {
    interval: Duration,
    servers: BTreeMap<String, WatchedServer>,
    list: String,
    points: VecDeque<Point>,
    gathered: Gathered,
}

/// Counts since the last point.
struct Gathered {
    since: Instant,
    requests: u64,
    errors: u64,
    refused: u64,
    times: FineBuckets,
}

impl Gathered {
    fn new(since: Instant) -> Gathered {
        Gathered { since, requests: 0, errors: 0, refused: 0, times: FineBuckets::default() }
    }
}

impl Fleet {
    pub(crate) fn new(interval: Duration, now: Instant) -> Fleet {
        Fleet {
            interval,
            servers: BTreeMap::new(),
            list: String::new(),
            points: VecDeque::new(),
            gathered: Gathered::new(now),
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    pub(crate) fn joined(&mut self, address: ControlAddress, now: Instant) {
        let seen = self.servers.entry(name(&address)).or_insert_with(|| WatchedServer {
            address,
            last: None,
            between: None,
            base: None,
            next_base: None,
            failing: None,
            left: None,
            joined: now,
        });
        seen.left = None;
    }

    pub(crate) fn left(&mut self, address: &ControlAddress, now: Instant) {
        if let Some(seen) = self.servers.get_mut(&name(address)) {
            seen.left = Some(now);
        }
    }

    /// Sets the message about the list; empty if the list is fine.
    pub(crate) fn list(&mut self, wrong: String) {
        self.list = wrong;
    }

    pub(crate) fn sampled(
        &mut self,
        address: &ControlAddress,
        at: Instant,
        answer: Result<Box<ServerSnapshot>, String>,
    ) {
        let Some(seen) = self.servers.get_mut(&name(address)) else { return };
        let server = match answer {
            Err(why) => {
                let since = seen.failing.take().map_or(at, |(since, _)| since);
                seen.failing = Some((since, why));
                seen.between = None;
                return;
            }
            Ok(server) => server,
        };
        seen.failing = None;
        let between = |earlier: &Sample| {
            let seconds = at.saturating_duration_since(earlier.0).as_secs_f64();
            Interval::between(&earlier.1, &server, seconds)
        };
        seen.between = seen.last.as_ref().and_then(between);
        if let Some(between) = &seen.between {
            self.gathered.requests += between.requests.total;
            self.gathered.errors += between.requests.server_errors;
            self.gathered.refused += between.requests.client_errors;
            self.gathered.times.add(&between.total);
        }
        // Another server, or a restarted one, begins a new window.
        if seen.last.is_some() && seen.between.is_none() {
            (seen.base, seen.next_base) = (None, None);
        }
        let sample = (at, server);
        if seen.next_base.as_ref().is_none_or(|(began, _)| at.saturating_duration_since(*began) >= WINDOW) {
            seen.base = seen.next_base.take().or_else(|| Some(sample.clone()));
            seen.next_base = Some(sample.clone());
        }
        seen.last = Some(sample);
    }

    /// Forgets servers that left long ago, and adds to the last hour.
    pub(crate) fn tick(&mut self, now: Instant, wall: SystemTime) {
        self.servers
            .retain(|_, seen| seen.left.is_none_or(|left| now.saturating_duration_since(left) < KEPT));
        let passed = now.saturating_duration_since(self.gathered.since);
        if passed < STEP {
            return;
        }
        let done = std::mem::replace(&mut self.gathered, Gathered::new(now));
        let (totals, times) = (self.totals(now), done.times.summary());
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point {
            at: wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            seconds: passed.as_secs_f64(),
            requests: done.requests,
            errors: done.errors,
            refused: done.refused,
            mean_ms: times.mean,
            p95_ms: times.p95,
            p99_ms: times.p99,
            queue: totals.queue,
            busy: totals.busy,
            cpus: totals.cpus,
            pss_bytes: totals.pss_bytes,
            up: totals.up,
        });
    }

    /// Returns the last hour, oldest point first.
    pub(crate) fn points(&self) -> &VecDeque<Point> {
        &self.points
    }

    pub(crate) fn address(&self, row: &str) -> Option<&ControlAddress> {
        self.servers.get(row).map(|seen| &seen.address)
    }

    /// Returns how many servers have answered twice or failed, and how many are in the list.
    pub(crate) fn answered(&self) -> (usize, usize) {
        let there = || self.servers.values().filter(|seen| seen.left.is_none());
        (there().filter(|seen| seen.between.is_some() || seen.failing.is_some()).count(), there().count())
    }

    fn state(&self, seen: &WatchedServer, now: Instant) -> State {
        let old = |at: Instant| {
            now.saturating_duration_since(at) > self.interval * FRESH + super::patience(self.interval)
        };
        match (&seen.left, &seen.failing, &seen.last) {
            (Some(_), _, _) => State::Gone,
            (_, Some(_), _) => State::Unreachable,
            (_, _, Some((at, _))) if old(*at) => State::Unreachable,
            (_, _, Some(_)) => State::Up,
            (_, _, None) => State::Asked,
        }
    }

    fn up(&self, now: Instant) -> impl Iterator<Item = (&WatchedServer, &ServerSnapshot)> {
        self.servers
            .values()
            .filter(move |seen| self.state(seen, now) == State::Up)
            .filter_map(|seen| Some((seen, &*seen.last.as_ref()?.1)))
    }

    fn totals(&self, now: Instant) -> Totals {
        let states = || self.servers.values().map(|seen| self.state(seen, now));
        let mut totals = Totals {
            servers: states().filter(|state| *state != State::Gone).count(),
            unreachable: states().filter(|state| *state == State::Unreachable).count(),
            ..Totals::default()
        };
        let mut times = FineBuckets::default();
        for (seen, server) in self.up(now) {
            let load = Load::of(server);
            totals.up += 1;
            totals.queue += server.queue.length;
            totals.busy += load.busy;
            totals.seats += load.seats;
            totals.saturation += (load.busy + load.waiting) as f64;
            totals.cores += server.cores;
            totals.pss_bytes += server.total_pss_bytes();
            totals.connections_open += server.front.connections.open;
            let Some(between) = &seen.between else { continue };
            let per_s = |count: u64| between.per_second(count);
            totals.requests_per_s += per_s(between.requests.total);
            totals.refused_per_s += per_s(between.requests.client_errors);
            totals.errors_per_s += per_s(between.requests.server_errors);
            totals.client_gone_per_s += per_s(between.requests.client_gone);
            totals.cpus += between.cpus;
            totals.restarts += between.restarts;
            times.add(&between.total);
        }
        totals.saturation /= totals.seats.max(1) as f64;
        totals.total_ms = times.summary();
        totals
    }

    /// Returns the current state.
    pub(crate) fn view(&self, now: Instant) -> View {
        let marks = self.marks(now);
        let mut servers: Vec<Row> =
            self.servers.iter().map(|(address, seen)| self.row(address, seen, &marks, now)).collect();
        servers.sort_by_key(|row| (row.state, row.outlier.is_empty()));
        let named = |what: &dyn Fn(&ServerSnapshot) -> String| {
            let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
            self.up(now).for_each(|(_, server)| *kinds.entry(what(server)).or_default() += 1);
            kinds.into_iter().rev().map(|(name, servers)| ServerGroup { name, servers }).collect::<Vec<_>>()
        };
        let versions = named(&|server| server.version.clone());
        let generations = named(&|server| (server.phase + 1).to_string());
        let notices = self.notices(&servers, &versions, &generations);
        View { totals: self.totals(now), servers, versions, generations, notices }
    }

    fn row(
        &self,
        address: &str,
        seen: &WatchedServer,
        marks: &BTreeMap<&str, Vec<String>>,
        now: Instant,
    ) -> Row {
        let state = self.state(seen, now);
        let server = seen.last.as_ref().map(|(_, server)| &**server);
        let between = seen.between.as_ref().filter(|_| state == State::Up);
        let load = server.map(Load::of);
        let ago = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
        let why = match (&seen.failing, &seen.last) {
            (Some((_, why)), _) => Some(why.clone()),
            (None, Some(_)) if state == State::Unreachable => Some("it does not respond".to_owned()),
            _ => None,
        };
        let for_s = match state {
            State::Up => server.map_or(0.0, ServerSnapshot::uptime),
            State::Asked => ago(seen.joined),
            State::Gone => seen.left.map_or(0.0, ago),
            State::Unreachable => seen
                .failing
                .as_ref()
                .map(|(since, _)| *since)
                .or(seen.last.as_ref().map(|(at, _)| *at))
                .map_or(0.0, ago),
        };
        let workers = server.map(|server| server.workers.as_slice()).unwrap_or_default();
        let newest = server.map_or(0, |server| server.phase);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Row {
            address: address.to_owned(),
            state,
            why,
            for_s,
            version: server.map(|server| server.version.clone()).unwrap_or_default(),
            dir: server.map(|server| server.dir.clone()).unwrap_or_default(),
            pid: server.map_or(0, |server| server.pid),
            generation: newest + 1,
            workers_ready: count(workers.iter().filter(|worker| worker.state == WorkerState::Ready).count()),
            workers: count(workers.len()),
            workers_old: count(workers.iter().filter(|worker| worker.phase < newest).count()),
            change: server.filter(|_| state == State::Up).and_then(change),
            requests_per_s: between.map_or(0.0, |between| between.per_second(between.requests.total)),
            errors_per_s: between.map_or(0.0, |between| between.per_second(between.requests.server_errors)),
            p50_ms: between.map_or(0.0, |between| between.total_ms.p50),
            p99_ms: between.map_or(0.0, |between| between.total_ms.p99),
            queue: server.map_or(0, |server| server.queue.length),
            busy: load.as_ref().map_or(0, |load| load.busy),
            seats: load.as_ref().map_or(0, |load| load.seats),
            saturation: load.as_ref().map_or(0.0, Load::saturation),
            cpus: between.map_or(0.0, |between| between.cpus),
            cores: server.map_or(0.0, |server| server.cores),
            pss_bytes: server.map_or(0, ServerSnapshot::total_pss_bytes),
            memory_limit_bytes: server.map_or(0, |server| server.memory_limit_bytes),
            restarts: workers.iter().map(|worker| worker.restarts).fold(0, u32::saturating_add),
            outlier: marks.get(address).cloned().unwrap_or_default(),
        }
    }

    /// Returns the values in which servers are outliers, by address.
    fn marks(&self, now: Instant) -> BTreeMap<&str, Vec<String>> {
        let compared: Vec<(&str, &ServerSnapshot, Option<Interval>)> = self
            .servers
            .iter()
            .filter(|(_, seen)| self.state(seen, now) == State::Up)
            .filter_map(|(address, seen)| {
                let (at, server) = seen.last.as_ref()?;
                let window = seen.base.as_ref().and_then(|(began, base)| {
                    Interval::between(base, server, at.saturating_duration_since(*began).as_secs_f64())
                });
                Some((address.as_str(), &**server, window))
            })
            .collect();
        let mut marks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (figure, value, tell) in FIGURES {
            let values: Vec<Option<f64>> =
                compared.iter().map(|(_, server, window)| value(server, window.as_ref())).collect();
            let (median, found) = outliers::find(&values, figure);
            for ((address, _, _), value) in
                compared.iter().zip(&values).zip(found).filter(|(_, found)| *found).map(|(pair, _)| pair)
            {
                marks.entry(address).or_default().push(tell(value.unwrap_or_default(), median));
            }
        }
        marks
    }

    fn notices(&self, servers: &[Row], versions: &[ServerGroup], generations: &[ServerGroup]) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.list.is_empty() {
            notices.push(self.list.clone());
        }
        let told = |kinds: &[ServerGroup], what: &str| {
            let each: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{what}{} on {}", kind.name, super::servers(kind.servers)))
                .collect();
            each.join(", ")
        };
        if versions.len() > 1 {
            notices.push(format!("several versions: {}", told(versions, "")));
        }
        if generations.len() > 1 {
            notices.push(format!("rollout: {}", told(generations, "generation ")));
        }
        let changing = servers.iter().filter(|row| row.change.is_some()).count();
        if changing > 0 {
            let up = servers.iter().filter(|row| row.state == State::Up).count();
            notices.push(format!("{changing} of {} changing just now", super::servers(up)));
        }
        notices
    }
}

/// Returns the name of a server: its address in the form in which it can be typed.
fn name(address: &ControlAddress) -> String {
    let text = address.to_string();
    text.strip_prefix("tcp://").map_or(text.clone(), str::to_owned)
}

/// Describes what interrupts the service of a server, or the change under way in it.
fn change(server: &ServerSnapshot) -> Option<String> {
    if server.maintenance.on {
        return Some("maintenance".to_owned());
    }
    if server.pause.state != stats::PauseState::Off {
        return Some(server.pause.summary());
    }
    let all = [
        ("upgrade", &server.upgrades.running),
        ("reload", &server.reloads.running),
        ("refork", &server.reforks.running),
    ];
    let of = |(name, running): (&str, &Option<stats::Running>)| {
        let running = running.as_ref().filter(|running| running.stage != stats::ReloadStage::Settling)?;
        Some(format!("{name}, {}: {}", running.stage, running.text))
    };
    all.into_iter().find_map(of)
}

type Value = fn(&ServerSnapshot, Option<&Interval>) -> Option<f64>;
type Tell = fn(f64, f64) -> String;

/// The values by which servers are compared.
const FIGURES: [(&Figure, Value, Tell); 4] = [
    (
        &Figure { times: 1.5, more: 10.0 },
        |_, window| window.filter(|window| window.total_ms.count >= ENOUGH).map(|window| window.total_ms.p99),
        |value, median| {
            format!("p99 {} (median {})", crate::number::time(value), crate::number::time(median))
        },
    ),
    (
        &Figure { times: 2.0, more: 0.01 },
        |_, window| {
            let requests = &window.filter(|window| window.requests.total >= ENOUGH)?.requests;
            Some(requests.server_errors as f64 / requests.total as f64)
        },
        |value, median| {
            format!("5xx {} (median {})", crate::number::percent(value), crate::number::percent(median))
        },
    ),
    (
        &Figure { times: 1.5, more: 0.3 },
        |server, _| Some(Load::of(server)).filter(|load| load.seats > 0).map(|load| load.saturation()),
        |value, median| {
            format!(
                "saturation {} (median {})",
                crate::number::percent(value),
                crate::number::percent(median)
            )
        },
    ),
    (
        &Figure { times: 1.3, more: (32 << 20) as f64 },
        |server, _| Some(server.total_pss_bytes() as f64),
        |value, median| {
            format!(
                "memory {} (median {})",
                crate::number::bytes(value as u64),
                crate::number::bytes(median as u64)
            )
        },
    ),
];

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
