//! The loop of a thread that serves with fibers ([`crate::fibers`]): it gives requests to fibers, and enters
//! those that can run.

use crate::fibers::{self, Loop, blocking, enter, go_on, here, look_around, reuse, wait};
use crate::link::Job;
use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::ruby::{self, NIL};
use crate::raw::slice::Slices;
use crate::raw::{fiber, os, panics};
use crate::worker::task::strand::Strand;
use crate::worker::task::{CURRENT, Task};
use crate::worker::{Step, worker};
use crate::{collection, job, links};
use std::rc::Rc;

/// The time that the loop may spend entering fibers before it checks links, descriptors and timers, in microseconds.
const LOOK_EVERY_US: u64 = 200;
/// Payloads up to this size, in bytes, are copied out of the read buffer, so that a waiting request does not
/// keep the buffer.
const COPY: usize = 16 << 10;

/// Tasks of fibers that have ended, for reuse.
static SPARE: Guarded<Vec<&'static Task>> = Guarded::new(Vec::new());

/// Serves like [`super::serve`], with fibers. `own` is the thread's task, which serves nothing.
pub(crate) fn serve(gvl: &mut Gvl, own: &'static Task) {
    CURRENT.set(None);
    if let Err(error) = fibers::open(gvl, own.thread) {
        return links::report(gvl, error);
    }
    panics::persist(|| run(gvl, own));
    end_all(gvl);
    fibers::close(gvl, own.thread);
}

fn run(gvl: &mut Gvl, own: &'static Task) {
    let mut looked_us = 0;
    let slice_us = worker(gvl, |w| w.options.slice_us);
    loop {
        let ready = here(gvl, |l| l.waits.ready()).unwrap_or(0);
        if ready > 0 {
            let help = worker(gvl, |w| w.fiber_works(own.thread.index, os::now_us()));
            links::provide(gvl, help);
        }
        for _ in 0..ready {
            let Some((fiber, strand)) = here(gvl, |l| l.waits.next()).flatten() else { break };
            strand.iter().for_each(|strand| strand.computed_us.set(0));
            enter(gvl, own, fiber, strand);
        }
        let mut now_us = os::now_us();
        if worker(gvl, |w| w.must_send(now_us)) {
            links::send_all(gvl, own);
            now_us = os::now_us();
        }
        let can_take = has_idle(gvl, own);
        match worker(gvl, |w| w.step(own.thread.index, now_us, can_take)) {
            Step::Run(job, help) => {
                links::provide(gvl, help);
                begin(gvl, own, job);
            }
            Step::Send => links::send_all(gvl, own),
            Step::Collect => collection::run(gvl),
            Step::Stop => return,
            step if here(gvl, |l| l.waits.ready()).unwrap_or(0) == 0 => {
                match here(gvl, Loop::turned).flatten() {
                    None => {
                        wait(gvl, own, matches!(step, Step::Read));
                        looked_us = os::now_us();
                    }
                    Some(turned) if turned.at_us < looked_us => go_on(gvl, own),
                    // Other fibers may have become ready while it computed. The code below checks that first.
                    Some(_) => looked_us = 0,
                }
            }
            Step::Read | Step::Sleep => {}
        }
        // Computing fibers together get as much time as all other fibers together.
        if let Some(turned) = here(gvl, Loop::turned).flatten()
            && os::thread_us().saturating_sub(turned.cpu_us) > slice_us
        {
            go_on(gvl, own);
        }
        // While fibers are ready, links, descriptors and timers are checked now and then.
        now_us = os::now_us();
        if now_us.saturating_sub(looked_us) > LOOK_EVERY_US {
            look_around(gvl, own);
            looked_us = os::now_us();
        }
        if own.thread.killed.get() {
            return;
        }
    }
}

/// Gives a request to an idle fiber, and lets it run.
fn begin(gvl: &mut Gvl, own: &'static Task, job: Job) {
    let task = here(gvl, |l| {
        let task = l.idle.pop();
        task.iter().filter_map(|task| task.fiber.as_ref()).for_each(|part| part.idle.set(false));
        l.starting = task;
        task
    });
    let task = task.flatten().expect("a request is taken up when a fiber is idle");
    let Some(part) = &task.fiber else { return };
    part.next.set(Some(job));
    enter(gvl, own, part.ruby.get(), Some(part));
    here(gvl, |l| l.starting = None);
}

