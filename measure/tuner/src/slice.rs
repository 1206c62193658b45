//! One part of a cell: a load on a running server, and the measurements during it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use load::{Flow, Histogram, Outcome, Progress};
use planner::{LimitedBy, MemoryPoint, Shape};

use crate::counters::{Stages, Sum};
use crate::processes::{ProcessMemory, ServerProcesses};
use crate::running::{Context, Failure, RunningServer};
use crate::server::ServerKind;
use crate::workload::{Portion, scenario};

/// The interval at which memory is sampled; longer if sampling takes long.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Sampling takes at most one part in this many of the time.
const SHARE_OF_LOOKS: u32 = 40;
/// The longest wait for responses in flight after the user asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// The load generator is the bottleneck if it uses more of its threads' CPU time than this.
const BUSY: f64 = 0.9;
/// A machine with less idle time than this is saturated.
const IDLE: f64 = 0.05;
/// Other programs are the bottleneck if they use more of the machine than this,
const OTHERS: f64 = 0.15;
/// and each server process waits for a CPU for more of its time than this.
const STARVED: f64 = 0.1;

#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram,
    pub(crate) stages: Stages,
    /// The CPU time of all processes of the server, in seconds.
    pub(crate) cpu_seconds: f64,
    /// The time for which its threads were runnable without a CPU, in seconds.
    pub(crate) starved_seconds: f64,
    pub(crate) peak: ProcessMemory,
    pub(crate) memory: Vec<MemoryPoint>,
    pub(crate) limited_by: Option<LimitedBy>,
    /// The error texts, most frequent first.
    pub(crate) error_texts: Vec<(String, u64)>,
    /// Whether some responses were redirects (3xx).
    pub(crate) redirects: bool,
}

