//! The loop of a serving thread: takes up a request, serves it, sends finished responses.

use crate::link::Job;
use crate::names::names;
use crate::outbox::Sent;
use crate::pace::SLOW_US;
use crate::raw::gvl::{self, Gvl};
use crate::raw::gvl_wait;
use crate::raw::os::{self, Wait};
use crate::raw::panics;
use crate::raw::ruby::{self, Value};
use crate::ticket::Writer;
use crate::worker::place::{self, MAIN, STANDBY_AFTER, place};
use crate::worker::task::{CURRENT, Loan, ServingThread, Stage, Task};
use crate::worker::{Help, Step, Worker, worker, worker_at};
use crate::{collection, fibers, guest, job};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Acquire;

/// Serves as thread `index` until the worker has drained.
pub(crate) fn serve(gvl: &mut Gvl, index: usize) {
    let task = worker(gvl, |w| w.tasks[index]);
    CURRENT.set(Some(task));
    task.thread.ruby.set(Value::current_thread(gvl));
    gvl_wait::attach(gvl, &task.thread.gvl_wait);
    tell(gvl, names().thread_started);
    if worker(gvl, |w| w.options.fibers > 0) {
        fibers::serve(gvl, task);
    } else {
        panics::persist(|| serve_in_turn(gvl, task));
    }
    tell(gvl, names().thread_ended);
    // A thread killed by the app is replaced, to keep the number of threads.
    if worker(gvl, |w| w.thread_ends(task.thread.index)) {
        again(gvl, task.thread.index);
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
            // Meanwhile clients of waiting requests may have disconnected.
            poll_links(gvl);
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
        report(gvl, error);
    }
}

/// Restarts a thread that the app has killed.
pub(crate) fn again(gvl: &mut Gvl, index: usize) {
    let task = worker(gvl, |w| w.tasks[index]);
    task.thread.killed.set(false);
    start_thread(gvl, index);
}

/// Starts the Ruby thread of an existing task.
pub(crate) fn start_thread(gvl: &mut Gvl, index: usize) {
    worker(gvl, |w| {
        w.scoreboard.thread_started();
        w.thread_starts();
    });
    let here = place();
    let body = move |gvl: &mut Gvl| {
        place::settle(here);
        serve(gvl, index);
        // Ruby may reuse the native thread for another Ruby thread.
        CURRENT.set(None);
        place::settle(&MAIN);
    };
    let start = |gvl: &mut Gvl| ruby::spawn(gvl, Box::new(body)).keep();
    if let Err((_, error)) = ruby::protect(gvl, start) {
        worker(gvl, |w| w.thread_ends(index));
        report(gvl, error);
    }
}

pub(crate) fn report(gvl: &mut Gvl, error: Value) {
    // If this call fails, the error cannot be reported; the next request will fail in the same way.
    let _ = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().exchange.get(), names().interrupted, &[error]);
    });
}

