//! A cell of the table: a shape, measured in parts until the parts agree.

use load::{Histogram, Progress};
use planner::{Cell, LimitedBy, MemoryPoint, Shape, Times};

use crate::counters::Stages;
use crate::options::Amount;
use crate::running::{Context, Failure, RunningServer};
use crate::server::ServerKind;
use crate::slice::{self, Slice};
use crate::workload::Portion;

/// The thoroughness of a cell's measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// The load of each part.
    pub(crate) portion: Portion,
    /// The smallest number of parts.
    pub(crate) parts: u32,
    /// The largest number of parts.
    pub(crate) most: u32,
    /// More parts are measured while their rates differ by more than this.
    pub(crate) spread: f64,
    /// The load before the first part, which is not counted.
    pub(crate) warm_up: Amount,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct CellResult {
    pub(crate) slices: Vec<Slice>,
    /// The reason why there are no more parts.
    pub(crate) failed: Option<Failure>,
}

impl CellResult {
    /// Returns the relative difference between the rates of the parts.
    pub(crate) fn spread(&self) -> f64 {
        let rates: Vec<f64> = self.slices.iter().map(Slice::rate).collect();
        let (low, high) = rates
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let middle = median(&rates);
        if rates.len() < 2 || middle <= 0.0 { 0.0 } else { (high - low) / middle }
    }

    /// Returns whether another part should be measured.
    pub(crate) fn wants_more(&self, effort: &Effort) -> bool {
        let parts = u32::try_from(self.slices.len()).unwrap_or(u32::MAX);
        self.failed.is_none()
            && parts < effort.most
            && (parts < effort.parts || self.spread() > effort.spread)
    }

    /// Returns the most frequent error.
    pub(crate) fn error_text(&self) -> Option<&str> {
        let texts = self.slices.iter().flat_map(|slice| &slice.error_texts);
        texts.max_by_key(|(_, count)| *count).map(|(text, _)| text.as_str())
    }
}

/// Starts a server once and measures up to `parts` parts of a cell, adding the results to `gathered`.
pub(crate) fn visit(
    context: &Context<'_>,
    kind: ServerKind,
    shape: Shape,
    effort: &Effort,
    parts: u32,
    gathered: &mut CellResult,
    watch: &mut dyn FnMut(&Progress),
) {
    let result = RunningServer::start(context, kind, shape).and_then(|mut running| {
        let mut before = warm_up(context, &mut running, shape, effort, watch)?;
        for _ in 0..parts {
            if !gathered.wants_more(effort) {
                break;
            }
            let slice = slice::measure(context, &mut running, shape, effort.portion, before, watch)?;
            before += slice.requests + slice.errors;
            gathered.slices.push(slice);
            if context.stop.requested() {
                return Err(Failure::Stopped);
            }
        }
        Ok(())
    });
    gathered.failed = gathered.failed.take().or(result.err());
}

/// Warms up every process without counting. Returns the number of requests sent.
fn warm_up(
    context: &Context<'_>,
    running: &mut RunningServer,
    shape: Shape,
    effort: &Effort,
    watch: &mut dyn FnMut(&Progress),
) -> Result<u64, Failure> {
    let amount = match effort.warm_up {
        Amount::Requests(0) => return Ok(0),
        Amount::Time(time) if time.is_zero() => return Ok(0),
        // Each process should have handled a request before counting starts.
        Amount::Requests(requests) => Amount::Requests(requests.max(2 * u64::from(shape.processes))),
        time @ Amount::Time(_) => time,
    };
    let portion = Portion { amount, ..effort.portion };
    Ok(slice::measure(context, running, shape, portion, 0, watch)?.requests)
}

