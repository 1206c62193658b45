//! One part of a cell: a load against a server that runs, and what it did meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use load::{Histogram, Outcome, Progress, Verdict};
use planner::{Limit, MemoryPoint, Shape};

use crate::asked::{Portion, plan};
use crate::counters::{Stages, Sum};
use crate::processes::{Family, Memory, machine_ticks};
use crate::running::{Failed, Ground, Running};
use crate::server::Kind;

/// Memory is looked at this often, more rarely when a look takes long.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A look may take this share of the time between looks.
const SHARE_OF_LOOKS: u32 = 40;
/// Whoever wants to end does not wait longer than this for answers that are under way.
const PATIENCE: Duration = Duration::from_secs(2);
/// The load generator is the limit when it uses more of its threads than this.
const BUSY: f64 = 0.9;
/// A machine with less idle time than this has none.
const IDLE: f64 = 0.05;
/// Others count as a limit when they take more of the machine than this,
const OTHERS: f64 = 0.15;
/// and a process of the server waits for a CPU for more of its time than this.
const STARVED: f64 = 0.1;

/// What was seen.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram,
    pub(crate) stages: Stages,
    /// CPU time of all processes of the server, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Time that its threads were ready to run and got no CPU, in seconds.
    pub(crate) starved_seconds: f64,
    pub(crate) peak: Memory,
    pub(crate) memory: Vec<MemoryPoint>,
    pub(crate) limited_by: Option<Limit>,
    /// The texts of errors, most frequent first.
    pub(crate) error_texts: Vec<(String, u64)>,
    /// Whether answers lead elsewhere (3xx).
    pub(crate) redirects: bool,
}

impl Slice {
    /// Right answers per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.requests as f64 / self.seconds } else { 0.0 }
    }
}

/// Loads a server. `before` is how many requests it has answered so far; `watch` sees the progress.
///
/// # Errors
/// When the server ended or lost workers, or somebody wants us to end and there is nothing to keep.
pub(crate) fn measure(
    ground: &Ground<'_>,
    running: &mut Running,
    shape: Shape,
    portion: Portion,
    before: u64,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Slice, Failed> {
    let stages = running.kind == Kind::Firebrick;
    let plan = plan(&ground.options.asking, portion, running.port, stages);
    let (counters, ticks, cpu, turns) =
        (running.counters(), machine_ticks(), running.family().cpu(), running.family().turns());
    let mut looks = Looks::new(running.family().clone(), before);
    let over = Arc::new(AtomicBool::new(false));
    let mut impatient = false;
    let mut died = None;
    let outcome = ground.cpus.for_load(|| {
        load::run(&plan, &mut |progress| {
            watch(progress);
            looks.look(progress.sent);
            if ground.stop.wanted() && !std::mem::replace(&mut impatient, true) {
                end_soon(running.family().clone(), Arc::clone(&over));
            }
            died = died.take().or_else(|| running.ended());
            if impatient || died.is_some() { Verdict::End } else { Verdict::Go }
        })
    });
    over.store(true, Ordering::Relaxed);
    let died = died.or_else(|| running.ended());
    if let Some(how) = died.filter(|_| !impatient) {
        return Err(running.crashed(&format!("it ended under load ({how})")));
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(_) if impatient => return Err(Failed::Stopped),
        Err(why) => return Err(running.crashed(&format!("it could not be loaded: {why}"))),
    };
    looks.last(outcome.sent);
    let now = running.counters();
    if let (Some(now), Some(then)) = (&now, &counters)
        && now.lost_since(then) > 0
        && !impatient
    {
        let lost = now.lost_since(then);
        return Err(running.crashed(&format!("{lost} of its {} workers died under load", then.workers)));
    }
    let told = match (&outcome.stages, now, counters) {
        (Some(stages), ..) if stages.told > 0 => by_request(stages),
        (_, Some(now), Some(then)) => now.since(&then),
        _ => Stages::default(),
    };
    let (ran, starved) = running.family().turns().since(&turns);
    // Threads that ended are in the one figure, processes that nobody waited for in the other.
    let cpu_seconds = running.family().cpu().saturating_sub(cpu).max(ran).as_secs_f64();
    let starved_seconds = starved.as_secs_f64();
    let shares = Shares {
        ticks,
        cpu_seconds,
        starved_seconds,
        seconds: outcome.seconds,
        processes: f64::from(shape.processes),
        divided: ground.cpus.server < ground.cpus.all,
    };
    let slice = Slice {
        requests: outcome.ok,
        errors: if impatient { 0 } else { errors(&outcome) },
        seconds: outcome.seconds,
        stages: told,
        cpu_seconds,
        starved_seconds,
        peak: looks.peak,
        memory: looks.points,
        limited_by: limit(&outcome, &shares),
        error_texts: texts(&outcome),
        redirects: outcome.statuses.iter().any(|(status, count)| (300..400).contains(status) && *count > 0),
        latency: outcome.latency,
    };
    if impatient && slice.requests == 0 { Err(Failed::Stopped) } else { Ok(slice) }
}

/// What is still under way after a while is broken off.
fn end_soon(family: Family, over: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if over.load(Ordering::Relaxed) {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        if !over.load(Ordering::Relaxed) {
            family.signal(rustix::process::Signal::KILL);
        }
    });
}

