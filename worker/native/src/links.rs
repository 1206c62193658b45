//! Reads and sends the links for serving threads, and handles the consequences: another thread starts, an
//! interrupt is handled, the worker ends.
//!
//! Contract: a waiting thread has released the GVL. The reading thread is the leader (`worker/roles.rs`),
//! except for reads that do not wait.

use crate::names::names;
use crate::outbox::Sent;
use crate::raw::gvl::{self, Gvl};
use crate::raw::os::{self, Wait};
use crate::raw::ruby::{self, Value};
use crate::worker::place::{self, MAIN, STANDBY_AFTER, place};
use crate::worker::task::{CURRENT, ServingThread, Task};
use crate::worker::{Help, worker};
use std::io;

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
    // With other requests active, check before releasing the GVL: a thread that computes keeps it for 100 ms.
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

/// Ends the worker, which cannot go on. A forked worker exits; an attached worker stops serving and leaves
/// its process running.
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

/// Reads the links without waiting, if no other thread does.
pub(crate) fn poll_links(gvl: &mut Gvl) {
    if worker(gvl, |w| w.leader.is_none()) {
        (0..worker(gvl, |w| w.links.len())).for_each(|at| {
            receive_now(gvl, at);
        });
    }
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

/// Carries out the decision `help`.
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

/// Starts the Ruby thread of an existing task.
fn start_thread(gvl: &mut Gvl, index: usize) {
    let serve = worker(gvl, |w| {
        w.scoreboard.thread_started();
        w.thread_starts();
        w.options.serve
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

/// Restarts a thread that the app has killed.
pub(crate) fn again(gvl: &mut Gvl, index: usize) {
    let task = worker(gvl, |w| w.tasks[index]);
    task.thread.killed.set(false);
    start_thread(gvl, index);
}

/// Gives up the leadership that a wait for the request took, because its code goes on.
pub(crate) fn resign(gvl: &mut Gvl, task: &'static Task) {
    if task.has_this_thread() && worker(gvl, |w| w.leader == Some(task.thread.index)) {
        provide(gvl, worker(gvl, |w| w.step_down(task.thread.index, os::now_us())));
    }
}

/// Lets Ruby handle interrupts. While the app runs, their exceptions are raised in it (this function then
/// does not return); otherwise they are logged.
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

pub(crate) fn report(gvl: &mut Gvl, error: Value) {
    // If this call fails, the error cannot be reported; the next request will fail in the same way.
    let _ = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().exchange.get(), names().interrupted, &[error]);
    });
}
