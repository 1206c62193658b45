//! Answers the questions about a new release: what it is, whether memory has room for it, whether its first
//! worker responds, and whether that worker does as well as the old ones. [`crate::trial`] judges the figures.

use super::*;
use crate::call::{Call, CallBody, CallState};
use crate::local::Local;
use crate::own_request;
use crate::process::ReleaseId;
use crate::reconciler::Plan;
use crate::reply::ReplyEvent;
use crate::spawner::BootConfig;
use crate::trial::{Figures, MemoryTrend, ProcessorWaits, ShareGrowth, Weighed, verdict, weigh_pair};
use handler::Trace;
use queue::Tally;
use settings::{Machine, OnDifference};
use std::future::poll_fn;
use std::rc::Rc;

/// The interval between two comparisons of the routes.
const COMPARING: Duration = Duration::from_millis(200);
/// How long the memory check waits for the end of a template.
const ENDING: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Trials {
    /// The pid of the template that was ended last.
    ending: Option<u32>,
    probe: Option<Probe>,
    /// The requests that each worker had served when the comparison began.
    begun: BTreeMap<Serial, Tally>,
    /// The share of the worker on trial; `None` without one.
    growth: Option<ShareGrowth>,
    memory: MemoryTrend,
    waits: ProcessorWaits,
    /// Whether a route was suspicious when the routes were compared last.
    is_suspicious: bool,
    /// When the routes are compared next.
    compares_at: Option<Instant>,
}

/// The requests that the worker on trial must answer.
struct Probe {
    serial: Serial,
    /// The current path and those after it.
    targets: VecDeque<String>,
    /// Whether the paths come from `reload.probe`. Otherwise they are guesses, which may be wrong.
    configured: bool,
    answered: Vec<String>,
}

impl Probe {
    /// Takes the response to the current path.
    fn answered(&mut self, result: Result<u16, String>) -> Result<(), String> {
        let Some(target) = self.targets.pop_front() else { return Ok(()) };
        // A guessed path may not exist or may need authentication.
        let allowed = if self.configured { 400 } else { 500 };
        match result {
            Ok(404) if !self.configured => {
                self.answered.push(format!("GET {target} returned 404 (ignored; set `reload.probe`)"));
            }
            Ok(status) if status < allowed => self.answered.push(format!("GET {target} returned {status}")),
            Ok(status) => return Err(format!("GET {target} returned {status}")),
            Err(why) => return Err(format!("GET {target}: {why}")),
        }
        Ok(())
    }
}

impl Trials {
    /// Records that the template with this pid is ending.
    pub(super) fn ending(&mut self, pid: u32) {
        self.ending = Some(pid).filter(|pid| *pid > 0);
    }

    /// Starts the comparison from these totals.
    fn watch(&mut self, tallies: BTreeMap<Serial, Tally>, growth: ShareGrowth, waits: ProcessorWaits) {
        (self.begun, self.growth, self.compares_at) = (tallies, Some(growth), None);
        self.waits = waits;
        (self.memory, self.is_suspicious) = (MemoryTrend::default(), false);
    }

    /// Returns whether it is time to compare the routes, which costs more than looking at totals.
    fn compares(&mut self, now: Instant, over: bool) -> bool {
        let due = over || self.compares_at.is_none_or(|at| at <= now);
        if due {
            self.compares_at = Some(now + COMPARING);
        }
        due
    }

    /// Returns what worker `new`, and all others, have served since the comparison began.
    fn since(&self, new: Serial, now: &BTreeMap<Serial, Tally>) -> [Tally; 2] {
        let since =
            |(serial, tally): (&Serial, &Tally)| *tally - self.begun.get(serial).copied().unwrap_or_default();
        [true, false].map(|is_new| now.iter().filter(|one| (*one.0 == new) == is_new).map(since).sum())
    }
}

impl Supervisor {
    /// Reads a new release. The plan of its reload is that of the settings in force.
    pub(super) fn read(&mut self, release: ReleaseId) -> Result<Plan, String> {
        self.options.releases.read(release, self.reconciler.wish().release)?;
        let settings = self.options.settings.borrow();
        let reload = &settings.reload;
        if settings.process.environment == "development" {
            return Ok(Plan { step: reload.step, ..Plan::default() });
        }
        let watch = Some(reload.watch).filter(|_| reload.share > 0);
        let shadow = Some(reload.shadow).filter(|time| !time.is_zero());
        Ok(Plan { probe: true, shadow, watch, share: reload.share, step: reload.step, keep: reload.keep })
    }

