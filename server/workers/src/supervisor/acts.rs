//! Carries out each act.

use super::templates::RunningTemplate;
use super::*;
use crate::messages::{Descriptors, End, NewLink};
use crate::process::WorkerSignal;
use crate::progress::Progress;
use crate::reconciler::{Hopeless, Milestone, ReloadKind, Signals, Trial};
use crate::spawner::Template;
use stats::{Ended, ReloadOutcome};
use sys::process::catches_dump;

/// The message when start-up is given up because templates keep dying.
const TEMPLATES_DIE: &str = "the template keeps dying before a worker is ready; check the app's fork hooks (`before_worker_fork`, \
     `after_worker_fork`), its native extensions and their threads, and the template's output above";

impl Supervisor {
    /// Carries out an act. Returns the change if it fails or has a result at once.
    pub(super) fn act(&mut self, act: Act) -> Option<Change> {
        match act {
            Act::StartTemplate { generation, release } => {
                if self.reconciler.brought_by(generation) == Some(ReloadKind::Reload) {
                    self.notify(Notice::Reloading);
                }
                let Err(e) = self.start_template(generation, release) else { return None };
                let why = format!("the template cannot be started: {e}");
                self.log(why.clone());
                return Some(Change::Template { generation, usable: Err(why) });
            }
            Act::EndTemplate { generation, why } => self.end_template(generation, why),
            Act::Fork { generation, pool, index, serial } => {
                let Err(e) = self.fork(generation, pool, index, serial) else { return None };
                self.log(format!("worker {index} cannot be forked: {e}"));
                return Some(Change::Forked { generation, index, pid: None });
            }
            Act::Signal { serial, generation, pid, signal } => self.signal(serial, generation, pid, signal),
            Act::Open { serial, share } => self.open(serial, share),
            Act::Close { serial, leaves } => return self.close(serial, leaves),
            Act::Gone(exit) => self.gone(exit),
            Act::Try(Trial::Read(release)) => return Some(Change::Read(release, self.read(release))),
            Act::Try(Trial::Weigh) => self.weigh_memory(),
            Act::Try(Trial::Probe(serial, release)) => self.probe(serial, release),
            Act::Try(Trial::Shadow { old, new, release }) => self.shadow(old, new, release),
            Act::Try(Trial::Watch { serial, share, time }) => self.watch(serial, share, time),
            Act::Log(text) => self.log(text),
            Act::Tell { to, step } => self.followers.tell(to, step),
            Act::Reason { of, cause, why } => {
                if let Some(worker) = self.workers.get_mut(&of) {
                    worker.death.recycled = Some((cause, why));
                }
            }
            Act::Reached(milestone) => self.reached(milestone),
        }
        None
    }

    pub(super) fn reached(&mut self, milestone: Milestone) {
        let (now, history) = (SystemTime::now(), &mut self.outbox.history);
        match milestone {
            Milestone::Began(_) => history.began = Some(now),
            Milestone::Superseded => history.reloads.counts.count(ReloadOutcome::Superseded),
            Milestone::Reforked { outcome, text, took } => {
                history.reforks.ended(Ended::new(outcome, &text, took, now));
            }
            Milestone::Resized { from, to, why } => {
                let [from, to] = [from, to].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                history.size = Some(SizeChange { at: now, from, to, why });
            }
            Milestone::Settled => self.notify(Notice::Settled),
            Milestone::Hopeless(why) => {
                self.shared.to_all(|| ThreadMessage::Hopeless);
                self.notify(Notice::Hopeless(match why {
                    Hopeless::Workers => "the workers exit before they are ready; see above for the reason",
                    Hopeless::Templates => TEMPLATES_DIE,
                }));
            }
            Milestone::Empty => self.outbox.empty = true,
            Milestone::Reloaded { outcome, release, changed, text, took } => {
                // The rest of the text concerns the time after the reload and becomes outdated.
                let lasting = match outcome {
                    ReloadOutcome::Done => text.split(';').next().unwrap_or_default(),
                    _ => &text,
                };
                history.reloads.ended(Ended::new(outcome, lasting, took, now));
                self.notify(Notice::Reloaded(release));
                self.publish(release);
                if changed {
                    self.reloaded_size();
                }
            }
        }
    }

