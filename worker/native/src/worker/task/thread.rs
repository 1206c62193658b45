//! A thread that serves requests: its wake-up, and the template of its requests' envs.
//!
//! Contract: lives as long as the process, and serves the next worker at its place when its own has ended.

use super::Task;
use super::strand::Strand;
use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::gvl_wait::GvlWait;
use crate::raw::hold::Hold;
use crate::raw::os::Wakeup;
use crate::raw::ruby::{self, NIL};
use crate::raw::slots::RootSlot;
use crate::seat::Seat;
use crate::stretch::Stretch;
use crate::worker::place::{Place, place};
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tasks of the last worker at each place, by thread, for the next one there. In a forked child they are those of the parent's workers.
static KEPT: Guarded<Vec<(&'static Place, Vec<&'static Task>)>> = Guarded::new(Vec::new());

/// The values that a thread's template holds now.
pub(crate) struct Memo {
    pub(crate) method: &'static RootSlot,
    pub(crate) remote_addr: &'static RootSlot,
    pub(crate) server_name: &'static RootSlot,
    pub(crate) server_port: &'static RootSlot,
    pub(crate) version: Cell<u8>,
    pub(crate) https: Cell<bool>,
}

impl Memo {
    fn new(gvl: &mut Gvl) -> Memo {
        let mut empty = || RootSlot::leak(gvl, names().empty.get());
        #[rustfmt::skip]
        let memo = Memo {
            method: empty(), remote_addr: empty(), server_name: empty(), server_port: empty(),
            version: Cell::new(0), https: Cell::new(false),
        };
        memo
    }

    /// Forgets these values, because the template has been replaced.
    fn reset(&self) {
        let empty = names().empty.get();
        for slot in [self.method, self.remote_addr, self.server_name, self.server_port] {
            slot.set(empty);
        }
        self.version.set(0);
        self.https.set(false);
    }
}

pub(crate) struct ServingThread {
    pub(crate) index: usize,
    pub(crate) wakeup: Wakeup,
    /// Set when the thread is woken because there is something to do, not only for a change of roles.
    pub(crate) called: AtomicBool,
    /// The thread is being killed and must not go on.
    pub(crate) killed: Cell<bool>,
    pub(crate) gvl_wait: GvlWait,
    pub(crate) hold: Hold,
    /// Its place in profiles.
    pub(crate) seat: Seat,
    /// Its last request was slow, so the next one is measured.
    pub(crate) slow: Cell<bool>,
    /// The strand that its loop of fibers has entered.
    pub(crate) running: Cell<Option<&'static Strand>>,
    /// The current time away from its loop; only with fibers.
    pub(crate) stretch: Stretch,
    pub(crate) ruby: &'static RootSlot,
    /// The env that all requests of this thread start from.
    pub(crate) template: &'static RootSlot,
    pub(crate) memo: Memo,
}

impl ServingThread {
    /// Returns thread `index`, as its own task: a kept one or a new one. It lives as long as the process.
    ///
    /// # Errors
    /// There is no descriptor for waking the thread.
    pub(crate) fn obtain(gvl: &mut Gvl, index: usize) -> io::Result<&'static Task> {
        let task = match kept(gvl, place(), index) {
            Some(task) => {
                task.thread.wakeup.renew()?;
                task.thread.memo.reset();
                task
            }
            None => {
                let thread = ServingThread::leak(gvl, index, Wakeup::new()?);
                Task::leak(gvl, thread, None)
            }
        };
        let template = ruby::hash_dup(gvl, place().base());
        task.thread.template.set(template);
        Ok(task)
    }

    /// Keeps the threads of a worker, by index, for the next worker at its place.
    pub(crate) fn keep(gvl: &Gvl, place: &'static Place, tasks: Vec<&'static Task>) {
        KEPT.with(gvl, |all| match all.iter_mut().find(|(at, _)| ptr::eq(*at, place)) {
            Some((_, kept)) if kept.len() >= tasks.len() => {}
            Some((_, kept)) => *kept = tasks,
            None => all.push((place, tasks)),
        });
    }

    /// Closes the descriptors of all threads that ever were, in a child that the app has forked. `tasks`: those of the workers at the fork.
    pub(crate) fn close_all(gvl: &Gvl, tasks: &[&'static Task]) {
        tasks.iter().for_each(|task| task.thread.wakeup.close());
        KEPT.with(gvl, |all| {
            all.iter().flat_map(|(_, kept)| kept).for_each(|task| task.thread.wakeup.close())
        });
    }

    /// Releases everything the thread holds, after it has ended with its worker.
    pub(crate) fn retire(&self) {
        self.ruby.set(NIL);
        self.template.set(NIL);
        self.called.store(false, Ordering::Relaxed);
        self.killed.set(false);
        self.running.set(None);
    }

    fn leak(gvl: &mut Gvl, index: usize, wakeup: Wakeup) -> &'static ServingThread {
        Box::leak(Box::new(ServingThread {
            index,
            wakeup,
            called: AtomicBool::new(false),
            killed: Cell::new(false),
            gvl_wait: GvlWait::new(),
            hold: Hold::new(),
            seat: Seat::new(),
            slow: Cell::new(false),
            running: Cell::new(None),
            stretch: Stretch::new(),
            ruby: RootSlot::leak(gvl, NIL),
            template: RootSlot::leak(gvl, NIL),
            memo: Memo::new(gvl),
        }))
    }

    /// Wakes the thread because there is something to do.
    pub(crate) fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.wakeup.wake();
    }
}

fn kept(gvl: &Gvl, place: &Place, index: usize) -> Option<&'static Task> {
    KEPT.with(gvl, |all| all.iter().find(|(at, _)| ptr::eq(*at, place))?.1.get(index).copied())
}
