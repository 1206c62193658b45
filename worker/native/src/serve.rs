//! The loop of a serving thread: takes up a request, serves it, sends finished responses. `fiber_loop.rs` is
//! that of a thread with fibers.

mod fiber_loop;

pub(crate) use fiber_loop::body as fiber_body;

use crate::link::Job;
use crate::names::names;
use crate::pace::SLOW_US;
use crate::raw::gvl::{self, Gvl};
use crate::raw::gvl_wait;
use crate::raw::os::{self, Wait};
use crate::raw::panics;
use crate::raw::ruby::{self, Value};
use crate::worker::place::place;
use crate::worker::task::{CURRENT, Task};
use crate::worker::{Step, worker};
use crate::{collection, holds, job, links, profile};
use std::rc::Rc;
use std::sync::atomic::Ordering::Acquire;

/// Serves as thread `index` until the worker has drained.
pub(crate) fn serve(gvl: &mut Gvl, index: usize) {
    let task = worker(gvl, |w| w.tasks[index]);
    CURRENT.set(Some(task));
    task.thread.ruby.set(Value::current_thread(gvl));
    gvl_wait::attach(gvl, &task.thread.gvl_wait);
    profile::attach(task.thread);
    holds::attach(gvl, task.thread);
    tell(gvl, names().thread_started);
    if worker(gvl, |w| w.options.fibers > 0) {
        fiber_loop::serve(gvl, task);
    } else {
        panics::persist(|| serve_in_turn(gvl, task));
    }
    tell(gvl, names().thread_ended);
    profile::detach(task.thread);
    holds::detach(gvl, task.thread);
    // A thread killed by the app is replaced, to keep the number of threads.
    if worker(gvl, |w| w.thread_ends(task.thread.index)) {
        links::again(gvl, task.thread.index);
    }
}

/// Serves requests one after another.
fn serve_in_turn(gvl: &mut Gvl, task: &'static Task) {
    let mut now_us = os::now_us();
    while let Some(job) = next(gvl, task, &mut now_us) {
        let bytes = Rc::clone(&job.bytes);
        let link = job.link as usize;
        let started_us = now_us;
        now_us = job::run(gvl, task, job, started_us);
        collection::check(gvl);
        if now_us.saturating_sub(started_us) > SLOW_US {
            // In this time, clients of waiting requests may have disconnected.
            links::poll_links(gvl);
        }
        worker(gvl, |w| {
            if let Ok(buffer) = Rc::try_unwrap(bytes) {
                w.links[link].reuse(buffer);
            }
        });
        if !task.in_app.get() && task.thread.killed.get() {
            return;
        }
    }
}

/// Calls the hooks for the start or the end of a thread.
fn tell(gvl: &mut Gvl, moment: ruby::Id) {
    let hooks = |gvl: &mut Gvl| {
        ruby::call(gvl, names().exchange.get(), moment, &[]);
    };
    if let Err((_, error)) = ruby::protect(gvl, hooks) {
        links::report(gvl, error);
    }
}

#[inline]
fn next(gvl: &mut Gvl, task: &'static Task, now_us: &mut u64) -> Option<Job> {
    loop {
        if worker(gvl, |w| w.must_send(*now_us)) {
            links::send_all(gvl, task);
            *now_us = os::now_us();
        }
        match worker(gvl, |w| w.step(task.thread.index, *now_us, true)) {
            Step::Run(job, help) => {
                links::provide(gvl, help);
                return Some(job);
            }
            Step::Send => links::send_all(gvl, task),
            Step::Read => links::read(gvl, task),
            Step::Collect => collection::run(gvl),
            Step::Sleep => sleep(gvl, task),
            Step::Stop => return None,
        }
        if task.thread.killed.get() {
            return None;
        }
        *now_us = os::now_us();
    }
}

/// Sleeps until the thread is woken, or until the standby has to take over.
fn sleep(gvl: &mut Gvl, task: &'static Task) {
    let (index, wakeup, called, place) =
        (task.thread.index, &task.thread.wakeup, &task.thread.called, place());
    worker(gvl, |w| w.sleeps(index));
    gvl::release(gvl, || {
        loop {
            let watch = place.is_standby(index);
            let fds = [wakeup.fd(), place.timer().fd()];
            let mut wait = Wait::readable(fds.into_iter().take(if watch { 2 } else { 1 }));
            wait.wait();
            if wait.ready(0) {
                wakeup.clear();
                if called.swap(false, Acquire) {
                    return;
                }
                continue;
            }
            if !wait.ready(1) {
                return;
            }
            place.timer().clear(wakeup.fd());
            if place.must_take_over(os::now_us()) {
                return;
            }
        }
    });
    worker(gvl, |w| w.awake(task.thread.index, false));
    links::interrupts(gvl, task);
}
