//! The state that the threads of a worker share. `roles.rs` divides the work among them, `lifecycle.rs` begins and ends a worker, `place.rs`
//! separates the workers of a process that has several; `task.rs` is the state of a request, with its thread and its fiber.
//!
//! Contract: nothing here waits, calls the app, or knows the modules that serve.

mod lifecycle;
pub(crate) mod place;
mod roles;
pub(crate) mod task;

pub(crate) use lifecycle::{Attached, find, is_abandoned, is_set_up, stop_watchdogs};
pub(crate) use roles::{Help, Step};

use crate::heap;
use crate::link::{Job, Link, Message};
use crate::pace::{Finished, Pace};
use crate::raw::gvl::Gvl;
use crate::raw::os;
use crate::scoreboard::Scoreboard;
use place::{Place, place};
use rustc_hash::FxBuildHasher;
use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::path::Path;
use task::{Loan, Task};

/// With more unsent bytes than this, responses are sent without waiting for others.
const BATCH_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) threads_min: usize,
    pub(crate) threads_max: usize,
    /// The loop of a thread, given its index.
    pub(crate) serve: fn(&mut Gvl, usize),
    /// Fibers per thread; 0: the threads serve without fibers.
    pub(crate) fibers: usize,
    /// Processor time that a fiber may use while others are ready, in microseconds; 0: no limit.
    pub(crate) slice_us: u64,
    /// The time that a call may block a loop of fibers before it is logged, in microseconds; 0: never logged.
    pub(crate) blocking_us: u64,
    /// Largest response head, in bytes.
    pub(crate) max_head: usize,
    pub(crate) early_hints: bool,
    /// Whether the app's Rack is 3 or later.
    pub(crate) rack3: bool,
    /// Bytes of a response that may be buffered in memory for a slow client.
    pub(crate) response_memory: u64,
    /// Bytes of a response that may be buffered in a file for a slow client.
    pub(crate) response_spool: u64,
    /// The directory of these files.
    pub(crate) temp_dir: &'static Path,
}

pub(crate) struct Worker {
    pub(crate) options: Options,
    pub(crate) place: &'static Place,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) links: Vec<Link>,
    pub(crate) inbox: VecDeque<Job>,
    /// The threads' own tasks, by index.
    pub(crate) tasks: Vec<&'static Task>,
    /// The thread that reads the links.
    pub(crate) leader: Option<usize>,
    /// The threads that sleep, the last one first to be woken.
    idle: Vec<usize>,
    /// The number of requests being served.
    active: usize,
    pace: Pace,
    fibers: OfFibers,
    pub(crate) phase: WorkerPhase,
    /// A full collection is to run when no request is being served.
    collect: bool,
    /// The socket of the template that this worker leaves behind when it has finished.
    pub(crate) promotion: Option<RawFd>,
    /// The state of an attached worker; `None` for a forked one.
    pub(crate) attached: Option<Attached>,
}

/// Requests that fibers serve.
#[derive(Default)]
struct OfFibers {
    /// By link and id.
    served: HashMap<(u32, u32), &'static Task, FxBuildHasher>,
    /// Those for which a message from the front has arrived.
    woken: Vec<&'static Task>,
}

/// The phases of a worker, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkerPhase {
    Serves,
    /// No more requests will arrive.
    Drains,
    Finished,
    /// Finished because the front has gone; nothing more can be sent.
    Lost,
}

/// Borrows the worker of the calling thread.
#[inline]
pub(crate) fn worker<R>(gvl: &Gvl, f: impl FnOnce(&mut Worker) -> R) -> R {
    place().worker.with(gvl, |worker| f(worker.as_mut().expect("the worker has been set up")))
}

/// Borrows the worker at a place. `None` when there is none.
#[inline]
pub(crate) fn worker_at<R>(gvl: &Gvl, place: &Place, f: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    place.worker.with(gvl, |worker| worker.as_mut().map(f))
}

impl Worker {
    pub(crate) fn is_finished(&self) -> bool {
        self.phase >= WorkerPhase::Finished
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.phase == WorkerPhase::Lost
    }

    /// Returns whether the links can end without cutting work short.
    pub(crate) fn is_over(&self) -> bool {
        self.is_finished() || (self.phase == WorkerPhase::Drains && self.active == 0 && self.inbox.is_empty())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active > 0
    }

    /// Returns whether finished responses must be sent before the next request is taken up.
    #[inline]
    pub(crate) fn must_send(&mut self, now_us: u64) -> bool {
        let age_us = self.pace.look(now_us);
        let must = |link: &Link| {
            let unsent = link.outbox().unsent();
            unsent > 0
                && (self.inbox.is_empty()
                    || unsent > BATCH_BYTES
                    || age_us.is_none_or(|age_us| link.outbox().age_us(now_us) > age_us))
        };
        !self.is_lost() && self.links.iter().any(must)
    }