impl Slice {
    /// Returns the successful responses per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// Loads a server. `before` is the number of requests that it has handled so far; `watch` receives the progress.
///
/// # Errors
/// The server exited or lost workers, or the user asked to stop before there were results.
pub(crate) fn measure(
    context: &Context<'_>,
    running: &mut RunningServer,
    shape: Shape,
    portion: Portion,
    before: u64,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Slice, Failure> {
    let wants_stages = running.kind == ServerKind::Firebrick;
    let scenario = scenario(&context.options.load, portion, running.port, wants_stages);
    let (counters, ticks, cpu, sched_times) = (
        running.counters(),
        sys::machine::ticks(),
        running.processes().cpu(),
        running.processes().sched_times(),
    );
    let mut memory = MemorySampler::new(running.processes().clone(), before);
    let over = Arc::new(AtomicBool::new(false));
    let mut stopping = false;
    let mut exit = None;
    let outcome = context.cpus.for_load(|| {
        load::run(&scenario, &mut |progress| {
            watch(progress);
            memory.look(progress.sent);
            if context.stop.requested() && !std::mem::replace(&mut stopping, true) {
                end_soon(running.processes().clone(), Arc::clone(&over));
            }
            exit = exit.take().or_else(|| running.ended());
            if stopping || exit.is_some() { Flow::Stop } else { Flow::Continue }
        })
    });
    over.store(true, Ordering::Relaxed);
    let exit = exit.or_else(|| running.ended());
    if let Some(how) = exit.filter(|_| !stopping) {
        return Err(running.crashed(&format!("exited under load ({how})")));
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(_) if stopping => return Err(Failure::Stopped),
        Err(why) => return Err(running.crashed(&format!("cannot load the server: {why}"))),
    };
    memory.last(outcome.sent);
    let now = running.counters();
    if let (Some(now), Some(then)) = (&now, &counters)
        && now.lost_since(then) > 0
        && !stopping
    {
        let lost = now.lost_since(then);
        return Err(running.crashed(&format!("{lost} of its {} workers exit under load", then.workers)));
    }
    let stages = match (&outcome.stages, now, counters) {
        (Some(stages), ..) if stages.reported > 0 => by_request(stages),
        (_, Some(now), Some(then)) => now.since(&then),
        _ => Stages::default(),
    };
    let (ran, starved) = running.processes().sched_times().since(&sched_times);
    // One value lacks threads that have exited, the other lacks processes that were not reaped.
    let cpu_seconds = running.processes().cpu().saturating_sub(cpu).max(ran).as_secs_f64();
    let starved_seconds = starved.as_secs_f64();
    let shares = Shares {
        ticks,
        cpu_seconds,
        starved_seconds,
        seconds: outcome.seconds,
        processes: f64::from(shape.processes),
        divided: context.cpus.server < context.cpus.all,
    };
    let slice = Slice {
        requests: outcome.ok,
        errors: if stopping { 0 } else { errors(&outcome) },
        seconds: outcome.seconds,
        stages,
        cpu_seconds,
        starved_seconds,
        peak: memory.peak,
        memory: memory.points,
        limited_by: limit(&outcome, &shares),
        error_texts: texts(&outcome),
        redirects: outcome.statuses.iter().any(|(status, count)| (300..400).contains(status) && *count > 0),
        latency: outcome.latency,
    };
    if stopping && slice.requests == 0 { Err(Failure::Stopped) } else { Ok(slice) }
}

/// Kills the server if requests are still in flight after a while.
fn end_soon(processes: ServerProcesses, over: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let began = Instant::now();
        while began.elapsed() < STOP_TIMEOUT {
            if over.load(Ordering::Relaxed) {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        if !over.load(Ordering::Relaxed) {
            processes.signal(rustix::process::Signal::KILL);
        }
    });
}

struct MemorySampler {
    processes: ServerProcesses,
    before: u64,
    next: Instant,
    peak: ProcessMemory,
    points: Vec<MemoryPoint>,
}

impl MemorySampler {
    fn new(processes: ServerProcesses, before: u64) -> MemorySampler {
        MemorySampler {
            processes,
            before,
            next: Instant::now() + SAMPLE_INTERVAL / 2,
            peak: ProcessMemory::default(),
            points: Vec::new(),
        }
    }

    fn look(&mut self, requests: u64) {
        if Instant::now() >= self.next {
            self.last(requests);
        }
    }

    fn last(&mut self, requests: u64) {
        let began = Instant::now();
        let memory = self.processes.memory();
        self.next = Instant::now() + SAMPLE_INTERVAL.max(began.elapsed() * SHARE_OF_LOOKS);
        self.peak = ProcessMemory { pss: self.peak.pss.max(memory.pss), rss: self.peak.rss.max(memory.rss) };
        if memory.pss > 0 {
            self.points.push(MemoryPoint { requests: self.before + requests, pss_bytes: memory.pss });
        }
    }
}

/// Returns the sums over all responses with timings.
fn by_request(stages: &load::outcome::Stages) -> Stages {
    let mut all = Stages::default();
    for band in &stages.bands {
        let of = |micros: u64, count: u64| Sum { count: count as f64, total: micros as f64 / 1_000.0 };
        all = all.and(Stages {
            app: of(band.app, band.count),
            queue: of(band.queue, band.count),
            cpu: of(band.cpu.0, band.cpu.1),
            gvl: of(band.gvl.0, band.gvl.1),
        });
    }
    all
}

fn errors(outcome: &Outcome) -> u64 {
    let e = &outcome.errors;
    e.connect
        + e.connect_timeout
        + e.write
        + e.read
        + e.timeout
        + e.status
        + e.length
        + e.body
        + e.cut_off
        + e.unsent
}

fn texts(outcome: &Outcome) -> Vec<(String, u64)> {
    let mut texts: Vec<(String, u64)> = outcome.errors.texts.clone().into_iter().collect();
    texts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    texts
}

/// The use of the CPUs.
struct Shares {
    ticks: Option<(u64, u64)>,
    cpu_seconds: f64,
    starved_seconds: f64,
    seconds: f64,
    processes: f64,
    divided: bool,
}

fn limit(outcome: &Outcome, shares: &Shares) -> Option<LimitedBy> {
    if outcome.busy > BUSY {
        return Some(LimitedBy::LoadGenerator);
    }
    let ((idle_before, all_before), (idle, all)) = (shares.ticks?, sys::machine::ticks()?);
    let all = all.saturating_sub(all_before) as f64;
    let hz = rustix::param::clock_ticks_per_second() as f64;
    if all <= 0.0 || shares.seconds <= 0.0 {
        return None;
    }
    bottleneck(&Used {
        idle: idle.saturating_sub(idle_before) as f64 / all,
        server: shares.cpu_seconds * hz / all,
        load: outcome.cpu_seconds * hz / all,
        starved: shares.starved_seconds / shares.seconds / shares.processes,
        divided: shares.divided,
    })
}

/// Shares of the machine's CPU time, and the share of each process's time that it waits for a CPU.
struct Used {
    idle: f64,
    server: f64,
    load: f64,
    starved: f64,
    divided: bool,
}

fn bottleneck(used: &Used) -> Option<LimitedBy> {
    let others = 1.0 - used.idle - used.server - used.load;
    if used.idle >= IDLE {
        None
    } else if others > OTHERS && used.starved > STARVED {
        Some(LimitedBy::Machine)
    } else if used.load > 0.3 && !used.divided {
        Some(LimitedBy::LoadGenerator)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bottlenecks() {
        let used = |idle, server, load, starved| Used { idle, server, load, starved, divided: false };
        assert_eq!(bottleneck(&used(0.4, 0.5, 0.05, 0.0)), None, "CPU was idle");
        assert_eq!(bottleneck(&used(0.01, 0.92, 0.05, 0.5)), None, "the server used the CPU");
        assert_eq!(
            bottleneck(&used(0.01, 0.5, 0.05, 0.4)),
            Some(LimitedBy::Machine),
            "others used nearly half"
        );
        assert_eq!(
            bottleneck(&used(0.01, 0.05, 0.05, 0.02)),
            None,
            "others used nearly all, but the server did not need it"
        );
        assert_eq!(bottleneck(&used(0.01, 0.6, 0.38, 0.2)), Some(LimitedBy::LoadGenerator));
        let divided = Used { divided: true, ..used(0.01, 0.5, 0.45, 0.0) };
        assert_eq!(bottleneck(&divided), None, "each had CPUs of its own");
    }

    #[test]
    fn bands_are_summed() {
        let band =
            |count, app, cpu| load::outcome::Band { count, app, cpu, ..load::outcome::Band::default() };
        let stages = load::outcome::Stages {
            reported: 3,
            bands: vec![band(1, 2_000, (500, 1)), band(2, 10_000, (0, 0))],
        };
        let all = by_request(&stages);
        assert_eq!((all.app.mean(), all.cpu.mean(), all.gvl.mean()), (Some(4.0), Some(0.5), None));
    }
}
