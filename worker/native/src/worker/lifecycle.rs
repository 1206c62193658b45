//! The beginning and the end of a worker, also in forked children.

use super::place::{self, Place, place};
use super::task::ServingThread;
use super::{Options, Worker, WorkerPhase};
use crate::link::Link;
use crate::pace::Pace;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::scoreboard::Scoreboard;
use crate::watchdog::Port;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The extra state of an attached worker. Its process belongs to the app, so the worker never ends the process.
pub(crate) struct Attached {
    /// Distinguishes it from earlier workers at the same place.
    pub(super) serial: u64,
    /// A pipe that gets a byte when [`Worker::release`] or [`Worker::take_killed`] has work.
    pub(super) bell: RawFd,
    /// The number of its running threads.
    pub(super) threads: usize,
    /// The threads that the app has killed.
    pub(super) killed: Vec<usize>,
}

static SERIAL: Guarded<u64> = Guarded::new(0);

/// Workers that a forked child has inherited and does not use.
static ABANDONED: Guarded<Vec<Worker>> = Guarded::new(Vec::new());

/// Whether this process was forked from one with a worker.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

impl Worker {
    /// Installs a worker at the calling thread's place.
    pub(crate) fn install(gvl: &Gvl, options: Options, ports: &'static [Port], scoreboard: Scoreboard) {
        let links = (0u32..).zip(ports).map(|(number, port)| Link::new(number, port, scoreboard)).collect();
        let worker = Worker {
            options,
            place: place(),
            scoreboard,
            links,
            inbox: VecDeque::new(),
            tasks: Vec::new(),
            leader: None,
            idle: Vec::new(),
            active: 0,
            pace: Pace::new(),
            fibers: super::OfFibers::default(),
            phase: WorkerPhase::Serves,
            collect: false,
            promotion: None,
            attached: None,
        };
        place().worker.with(gvl, |here| *here = Some(worker));
    }

    /// Marks the worker as attached. Returns its serial number.
    pub(crate) fn attach(&mut self, gvl: &Gvl, bell: RawFd) -> u64 {
        let serial = SERIAL.with(gvl, |last| {
            *last += 1;
            *last
        });
        self.attached = Some(Attached { serial, bell, threads: 0, killed: Vec::new() });
        serial
    }

    /// Reverses [`Worker::install`]. No thread may have been started.
    pub(crate) fn uninstall(gvl: &mut Gvl) {
        let Some(worker) = place().worker.with(gvl, Option::take) else { return };
        worker.place.watchdog.stop();
        worker.scoreboard.unmap();
        worker.place.vacate(gvl);
    }

    /// Finishes the worker because its front has gone: no requests will arrive, and no response can be sent.
    pub(crate) fn lose(&mut self, gvl: &Gvl) {
        self.phase = WorkerPhase::Lost;
        self.inbox.drain(..).for_each(|job| job.discard());
        for task in self.tasks.iter().chain(self.fibers.served.values()) {
            task.gone.set(true);
            task.tell(gvl);
        }
        self.tasks.iter().for_each(|task| task.thread.wake());
        self.fibers.woken.extend(self.fibers.served.values());
        // All threads may have ended already.
        self.attached.iter().for_each(|attached| os::ring(attached.bell));
    }

    /// Releases everything an attached worker holds, once it has finished and its last thread has ended.
    /// Returns whether it did.
    pub(crate) fn release(gvl: &mut Gvl, place: &Place) -> bool {
        let ended = |w: &Worker| w.attached.as_ref().is_some_and(|attached| attached.threads == 0);
        let taken = place.worker.with(gvl, |worker| worker.take_if(|w| w.is_finished() && ended(w)));
        let Some(worker) = taken else { return false };
        worker.place.watchdog.stop();
        worker.close();
        worker.clear(gvl);
        place.vacate(gvl);
        true
    }

    /// Closes the links in a child that the app has forked. The links belong to the parent. Returns whether
    /// there was a worker.
    pub(crate) fn abandon(gvl: &Gvl) -> bool {
        let mut was_there = false;
        for place in place::all(gvl) {
            let Some(worker) = place.worker.with(gvl, Option::take) else { continue };
            worker.close();
            worker.tasks.iter().chain(worker.fibers.served.values()).for_each(|task| task.return_loan());
            ServingThread::close_all(gvl, &worker.tasks);
            worker.links.iter().for_each(|link| link.outbox().abandon());
            IS_CHILD.store(true, Relaxed);
            place.close();
            place.burn();
            ABANDONED.with(gvl, |all| all.push(worker));
            was_there = true;
        }
        was_there
    }

    /// Turns the child of a finished worker into a template, whose children can become workers. Only the
    /// worker's tasks are kept, for those children to use.
    ///
    /// The watchdog must have been stopped before the fork.
    pub(crate) fn retire(gvl: &mut Gvl) {
        for worker in ABANDONED.with(gvl, std::mem::take) {
            // An attached worker's threads may have held locks of its place.
            if worker.attached.is_none() {
                let place = worker.place;
                worker.clear(gvl);
                place.reset();
            }
        }
        IS_CHILD.store(false, Relaxed);
    }

    fn close(&self) {
        self.links.iter().for_each(|link| os::close(link.fd));
        self.promotion.into_iter().for_each(os::close);
    }

    /// Releases memory and objects, and keeps the tasks for the next worker at this place. The ports, a few
    /// hundred bytes, are leaked: the links borrow them for 'static.
    fn clear(self, gvl: &mut Gvl) {
        self.links.iter().for_each(|link| link.outbox().clear());
        self.scoreboard.unmap();
        for task in &self.tasks {
            task.retire(gvl);
            task.thread.retire();
        }
        ServingThread::keep(gvl, self.place, self.tasks);
    }
}

/// Returns whether the app has forked this process from the worker's process.
#[inline]
pub(crate) fn is_abandoned(gvl: &Gvl) -> bool {
    IS_CHILD.load(Relaxed) && !is_set_up(gvl)
}

/// Returns whether the calling thread has a worker. The template, and a child that the app has forked, have none.
pub(crate) fn is_set_up(gvl: &Gvl) -> bool {
    place().worker.with(gvl, |worker| worker.is_some())
}

/// Finds the place of the attached worker with this serial number. `None` when it has been released.
pub(crate) fn find(gvl: &Gvl, serial: u64) -> Option<&'static Place> {
    let is_it = |w: &mut Worker| w.attached.as_ref().is_some_and(|attached| attached.serial == serial);
    place::all(gvl).into_iter().find(|place| super::worker_at(gvl, place, is_it) == Some(true))
}

/// Stops the watchdogs of the forked workers of this process; attached workers are not included.
pub(crate) fn stop_watchdogs(gvl: &Gvl) {
    for place in place::all(gvl) {
        if super::worker_at(gvl, place, |w| w.attached.is_none()) == Some(true) {
            place.watchdog.stop();
        }
    }
}