    /// Returns how to start a template of a release.
    pub(super) fn boot_config(&self, release: ReleaseId) -> Result<BootConfig, String> {
        let in_force = &self.options.boot;
        if in_force.release == release {
            return Ok(in_force.clone());
        }
        let boot = self.options.releases.boot_config(release)?;
        Ok(BootConfig { unlink: in_force.unlink.clone(), ..boot })
    }

    /// Starts templates of this release from now on.
    pub(super) fn publish(&mut self, release: ReleaseId) {
        if self.options.boot.release == release {
            return;
        }
        match self.boot_config(release) {
            Ok(boot) => self.options.boot = boot,
            Err(why) => self.log(format!("release {release} serves, but cannot be started again: {why}")),
        }
    }

    /// Measures the memory that a reload needs, on another thread, because the measurement takes
    /// milliseconds.
    pub(super) fn weigh_memory(&mut self) {
        let template = self.reconciler.serving().and_then(|serving| self.templates.get(&serving));
        let template = template.map(|template| template.process.pid());
        let up = self.reconciler.rows().filter(|row| row.state == WorkerState::Ready);
        let workers: Vec<u32> = up.map(|row| row.pid).collect();
        let (shared, ending) = (self.shared.clone(), self.trials.ending.take());
        tokio::task::spawn_blocking(move || {
            use sys::process::{anonymous_bytes, private_bytes, rss_bytes};
            // The spare template of the previous reload is about to free its memory.
            let until = Instant::now() + ENDING;
            while ending.is_some_and(|pid| rss_bytes(pid) > 0) && Instant::now() < until {
                std::thread::sleep(ENDING / 100);
            }
            let all: u64 = workers.iter().map(|pid| private_bytes(*pid)).sum();
            shared.report(SupervisorMessage::Weighed(Figures {
                available: Machine::memory_available(),
                template: template.map_or(0, anonymous_bytes),
                template_alone: template.map_or(0, private_bytes),
                worker: all / workers.len().max(1) as u64,
            }));
        });
    }

    pub(super) fn probe(&mut self, serial: Serial, release: ReleaseId) {
        let settings = match self.boot_config(release) {
            Ok(boot) => boot.settings,
            Err(why) => return self.see(Change::Tried(Err(why))),
        };
        let configured = !settings.reload.probe.is_empty();
        let targets = targets(&settings);
        self.trials.probe = Some(Probe { serial, targets: targets.into(), configured, answered: Vec::new() });
        self.probe_next();
    }

    fn probe_next(&mut self) {
        let limit = self.options.timeouts().worker_boot;
        let Some(probe) = &self.trials.probe else { return };
        match probe.targets.front().cloned() {
            Some(target) => {
                let serial = probe.serial;
                self.shared.mailbox(0).post(ThreadMessage::Probe { serial, target, limit });
            }
            None => {
                let text = probe.answered.join(", ");
                self.trials.probe = None;
                self.see(Change::Tried(Ok(text)));
            }
        }
    }

    pub(super) fn probed(&mut self, serial: Serial, result: Result<u16, String>) {
        let Some(probe) = self.trials.probe.as_mut().filter(|probe| probe.serial == serial) else { return };
        match probe.answered(result) {
            Ok(()) => self.probe_next(),
            Err(why) => {
                self.trials.probe = None;
                self.see(Change::Tried(Err(why)));
            }
        }
    }

    /// Starts the comparison of responses to copies of requests, with those to the paths of the probe.
    pub(super) fn shadow(&mut self, old: Serial, new: Serial, release: ReleaseId) {
        let targets = self.boot_config(release).map(|boot| targets(&boot.settings)).unwrap_or_default();
        let pair = self.shared.shadow().begin(old, new);
        self.trials.compares_at = None;
        self.shared.mailbox(0).post(ThreadMessage::Shadow { pair, targets });
    }