    /// Decides whether the request that begins is sampled. Never with a single thread, where the result is not used.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.options.threads_max > 1 && self.options.fibers == 0 && self.pace.samples()
    }

    /// Returns whether other threads of the process run Ruby, too.
    #[inline]
    pub(crate) fn shares_process(&self) -> bool {
        self.options.threads_max > 1 || self.attached.is_some()
    }

    /// Records that thread `me` has finished a request.
    #[inline]
    pub(crate) fn ended(&mut self, me: usize, request: &Finished) {
        self.active -= 1;
        self.pace.record(request);
        if self.leader == Some(me) {
            self.leader = None;
        }
    }

    /// Records that a fiber serves the task's request.
    pub(crate) fn fiber_begins(&mut self, task: &'static Task) {
        self.fibers.served.insert((task.link.get(), task.id.get()), task);
        self.scoreboard.serves(self.active as u64);
    }

    /// Records that a fiber has finished the task's request.
    pub(crate) fn fiber_ends(&mut self, task: &'static Task) {
        self.fibers.served.remove(&(task.link.get(), task.id.get()));
        self.scoreboard.serves(self.active as u64);
    }

    /// Records that the fiber of the task's request was given up.
    pub(crate) fn fiber_gives_up(&mut self, task: &'static Task) {
        self.active -= 1;
        self.fiber_ends(task);
    }

    /// Takes the requests of thread `me` for which a message from the front has arrived.
    pub(crate) fn take_woken(&mut self, me: usize) -> Vec<&'static Task> {
        if self.fibers.woken.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.fibers.woken);
        let (mine, others) = all.into_iter().partition(|task| task.thread.index == me);
        self.fibers.woken = others;
        mine
    }

    /// Lists the tasks whose requests are being served.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &'static Task> + '_ {
        let threads = self.tasks.iter().filter(|task| task.active.get());
        threads.chain(self.fibers.served.values()).copied()
    }

    /// Handles a frame other than REQUEST.
    pub(crate) fn handle(&mut self, gvl: &Gvl, link: u32, message: &Message) {
        match *message {
            Message::Drain => {
                self.scoreboard.recorder().told(gvl, "to finish (DRAIN)");
                self.phase = self.phase.max(WorkerPhase::Drains);
            }
            Message::Collect => {
                self.scoreboard.recorder().told(gvl, "to collect garbage");
                self.collect = true;
            }
            Message::Heap { fd, .. } if self.attached.is_some() => heap::refuse(fd),
            Message::Heap { order, fd } => {
                self.scoreboard.recorder().told(gvl, "to describe its heap");
                heap::asked(gvl, order, fd);
            }
            Message::Promote { fd } => self.promotion.replace(fd).into_iter().for_each(os::close),
            Message::Window { id, bytes } => {
                if let Some(task) = self.task_of(link, id) {
                    task.window.set(task.window.get() + i64::from(bytes));
                    self.wake(gvl, task);
                }
            }
            // The thread that made the offer may have stopped waiting.
            Message::Lend { id, fd } => {
                match self.task_of(link, id).filter(|task| task.loan.get() == Loan::Offered) {
                    Some(task) => {
                        task.loan.set(fd.map_or(Loan::Declined, Loan::Lent));
                        self.wake(gvl, task);
                    }
                    None => fd.into_iter().for_each(os::close),
                }
            }
            Message::Abort { id } => match self.task_of(link, id) {
                Some(task) => {
                    task.gone.set(true);
                    self.wake(gvl, task);
                }
                None => {
                    let waiting = self.inbox.iter_mut().find(|job| job.link == link && job.id == id);
                    waiting.into_iter().for_each(|job| job.gone = true);
                }
            },
        }
    }

    /// Wakes the task's thread, and all other threads and fibers that wait for news of its request.
    fn wake(&mut self, gvl: &Gvl, task: &'static Task) {
        task.tell(gvl);
        if task.fiber.is_none() {
            return task.thread.wake();
        }
        self.fibers.woken.push(task);
        // The leader checks when it has read everything.
        if self.leader != Some(task.thread.index) {
            task.thread.wakeup.wake();
        }
    }

    fn task_of(&self, link: u32, id: u32) -> Option<&'static Task> {
        if self.options.fibers > 0 {
            return self.fibers.served.get(&(link, id)).copied();
        }
        self.tasks
            .iter()
            .copied()
            .find(|task| task.active.get() && task.link.get() == link && task.id.get() == id)
    }
}