/// Returns the combined results of a cell. `cores` is the number of CPUs available to the server.
pub(crate) fn figures(gathered: &CellResult, shape: Shape, users: u32, cores: f64) -> Cell {
    let slices = &gathered.slices;
    let rates: Vec<f64> = slices.iter().map(Slice::rate).collect();
    let seconds: f64 = slices.iter().map(|slice| slice.seconds).sum();
    let cpu: f64 = slices.iter().map(|slice| slice.cpu_seconds).sum();
    let stages = slices.iter().fold(Stages::default(), |sum, slice| sum.and(slice.stages));
    let mut latency = Histogram::default();
    for slice in slices {
        // All have the same bounds, so this cannot fail.
        let _ = latency.add(&*slice.latency);
    }
    Cell {
        processes: shape.processes,
        threads: shape.threads,
        fibers: shape.fibers,
        users,
        requests: slices.iter().map(|slice| slice.requests).sum(),
        errors: slices.iter().map(|slice| slice.errors).sum(),
        seconds,
        rate_per_s: median(&rates),
        latency_ms: times(&latency),
        app_ms: stages.app.mean(),
        cpu_ms: stages.cpu.mean(),
        gvl_ms: stages.gvl.mean(),
        queue_ms: stages.queue.mean(),
        pss_bytes: slices.iter().map(|slice| slice.peak.pss).max().unwrap_or(0),
        rss_bytes: slices.iter().map(|slice| slice.peak.rss).max().unwrap_or(0),
        memory: last_server(slices.iter().flat_map(|slice| slice.memory.iter().copied()).collect()),
        cpu_cores: (seconds > 0.0).then(|| cpu / seconds),
        cores: Some(cores),
        repeats: u32::try_from(slices.len()).unwrap_or(u32::MAX),
        spread: gathered.spread(),
        limited_by: limited(slices),
        crashed: match &gathered.failed {
            Some(Failure::Crashed(why)) => Some(why.clone()),
            Some(Failure::Stopped) | None => None,
        },
    }
}

/// Returns the memory curve of the last server, because parts may have been measured on different server instances.
fn last_server(points: Vec<MemoryPoint>) -> Vec<MemoryPoint> {
    let begins =
        points.windows(2).rposition(|pair| pair[1].requests < pair[0].requests).map_or(0, |at| at + 1);
    points[begins..].to_vec()
}

/// Returns the cell as it would have been without waiting for CPUs used by other programs, for the diagnosis
/// of a busy machine. Cells with more processes than CPUs compete with themselves and are not corrected.
///
/// A CPU-bound process runs Ruby on one CPU at a time: while that thread waits for a CPU, the whole process
/// stands still. In other processes, each thread waits only for itself.
pub(crate) fn undisturbed(cell: &Cell, starved_seconds: f64) -> Cell {
    let mut cell = cell.clone();
    let (processes, starved) = (f64::from(cell.processes), starved_seconds / cell.seconds);
    let fits = cell.cores.is_some_and(|cores| processes <= cores);
    if cell.limited_by != Some(LimitedBy::Machine) || !fits || !starved.is_finite() {
        return cell;
    }
    let moving = processes - starved;
    let computes = moving > 0.0 && cell.cpu_cores.unwrap_or(0.0) > COMPUTES * moving;
    let users = if cell.users > 0 { cell.users } else { u32::MAX };
    let chains = if computes { processes } else { f64::from(cell.shape().slots().min(users)) };
    let left = 1.0 - (starved / chains).clamp(0.0, 0.95);
    let each = starved_seconds * 1_000.0 / cell.requests.max(1) as f64;
    cell.rate_per_s /= left;
    cell.seconds *= left;
    cell.cpu_cores = cell.cpu_cores.map(|cores| cores / left);
    cell.app_ms = cell.app_ms.map(|ms| (ms - each).max(0.0));
    cell.limited_by = None;
    cell
}

/// The share of a CPU from which a process counts as CPU-bound while it does not wait for one.
const COMPUTES: f64 = 0.8;

/// Returns the limit of most parts.
fn limited(slices: &[Slice]) -> Option<LimitedBy> {
    [LimitedBy::LoadGenerator, LimitedBy::Machine].into_iter().find(|limit| {
        slices.iter().filter(|slice| slice.limited_by == Some(*limit)).count() * 2 > slices.len()
    })
}

fn times(latency: &Histogram) -> Times {
    let ms = |micros: u64| micros as f64 / 1_000.0;
    if latency.is_empty() {
        return Times::default();
    }
    let mean = latency.mean();
    Times {
        mean: mean / 1_000.0,
        cv: if mean > 0.0 { latency.stdev() / mean } else { 0.0 },
        p50: ms(latency.value_at_quantile(0.5)),
        p95: ms(latency.value_at_quantile(0.95)),
        p99: ms(latency.value_at_quantile(0.99)),
    }
}