    /// Compares what the copies have shown so far, as soon as a verdict is possible.
    fn judge_shadow(&mut self) {
        let now = Instant::now();
        let Some((old, new, over)) = self.reconciler.shadowed(now) else { return self.shared.shadow().end() };
        if !self.trials.compares(now, over) {
            return;
        }
        let undoes = self.options.settings.borrow().reload.on_difference == OnDifference::Undo;
        let resident = |serial: Serial| {
            let row = self.reconciler.rows().find(|row| row.serial == serial);
            row.map_or(0, |row| sys::process::rss_bytes(row.pid))
        };
        let memory = || weigh_pair(resident(new), resident(old));
        if let Some(verdict) = self.shared.shadow().verdict(over, undoes, memory) {
            self.see(Change::Tried(verdict));
        }
    }

    /// Starts the comparison of worker `new` with the others.
    pub(super) fn watch(&mut self, new: Serial, share: u32, time: Duration) {
        let tallies = self.tallies();
        let growth = ShareGrowth::new(share * 10, tallies.len(), time, Instant::now());
        let history = tallies.iter().filter(|(serial, _)| **serial != new).map(|(_, tally)| *tally).sum();
        let waits = ProcessorWaits::since(self.processor_waits(&tallies));
        self.trials.watch(tallies, growth, waits);
        self.shared.comparison().begin_after(self.shared.shadow().comparison(), new, history);
    }

    /// Compares the requests served since the comparison began, as soon as a verdict is possible.
    pub(super) fn judge(&mut self) {
        self.judge_shadow();
        let now = Instant::now();
        let Some((new, over)) = self.reconciler.watched(now) else { return self.shared.comparison().end() };
        let tallies = self.tallies();
        let [ours, theirs] = self.trials.since(new, &tallies);
        let shared = self.shared.clone();
        let comparison = shared.comparison();
        let compares = self.trials.compares(now, over);
        let mut against = None;
        if compares {
            let mut is_suspicious = comparison.suspicious().is_some();
            // A reason to revert is a suspicion first. The threads of all workers are read only then.
            if is_suspicious {
                let requests = [ours.requests, theirs.requests];
                comparison.set_excess_wait(self.trials.waits.excess_us(
                    new,
                    &self.processor_waits(&tallies),
                    requests,
                ));
                against = comparison.against();
                is_suspicious = comparison.suspicious().is_some();
            }
            self.trials.is_suspicious = is_suspicious;
            against = against.or_else(|| self.weigh(new, ours, &tallies));
        }
        if let Some(growth) = &mut self.trials.growth {
            let share = growth.share(ours.requests, self.trials.is_suspicious, now);
            self.shared.dispatch(PoolIndex::DEFAULT).set_trial_share(new, share);
        }
        let named = |why: String| match comparison.suspect() {
            Some(suspect) => format!("{why}; most suspicious: {suspect}"),
            None => why,
        };
        let verdict = against.map(Err).or_else(|| Some(verdict(ours, theirs, over)?.map_err(named)));
        if let Some(verdict) = verdict {
            let by_route = || comparison.summary().map(|summary| format!("; {summary}")).unwrap_or_default();
            self.see(Change::Tried(verdict.map(|text| text + &by_route())));
        }
    }

    /// Returns the totals of the workers of the default pool, to which a worker on trial belongs.
    pub(super) fn tallies(&self) -> BTreeMap<Serial, Tally> {
        self.shared.dispatch(PoolIndex::DEFAULT).tallies().collect()
    }

    /// Returns how long the threads of each worker of the default pool have waited for a processor, in nanoseconds.
    fn processor_waits(&self, tallies: &BTreeMap<Serial, Tally>) -> BTreeMap<Serial, u64> {
        let up = self.reconciler.rows().filter(|row| tallies.contains_key(&row.serial));
        let waited =
            |pid: u32| sys::process::schedules(pid.cast_signed()).map(|(_, (_, waited))| waited).sum();
        up.map(|row| (row.serial, waited(row.pid))).collect()
    }