/// Returns whether a fiber is available for another request; makes one if needed.
fn has_idle(gvl: &mut Gvl, own: &'static Task) -> bool {
    let (idle, more) = here(gvl, |l| (!l.idle.is_empty(), l.all.len() < l.most)).unwrap_or((false, false));
    if idle || !more || worker(gvl, |w| w.inbox.is_empty()) {
        return idle;
    }
    let made = make(gvl, own);
    let left = here(gvl, |l| {
        match made {
            Some(task) => l.rests(task),
            // The system allows no more fibers: the existing ones must do.
            None => l.most = l.all.len(),
        }
        l.most
    });
    if left == Some(0) {
        let pid = std::process::id();
        crate::complain(format_args!("worker {pid}: not one fiber could be made; ending the process"));
        links::end(gvl, 70);
    }
    made.is_some()
}

/// Makes a fiber that has not run yet.
fn make(gvl: &mut Gvl, own: &'static Task) -> Option<&'static Task> {
    let spare = |spare: &mut Vec<&'static Task>| {
        let at = spare.iter().rposition(|task| std::ptr::eq(task.thread, own.thread))?;
        Some(spare.swap_remove(at))
    };
    let task = match SPARE.with(gvl, spare) {
        Some(task) => task,
        None => {
            let part = Strand::new(gvl);
            Task::leak(gvl, own.thread, Some(part))
        }
    };
    let part = task.fiber.as_ref()?;
    let made = ruby::protect(gvl, |gvl| {
        let fiber = ruby::call(gvl, names().fibers.get(), names().make, &[]);
        part.ruby.set(fiber);
    });
    if let Err((_, error)) = made {
        links::report(gvl, error);
        SPARE.with(gvl, |spare| spare.push(task));
        return None;
    }
    here(gvl, |l| l.all.push(task));
    Some(task)
}

/// The body of each fiber: serves requests until the loop ends the fiber.
pub(crate) fn body(gvl: &mut Gvl) {
    let Some(task) = here(gvl, |l| l.starting.take()).flatten() else { return };
    let Some(part) = &task.fiber else { return };
    loop {
        while let Some(job) = part.next.take() {
            serve_one(gvl, task, job);
            if !task.thread.killed.get() {
                part.next.set(another(gvl, task));
            }
        }
        if part.ends.get() {
            return;
        }
        let Some(root) = here(gvl, |l| {
            l.rests(task);
            l.root.get()
        }) else {
            return;
        };
        if let Err(unwind) = fiber::transfer(gvl, root) {
            let (killed, error) = fiber::caught(gvl, unwind);
            task.thread.killed.set(task.thread.killed.get() || killed);
            links::report(gvl, error);
        }
    }
}

fn serve_one(gvl: &mut Gvl, task: &'static Task, mut job: Job) {
    let started_us = os::now_us();
    let link = job.link as usize;
    if job.payload.len() <= COPY {
        let payload = Rc::new(job.bytes[job.payload.clone()].to_vec());
        let buffer = std::mem::replace(&mut job.bytes, payload);
        job.payload = 0..job.bytes.len();
        if let Ok(buffer) = Rc::try_unwrap(buffer) {
            worker(gvl, |w| w.links[link].reuse(buffer));
        }
    }
    if let Some(part) = &task.fiber {
        part.entered_us.set(started_us);
        reuse::begin(part);
    }
    Slices::turn_here();
    blocking::enters(task.thread, started_us);
    job::run(gvl, task, job, started_us);
    task.fiber.iter().for_each(|part| reuse::drop_alarms(gvl, part));
    collection::check(gvl);
    if let Err((_, error)) = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().fibers.get(), names().clean, &[]);
    }) {
        links::report(gvl, error);
    }
}

/// Takes another request for a fiber that has finished one, if no other fiber is ready.
fn another(gvl: &mut Gvl, task: &'static Task) -> Option<Job> {
    let now_us = os::now_us();
    if here(gvl, |l| l.waits.ready() + l.waits.preempted() > 0).unwrap_or(true)
        || worker(gvl, |w| w.must_send(now_us))
    {
        return None;
    }
    let (job, help) = worker(gvl, |w| w.take(task.thread.index, now_us))?;
    links::provide(gvl, help);
    Some(job)
}

/// Ends all fibers. The waiting ones have nothing to serve.
fn end_all(gvl: &mut Gvl) {
    here(gvl, Loop::end_slices);
    let all = here(gvl, |l| std::mem::take(&mut l.all)).unwrap_or_default();
    for task in all {
        let Some(part) = &task.fiber else { continue };
        if task.active.get() {
            // The thread was killed while it served requests.
            job::give_up(gvl, task);
            // Code of the app may still run in its fiber, which therefore keeps the task.
            continue;
        }
        part.ends.set(true);
        let _ = fiber::transfer(gvl, part.ruby.get());
        part.ends.set(false);
        part.ruby.set(NIL);
        part.idle.set(false);
        task.retire(gvl);
        SPARE.with(gvl, |spare| spare.push(task));
    }
    if let Err((_, error)) = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().fibers.get(), names().uninstall, &[]);
    }) {
        links::report(gvl, error);
    }
}