/// Returns the median; 0 for an empty slice.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (odd, middle) if odd % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::processes::ProcessMemory;

    fn slice(requests: u64, seconds: f64) -> Slice {
        let mut latency = Histogram::default();
        (0..requests).for_each(|n| latency.record(1_000 + n).unwrap());
        Slice {
            requests,
            errors: 1,
            seconds,
            latency,
            stages: Stages::default(),
            cpu_seconds: seconds / 2.0,
            starved_seconds: seconds / 4.0,
            peak: ProcessMemory { pss: requests, rss: 2 * requests },
            memory: Vec::new(),
            limited_by: None,
            error_texts: vec![("refused".to_owned(), 1)],
            redirects: false,
        }
    }

    fn effort(parts: u32, most: u32) -> Effort {
        let portion = Portion { users: 1, amount: Amount::Requests(1), at_most: None };
        Effort { portion, parts, most, spread: 0.1, warm_up: Amount::Requests(0) }
    }

    #[test]
    fn parts_are_repeated_while_they_differ() {
        let gathered = |rates: &[u64]| CellResult {
            slices: rates.iter().map(|rate| slice(*rate, 1.0)).collect(),
            failed: None,
        };
        assert!(gathered(&[100]).wants_more(&effort(2, 5)));
        assert!(!gathered(&[100, 104]).wants_more(&effort(2, 5)));
        assert!(gathered(&[100, 150]).wants_more(&effort(2, 5)));
        assert!(!gathered(&[100, 150]).wants_more(&effort(2, 2)));
        assert!((gathered(&[100, 150, 125]).spread() - 0.4).abs() < 1e-9);
        let failed = CellResult { failed: Some(Failure::Stopped), ..gathered(&[]) };
        assert!(!failed.wants_more(&effort(2, 5)));
    }

    #[test]
    fn results_combine_all_parts() {
        let gathered = CellResult { slices: vec![slice(100, 1.0), slice(300, 2.0)], failed: None };
        let cell = figures(&gathered, Shape::new(2, 5), 30, 2.0);
        assert_eq!((cell.requests, cell.errors, cell.seconds, cell.rate_per_s), (400, 2, 3.0, 125.0));
        assert_eq!((cell.pss_bytes, cell.rss_bytes, cell.cpu_cores, cell.repeats), (300, 600, Some(0.5), 2));
        assert!(cell.latency_ms.p99 >= cell.latency_ms.p50 && cell.latency_ms.p50 >= 1.0);
        assert!(cell.is_valid());
        let crashed = CellResult { failed: Some(Failure::Crashed("oh".to_owned())), ..CellResult::default() };
        assert!(!figures(&crashed, Shape::new(1, 1), 1, 1.0).is_valid());
    }

    #[test]
    fn the_memory_curve_is_that_of_the_last_server() {
        let points = |requests: &[u64]| -> Vec<MemoryPoint> {
            requests.iter().map(|requests| MemoryPoint { requests: *requests, pss_bytes: 1 }).collect()
        };
        assert_eq!(last_server(points(&[10, 300, 20, 310])), points(&[20, 310]));
        assert_eq!(last_server(points(&[10, 300])), points(&[10, 300]));
        assert_eq!(last_server(Vec::new()), Vec::new());
    }

    #[test]
    fn waiting_for_cpus_on_a_busy_machine_is_corrected() {
        let cell = Cell {
            processes: 1,
            requests: 80,
            seconds: 1.0,
            rate_per_s: 80.0,
            cores: Some(2.0),
            cpu_cores: Some(0.32),
            app_ms: Some(12.5),
            limited_by: Some(LimitedBy::Machine),
            ..Cell::default()
        };
        let calm = undisturbed(&cell, 0.68);
        assert!(
            (calm.rate_per_s - 250.0).abs() < 1e-6 && (calm.cpu_cores.unwrap() - 1.0).abs() < 1e-6,
            "{calm:?}"
        );
        assert!((calm.app_ms.unwrap() - 4.0).abs() < 1e-6 && calm.is_valid());
        let waiting = Cell { threads: 8, users: 30, rate_per_s: 350.0, cpu_cores: Some(0.1), ..cell.clone() };
        assert!(
            (undisturbed(&waiting, 0.8).rate_per_s - 350.0 / 0.9).abs() < 1e-6,
            "each thread waits for itself"
        );
        let crowd = Cell { processes: 10, ..cell.clone() };
        assert_eq!(undisturbed(&crowd, 5.0), crowd, "they compete with themselves");
        let alone = Cell { limited_by: None, ..cell };
        assert_eq!(undisturbed(&alone, 0.5), alone);
    }

    #[test]
    fn medians() {
        assert_eq!(
            [median(&[]), median(&[3.0]), median(&[4.0, 1.0]), median(&[9.0, 1.0, 2.0])],
            [0.0, 3.0, 2.5, 2.0]
        );
    }
}