    /// Compares the memory of the worker on trial with that of the others of its pool. Returns the reason to revert.
    fn weigh(&mut self, new: Serial, ours: Tally, tallies: &BTreeMap<Serial, Tally>) -> Option<String> {
        let up = self
            .reconciler
            .rows()
            .filter(|row| row.state == WorkerState::Ready && row.pool == PoolIndex::DEFAULT);
        let (mut bytes, mut others) = (0, Vec::new());
        for row in up {
            let resident = sys::process::rss_bytes(row.pid);
            match row.serial == new {
                true => bytes = resident,
                false => others.push((resident, tallies.get(&row.serial).map_or(0, |tally| tally.requests))),
            }
        }
        let mean = |sum: u64| sum / (others.len() as u64).max(1);
        let old = Weighed {
            requests: mean(others.iter().map(|(_, requests)| requests).sum()),
            bytes: mean(others.iter().map(|(resident, _)| resident).sum()),
        };
        self.trials.memory.look(Weighed { requests: ours.requests, bytes }, old)
    }
}

/// Returns the paths that the first new worker must answer.
fn targets(settings: &Settings) -> Vec<String> {
    match (settings.reload.probe.is_empty(), settings.rack.warmup.is_empty()) {
        (false, _) => settings.reload.probe.clone(),
        (true, false) => settings.rack.warmup.clone(),
        (true, true) => vec!["/up".to_owned()],
    }
}

// The front thread's side. Probe requests are the server's own: they have no position in the queue and are
// never sent to another worker.

impl Local {
    /// Sends a probe request to a worker that gets no client requests.
    pub(crate) fn probe(self: &Rc<Local>, serial: Serial, target: &str, limit: Duration) {
        let now = Instant::now();
        let call = call(target, self.monotonic_us(now), now);
        let Some(link) = self.link(serial) else {
            return self
                .shared()
                .report(SupervisorMessage::Probed { serial, result: Err("its link ended".to_owned()) });
        };
        call.sent_to(serial, link.index);
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket: None, serial, id }),
            Err(e) => {
                return self
                    .shared()
                    .report(SupervisorMessage::Probed { serial, result: Err(e.to_string()) });
            }
        }
        let local = self.clone();
        net::task::spawn_local(async move {
            let result = match tokio::time::timeout(limit, status(&call)).await {
                Ok(result) => result,
                Err(_) => Err(format!("no response within {} s", limit.as_secs_f64())),
            };
            if call.state() != CallState::Finished {
                local.abandon(&call);
            }
            local.shared().report(SupervisorMessage::Probed { serial, result });
        });
    }
}

/// Creates a GET request for `target` that appears to come from this machine. It belongs to the pool of the
/// worker on trial, whatever its path is.
fn call(target: &str, asked_us: u64, now: Instant) -> Rc<Call> {
    let frame = own_request::frame(target, false, asked_us);
    Rc::new(Call::new(frame, CallBody::Nothing, Rc::new(Trace::default()), None, PoolIndex::DEFAULT, now))
}

/// Returns the status of the response, or the reason why there is none.
async fn status(call: &Call) -> Result<u16, String> {
    loop {
        match poll_fn(|cx| call.reply.poll_event(cx)).await {
            ReplyEvent::Interim(..) | ReplyEvent::Postponed => {}
            ReplyEvent::Head(head) => return Ok(head.status),
            ReplyEvent::Hijacked(_) => return Err("the app took the connection over".to_owned()),
            ReplyEvent::Failed(failure) => return Err(failure.reason.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(configured: bool) -> Probe {
        let targets = ["/a", "/b"].map(str::to_owned).into();
        Probe { serial: 4, targets, configured, answered: Vec::new() }
    }

    #[test]
    fn a_configured_path_must_exist_and_a_guess_may_be_wrong() {
        let mut guess = probe(false);
        assert_eq!((guess.answered(Ok(404)), guess.answered(Ok(401))), (Ok(()), Ok(())));
        let expected = ["GET /a returned 404 (ignored; set `reload.probe`)", "GET /b returned 401"];
        assert_eq!(guess.answered, expected);
        assert_eq!(probe(true).answered(Ok(404)), Err("GET /a returned 404".to_owned()));
        assert_eq!(probe(false).answered(Ok(500)), Err("GET /a returned 500".to_owned()));
        assert_eq!(probe(true).answered(Err("it died".to_owned())), Err("GET /a: it died".to_owned()));
    }
}