#[inline]
fn next(gvl: &mut Gvl, task: &'static Task, now_us: &mut u64) -> Option<Job> {
    loop {
        if worker(gvl, |w| w.must_send(*now_us)) {
            send_all(gvl, task);
            *now_us = os::now_us();
        }
        match worker(gvl, |w| w.step(task.thread.index, *now_us, true)) {
            Step::Run(job, help) => {
                provide(gvl, help);
                return Some(job);
            }
            Step::Send => send_all(gvl, task),
            Step::Read => read(gvl, task),
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

/// Carries out what `help` asks for.
pub(crate) fn provide(gvl: &mut Gvl, help: Help) {
    match help {
        Help::None => {}
        Help::SetTimer => place().timer().set(STANDBY_AFTER),
        Help::Spawn(index) => match ServingThread::obtain(gvl, index) {
            Ok(task) => {
                worker(gvl, |w| w.tasks.push(task));
                start_thread(gvl, index);
            }
            Err(error) => crate::complain(format_args!("no further thread: {error}")),
        },
    }
}

/// Waits for the links and reads them. The caller must be the leader.
pub(crate) fn read(gvl: &mut Gvl, task: &'static Task) {
    let (links, alone) = worker(gvl, |w| (w.links.len(), w.only_reads()));
    if links == 1 && alone {
        return receive(gvl, task, 0, true);
    }
    if links == 1 && receive_now(gvl, 0) {
        return;
    }
    let fds: Vec<_> = worker(gvl, |w| w.links.iter().map(|link| link.fd).collect());
    let mut wait = Wait::readable(fds.into_iter().chain([task.thread.wakeup.fd()]));
    // With other requests active, look before releasing the GVL: a thread that computes keeps it for 100 ms.
    if !(worker(gvl, |w| w.is_active()) && wait.look()) {
        gvl::release(gvl, || wait.wait());
    }
    if wait.ready(links) {
        task.thread.wakeup.clear();
    }
    for at in (0..links).filter(|&at| wait.ready(at)) {
        receive_now(gvl, at);
    }
    drop(wait);
    interrupts(gvl, task);
}

/// Reads link `at` without waiting. Returns whether anything was read.
pub(crate) fn receive_now(gvl: &mut Gvl, at: usize) -> bool {
    let (fd, (mut input, mut fds)) = worker(gvl, |w| (w.links[at].fd, w.links[at].take_input()));
    let received = os::receive(fd, &mut input, &mut fds, false);
    worker(gvl, |w| w.links[at].give_back((input, fds)));
    digest(gvl, at, received)
}

pub(crate) fn receive(gvl: &mut Gvl, task: &'static Task, at: usize, wait: bool) {
    let (fd, (mut input, mut fds)) = worker(gvl, |w| (w.links[at].fd, w.links[at].take_input()));
    let received = gvl::release(gvl, || os::receive(fd, &mut input, &mut fds, wait));
    worker(gvl, |w| w.links[at].give_back((input, fds)));
    let interrupted = received.as_ref().is_none_or(|received| received.is_err());
    if let Some(received) = received {
        digest(gvl, at, received);
    }
    if interrupted {
        interrupts(gvl, task);
    }
}

fn digest(gvl: &mut Gvl, at: usize, received: io::Result<usize>) -> bool {
    match received {
        Ok(0) => front_gone(gvl),
        Ok(_) => {
            let mut messages = Vec::new();
            let cut = worker(gvl, |w| w.links[at].cut(&mut w.inbox, &mut messages));
            if let Err(error) = cut {
                protocol_error(gvl, &error);
                return false;
            }
            messages.iter().for_each(|(link, message)| worker(gvl, |w| w.handle(gvl, *link, message)));
            true
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
        Err(_) => front_gone(gvl),
    }
}

/// Handles the end of file: the front has exited. The worker exits too, unless it is finishing anyway.
fn front_gone(gvl: &mut Gvl) -> bool {
    if !worker(gvl, |w| w.is_over()) {
        end(gvl, 0);
    }
    false
}

/// Ends the worker, which cannot go on. A forked worker exits; an attached worker stops serving and leaves its process running.
pub(crate) fn end(gvl: &Gvl, code: i32) {
    worker(gvl, |w| {
        if w.attached.is_none() {
            os::exit_now(code);
        }
        w.lose(gvl);
    });
}

/// Handles an invalid frame from the front: the worker ends, and the front starts another one.
pub(crate) fn protocol_error(gvl: &Gvl, error: &wire::Malformed) {
    let what = if worker(gvl, |w| w.attached.is_some()) { "server" } else { "process" };
    crate::complain(format_args!("worker {}: {error}; ending the {what}", std::process::id()));
    end(gvl, 70);
}

/// Sends the unsent frames of all links.
pub(crate) fn send_all(gvl: &mut Gvl, task: &'static Task) {
    let links = worker(gvl, |w| w.links.len());
    for at in 0..links {
        if worker(gvl, |w| w.links[at].outbox().unsent() > 0) {
            send(gvl, task, at);
        }
    }
}

/// Sends the unsent frames of link `at`, on the thread's own task. Waits without the GVL while the socket is full.
pub(crate) fn send(gvl: &mut Gvl, task: &'static Task, at: usize) {
    loop {
        let (outbox, fd, lost) = worker(gvl, |w| (w.links[at].outbox(), w.links[at].fd, w.is_lost()));
        if lost {
            return;
        }
        match outbox.send() {
            Ok(Sent::All) => return,
            Ok(Sent::Part) => {}
            Err(_) => return end(gvl, 0),
        }
        let mut wait = Wait::writable(fd);
        gvl::release(gvl, || wait.wait());
        drop(wait);
        interrupts(gvl, task);
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
    interrupts(gvl, task);
}

/// Sends the unsent frames of the request's link, from any thread or fiber. Waits while the socket is full. May raise.
pub(crate) fn flush(gvl: &mut Gvl, task: &'static Task) {
    let (at, outbox) = (task.place.get(), task.outbox());
    while !worker_at(gvl, at, |w| w.is_lost()).unwrap_or(true) {
        match outbox.send() {
            Ok(Sent::All) => return,
            Ok(Sent::Part) => {}
            Err(_) => return place::within(at, || end(gvl, 0)),
        }
        if !task.has_this_thread() && fibers::wait_writable(gvl, outbox.fd()) {
            continue;
        }
        let mut wait = Wait::writable(outbox.fd());
        gvl::release(gvl, || wait.wait());
        drop(wait);
        if task.is_current() {
            interrupts(gvl, task);
        } else {
            ruby::check_interrupts(gvl);
        }
    }
}

/// Waits until the front gives window bytes back. May raise: the body has ended, the client has disconnected, or an interrupt.
pub(crate) fn wait_for_window(gvl: &mut Gvl, writer: Writer) {
    let task = writer.task;
    let waits =
        |gvl: &Gvl| task.window.get() <= 0 && !task.gone.get() && writer.is_open(gvl) && !is_lost(gvl, task);
    while waits(gvl) {
        flush(gvl, task);
        // A message from the front may have arrived meanwhile.
        if waits(gvl) {
            wait_for_news(gvl, task, |_| true);
        }
    }
    resign(gvl, task);
    must_be_open(gvl, writer);
    raise_if_gone(gvl, task);
}

fn is_lost(gvl: &Gvl, task: &Task) -> bool {
    worker_at(gvl, task.place.get(), |w| w.is_lost()).unwrap_or(true)
}

/// Sends the offer that has been appended and waits for LEND, which carries the client's socket or none. May raise: the client has
/// disconnected, or an interrupt.
pub(crate) fn wait_for_loan(gvl: &mut Gvl, task: &'static Task) -> Option<RawFd> {
    task.loan.set(Loan::Offered);
    while task.loan.get() == Loan::Offered && !task.gone.get() {
        flush(gvl, task);
        if task.loan.get() == Loan::Offered && !task.gone.get() {
            // LEND comes soon: reading it here is cheaper than waking another thread, unless requests wait for a thread.
            wait_for_news(gvl, task, |w| !w.inbox.is_empty());
        }
    }
    resign(gvl, task);
    raise_if_gone(gvl, task);
    match task.loan.get() {
        Loan::Lent(fd) => Some(fd),
        Loan::None | Loan::Offered | Loan::Declined => None,
    }
}

/// Waits until a message from the front arrives for the request. Works on any thread or fiber; may return early. The request's own
/// thread reads the links itself if no other thread does, unless `appoints` holds and an idle thread can. May raise.
fn wait_for_news(gvl: &mut Gvl, task: &'static Task, appoints: fn(&Worker) -> bool) {
    if task.has_this_thread() {
        let leads = worker(gvl, |w| {
            if matches!(w.leader, Some(leader) if leader != task.thread.index) || (appoints(w) && w.appoint())
            {
                return false;
            }
            w.lead(task.thread.index);
            true
        });
        watch(gvl, task, leads);
    } else if !fibers::wait_for_news(gvl, task) {
        guest::wait_for_news(gvl, task);
    }
}

/// Reads the links as their leader, or waits to be woken.
fn watch(gvl: &mut Gvl, task: &'static Task, leads: bool) {
    if leads {
        return read(gvl, task);
    }
    let wakeup = task.thread.wakeup.fd();
    gvl::release(gvl, || Wait::readable([wakeup].into_iter()).wait());
    task.thread.wakeup.clear();
    interrupts(gvl, task);
}

/// Reads the links without waiting, if no other thread does.
pub(crate) fn poll_links(gvl: &mut Gvl) {
    if worker(gvl, |w| w.leader.is_none()) {
        (0..worker(gvl, |w| w.links.len())).for_each(|at| {
            receive_now(gvl, at);
        });
    }
}

/// Raises if the client has disconnected while the body is being written. Does not wait.
pub(crate) fn check_client(gvl: &mut Gvl, writer: Writer) {
    if writer.is_open(gvl) {
        place::within(writer.task.place.get(), || poll_links(gvl));
        raise_if_gone(gvl, writer.task);
    }
}

/// Raises if the body has ended.
pub(crate) fn must_be_open(gvl: &mut Gvl, writer: Writer) {
    if !writer.is_open(gvl) {
        body_is_over(gvl)
    }
}

/// Raises because the block of a body was called after the body had ended, possibly long after its request.
pub(crate) fn body_is_over(gvl: &mut Gvl) -> ! {
    ruby::raise(gvl, names().io_error.get(), "the response has ended: nothing can be written to its body")
}

fn raise_if_gone(gvl: &mut Gvl, task: &'static Task) {
    if task.gone.get() && task.stage.get() != Stage::Ended {
        ruby::raise(gvl, names().client_gone.get(), "the client has gone");
    }
}

fn resign(gvl: &mut Gvl, task: &'static Task) {
    if task.has_this_thread() && worker(gvl, |w| w.leader == Some(task.thread.index)) {
        provide(gvl, worker(gvl, |w| w.step_down(task.thread.index, os::now_us())));
    }
}

/// Lets Ruby handle interrupts. While the app runs, their exceptions are raised in it (this function then does not return);
/// otherwise they are logged.
pub(crate) fn interrupts(gvl: &mut Gvl, task: &'static Task) {
    if task.in_app.get() {
        resign(gvl, task);
        return ruby::check_interrupts(gvl);
    }
    match ruby::protect(gvl, ruby::check_interrupts) {
        Err((jump, _)) if jump.is_kill() => task.thread.killed.set(true),
        Err((_, error)) => report(gvl, error),
        Ok(()) => {}
    }
}
