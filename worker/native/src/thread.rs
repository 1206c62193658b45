//! A thread that serves requests: its wake-up, and the template of its requests' envs.
//!
//! Contract: lives as long as the process, and serves the next worker at its place when its own has ended.

use crate::env::Memo;
use crate::fibers::Strand;
use crate::fibers::blocking::Stretch;
use crate::place::{self, Place, place};
use crate::raw::gvl::Gvl;
use crate::raw::gvl_wait::GvlWait;
use crate::raw::os::Wakeup;
use crate::raw::ruby::NIL;
use crate::raw::slots::Slot;
use crate::task::Task;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct ServingThread {
    pub(crate) index: usize,
    pub(crate) wakeup: Wakeup,
    /// Set when the thread is woken because there is something to do, not only for a change of roles.
    pub(crate) called: AtomicBool,
    /// The thread is being killed and must not go on.
    pub(crate) killed: Cell<bool>,
    pub(crate) gvl_wait: GvlWait,
    /// The strand that its loop of fibers has entered.
    pub(crate) running: Cell<Option<&'static Strand>>,
    /// The current time away from its loop; only with fibers.
    pub(crate) stretch: Stretch,
    pub(crate) ruby: &'static Slot,
    /// The env that all requests of this thread start from.
    pub(crate) template: &'static Slot,
    pub(crate) memo: Memo,
}

impl ServingThread {
    /// Returns thread `index`, as its own task: a kept one or a new one. It lives as long as the process.
    ///
    /// # Errors
    /// There is no descriptor for waking the thread.
    pub(crate) fn obtain(gvl: &mut Gvl, index: usize) -> io::Result<&'static Task> {
        let task = match place().kept.with(gvl, |kept| kept.get(index).copied()) {
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
        task.thread.template.set(place::env_template(gvl));
        Ok(task)
    }

    /// Keeps the threads of a worker, by index, for the next worker at its place.
    pub(crate) fn keep(gvl: &Gvl, place: &Place, tasks: Vec<&'static Task>) {
        place.kept.with(gvl, |kept| {
            if tasks.len() > kept.len() {
                *kept = tasks;
            }
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
            running: Cell::new(None),
            stretch: Stretch::new(),
            ruby: Slot::leak(gvl, NIL),
            template: Slot::leak(gvl, NIL),
            memo: Memo::new(gvl),
        }))
    }

    /// Wakes the thread because there is something to do.
    pub(crate) fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.wakeup.wake();
    }
}