    fn fork(
        &mut self,
        generation: Generation,
        pool: PoolIndex,
        index: u32,
        serial: Serial,
    ) -> io::Result<()> {
        let worker = Worker::new(pool, generation, self.options.front_threads(), Instant::now());
        self.workers.insert(serial, worker);
        let release = self.reconciler.release_of(generation).unwrap_or(self.reconciler.wish().release);
        let pools = pools(&self.boot_config(release).map_err(io::Error::other)?.settings);
        let own = pools.get(usize::from(pool.0)).ok_or_else(|| io::Error::other("there is no such pool"))?;
        // The scoreboard, which is older than the settings of a reload, has room for so many.
        let most = u16::try_from(self.shared.scoreboard().layout().threads).unwrap_or(u16::MAX);
        let threads = settings::Threads { min: own.threads.min.min(most), max: own.threads.max.min(most) };
        let own = &settings::Pool { threads, ..own.clone() };
        let template =
            self.templates.get(&generation).ok_or_else(|| io::Error::other("there is no template"))?;
        let mut theirs = Vec::with_capacity(self.shared.scoreboard().layout().links);
        let fronts = if template.process.passes_links() { self.shared.threads() as u16 } else { 0 };
        for thread in 0..fronts {
            let (ours, end) = os::pair()?;
            end.set_nonblocking(false)?;
            theirs.push(end);
            self.shared.mailbox(thread).post(ThreadMessage::Link(NewLink {
                end: End { serial, pool },
                index: index as u16,
                socket: ours,
                descriptors: Descriptors::WithFrames,
                scores: None,
            }));
        }
        template.process.fork(index, serial, (pool, own), &theirs)
    }

    /// Signals a worker as its source allows. A template knows whether the process is still its child, so it
    /// sends the signals that the system does not guarantee to reach only this process.
    pub(super) fn signal(
        &self,
        serial: Serial,
        generation: Option<Generation>,
        pid: u32,
        signal: WorkerSignal,
    ) {
        let signals = self.reconciler.source().signals;
        if signals == Signals::DirectOnceCaught && signal == WorkerSignal::Backtraces && !catches_dump(pid) {
            return;
        }
        let process = self.workers.get(&serial).and_then(|worker| worker.process.as_ref());
        let direct = |process: &&crate::process::Process| {
            signals != Signals::Messages && (process.is_exact() || generation.is_none())
        };
        if let Some(process) = process.filter(direct) {
            return process.signal(signal.number());
        }
        if let Some(template) = generation.and_then(|generation| self.templates.get(&generation)) {
            // An unreachable template is replaced, and its workers become orphans.
            let _ = template.process.kill(pid, signal);
        }
    }

    /// Sends requests to a worker: a share of them, in per cent, if it is on trial.
    fn open(&mut self, serial: Serial, share: Option<u32>) {
        let (now, mut assigned) = (Instant::now(), Vec::new());
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.progress = Progress::new(now);
        let mut queue = self.shared.dispatch(worker.pool);
        match share {
            None => queue.worker_up(serial, worker.seats, now, &mut assigned),
            Some(share) => queue.worker_on_trial(serial, worker.seats, share * 10, now, &mut assigned),
        }
        drop(queue);
        self.shared.deliver(&assigned);
    }

    fn close(&mut self, serial: Serial, leaves: Option<Generation>) -> Option<Change> {
        if let Some(worker) = self.workers.get(&serial) {
            // Before the worker has an order: its WebSockets are closed as those of a worker that leaves, however soon it ends.
            self.shared.dispatch(worker.pool).pass_over(serial, PassReason::Leaving);
        }
        let failed = leaves.and_then(|generation| {
            let e = self.leave_template(serial, generation).err()?;
            let usable = Err(format!("no socket for its template: {e}"));
            Some(Change::Template { generation, usable })
        });
        self.shared.mailbox(0).post(ThreadMessage::Drain(serial));
        let generation = self.workers.get(&serial).map(|worker| worker.generation);
        if let Some(template) = generation.and_then(|generation| self.templates.get(&generation)) {
            template.process.dismiss(serial);
        }
        failed
    }

    /// Gives a worker its end of the socket of the template that it will leave behind.
    fn leave_template(&mut self, serial: Serial, generation: Generation) -> io::Result<()> {
        let (ours, socket) = os::pair()?;
        socket.set_nonblocking(false)?;
        let process = Template::adopt(generation, ours, self.inbox.templates.0.clone())?;
        self.templates.insert(generation, RunningTemplate::new(process));
        self.shared.mailbox(0).post(ThreadMessage::Promote { serial, socket });
        Ok(())
    }
}