/// Looks at memory.
struct Looks {
    family: Family,
    before: u64,
    next: Instant,
    peak: Memory,
    points: Vec<MemoryPoint>,
}

impl Looks {
    fn new(family: Family, before: u64) -> Looks {
        Looks {
            family,
            before,
            next: Instant::now() + LOOK_EVERY / 2,
            peak: Memory::default(),
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
        let memory = self.family.memory();
        self.next = Instant::now() + LOOK_EVERY.max(began.elapsed() * SHARE_OF_LOOKS);
        self.peak = Memory { pss: self.peak.pss.max(memory.pss), rss: self.peak.rss.max(memory.rss) };
        if memory.pss > 0 {
            self.points.push(MemoryPoint { requests: self.before + requests, pss_bytes: memory.pss });
        }
    }
}

/// Sums over all answers that told.
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

/// Who used the machine.
struct Shares {
    ticks: Option<(u64, u64)>,
    cpu_seconds: f64,
    starved_seconds: f64,
    seconds: f64,
    processes: f64,
    divided: bool,
}

fn limit(outcome: &Outcome, shares: &Shares) -> Option<Limit> {
    if outcome.busy > BUSY {
        return Some(Limit::LoadGenerator);
    }
    let ((idle_before, all_before), (idle, all)) = (shares.ticks?, machine_ticks()?);
    let all = all.saturating_sub(all_before) as f64;
    let hz = rustix::param::clock_ticks_per_second() as f64;
    if all <= 0.0 || shares.seconds <= 0.0 {
        return None;
    }
    judged(&Used {
        idle: idle.saturating_sub(idle_before) as f64 / all,
        server: shares.cpu_seconds * hz / all,
        load: outcome.cpu_seconds * hz / all,
        starved: shares.starved_seconds / shares.seconds / shares.processes,
        divided: shares.divided,
    })
}

/// Shares of the machine's time, and of each process's time that it waited for a CPU.
struct Used {
    idle: f64,
    server: f64,
    load: f64,
    starved: f64,
    divided: bool,
}

fn judged(used: &Used) -> Option<Limit> {
    let others = 1.0 - used.idle - used.server - used.load;
    if used.idle >= IDLE {
        None
    } else if others > OTHERS && used.starved > STARVED {
        Some(Limit::Machine)
    } else if used.load > 0.3 && !used.divided {
        Some(Limit::LoadGenerator)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_the_limit() {
        let used = |idle, server, load, starved| Used { idle, server, load, starved, divided: false };
        assert_eq!(judged(&used(0.4, 0.5, 0.05, 0.0)), None, "there was CPU left");
        assert_eq!(judged(&used(0.01, 0.92, 0.05, 0.5)), None, "the server had the machine for itself");
        assert_eq!(judged(&used(0.01, 0.5, 0.05, 0.4)), Some(Limit::Machine), "others took nearly half");
        assert_eq!(
            judged(&used(0.01, 0.05, 0.05, 0.02)),
            None,
            "others took nearly all, and the server did not want it"
        );
        assert_eq!(judged(&used(0.01, 0.6, 0.38, 0.2)), Some(Limit::LoadGenerator));
        let divided = Used { divided: true, ..used(0.01, 0.5, 0.45, 0.0) };
        assert_eq!(judged(&divided), None, "each had CPUs of its own");
    }

    #[test]
    fn bands_are_added_up() {
        let band =
            |count, app, cpu| load::outcome::Band { count, app, cpu, ..load::outcome::Band::default() };
        let stages =
            load::outcome::Stages { told: 3, bands: vec![band(1, 2_000, (500, 1)), band(2, 10_000, (0, 0))] };
        let all = by_request(&stages);
        assert_eq!((all.app.mean(), all.cpu.mean(), all.gvl.mean()), (Some(4.0), Some(0.5), None));
    }
}
