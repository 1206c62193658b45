//! The loop of a serving thread: find a request, serve it, send what there is to send.

use crate::job;
use crate::link::{Job, Sent};
use crate::names::names;
use crate::raw::gvl;
use crate::raw::gvl_wait;
use crate::raw::os::{self, Wait};
use crate::raw::ruby::{self, Value};
use crate::task::{Loan, Stage, Task};
use crate::worker::{Help, PATIENCE, SLOW_US, Step, alarm, is_standby, must_take_over, worker};
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Acquire;

thread_local! {
    static CURRENT: Cell<Option<&'static Task>> = const { Cell::new(None) };
}

/// The request that the calling thread is serving.
pub(crate) fn current() -> Option<&'static Task> {
    CURRENT.get().filter(|task| task.in_app.get())
}

/// Serves until the worker has drained, as thread `index`.
pub(crate) fn serve(index: usize) {
    let task = worker(|w| w.tasks[index]);
    CURRENT.set(Some(task));
    task.thread.set(Value::current_thread());
    gvl_wait::attach(&task.gvl_wait);
    let mut now_us = os::now_us();
    while let Some(job) = next(task, &mut now_us) {
        let bytes = Rc::clone(&job.bytes);
        let link = job.link as usize;
        let started_us = now_us;
        now_us = job::run(task, job, started_us);
        if now_us.saturating_sub(started_us) > SLOW_US {
            // Clients of requests that wait here may have gone meanwhile.
            listen();
        }
        worker(|w| {
            if let Ok(buffer) = Rc::try_unwrap(bytes) {
                w.links[link].reuse(buffer);
            }
        });
        if !task.in_app.get() && task.killed.get() {
            break;
        }
    }
    replace(task);
}

/// A thread that the app has killed is replaced: the worker keeps its size.
fn replace(task: &'static Task) {
    let again = worker(|w| {
        w.awake(task.index);
        if w.leader == Some(task.index) {
            w.leader = None;
        }
        !w.finished
    });
    if again && task.index > 0 {
        task.killed.set(false);
        start_thread(task.index);
    }
}

/// Starts the Ruby thread of a task that exists already.
pub(crate) fn start_thread(index: usize) {
    worker(|w| w.scoreboard.thread_started());
    let start = &|| ruby::spawn(Box::new(move || serve(index))).keep();
    if let Err((_, error)) = ruby::protect(start) {
        report(error);
    }
}

fn report(error: Value) {
    // What fails here has nowhere else to go, and the next request finds out by itself.
    let _ = ruby::protect(|| {
        ruby::call(names().exchange.get(), names().interrupted, &[error]);
    });
}

#[inline]
fn next(task: &'static Task, now_us: &mut u64) -> Option<Job> {
    loop {
        if worker(|w| w.must_send(*now_us)) {
            send_all(task);
            *now_us = os::now_us();
        }
        match worker(|w| w.step(task.index, *now_us)) {
            Step::Run(job, help) => {
                lend(help);
                return Some(job);
            }
            Step::Read => read(task),
            Step::Sleep => sleep(task),
            Step::Stop => return None,
        }
        if task.killed.get() {
            return None;
        }
        *now_us = os::now_us();
    }
}

/// Does what [`Help`] says.
pub(crate) fn lend(help: Help) {
    match help {
        Help::None => {}
        Help::Watch => alarm().set(PATIENCE),
        Help::Spawn(index) => match os::Bell::new() {
            Ok(bell) => {
                let task = Task::leak(index, bell);
                task.template.set(crate::env::template());
                worker(|w| w.tasks.push(task));
                start_thread(index);
            }
            Err(error) => eprintln!("firebrick: no further thread: {error}"),
        },
    }
}

/// Reads the links; waits until there is something. The caller is the leader.
pub(crate) fn read(task: &'static Task) {
    let (links, alone) = worker(|w| (w.links.len(), w.options.threads_max == 1));
    if links == 1 && alone {
        return receive(task, 0, true);
    }
    if links == 1 && receive_now(0) {
        return;
    }
    let fds: Vec<_> = worker(|w| w.links.iter().map(|link| link.fd).collect());
    let mut wait = Wait::readable(fds.into_iter().chain([task.bell.fd()]));
    gvl::release(|| wait.wait());
    if wait.ready(links) {
        task.bell.hush();
    }
    for at in (0..links).filter(|&at| wait.ready(at)) {
        receive_now(at);
    }
    drop(wait);
    interrupts(task);
}

/// Takes what has come on link `at`, if anything.
fn receive_now(at: usize) -> bool {
    let (fd, (mut input, mut fds)) = worker(|w| (w.links[at].fd, w.links[at].take_input()));
    let received = os::receive(fd, &mut input, &mut fds, false);
    worker(|w| w.links[at].give_back((input, fds)));
    digest(at, received)
}

fn receive(task: &'static Task, at: usize, wait: bool) {
    let (fd, (mut input, mut fds)) = worker(|w| (w.links[at].fd, w.links[at].take_input()));
    let received = gvl::release(|| os::receive(fd, &mut input, &mut fds, wait));
    worker(|w| w.links[at].give_back((input, fds)));
    let interrupted = received.as_ref().is_none_or(|received| received.is_err());
    if let Some(received) = received {
        digest(at, received);
    }
    if interrupted {
        interrupts(task);
    }
}

fn digest(at: usize, received: io::Result<usize>) -> bool {
    match received {
        Ok(0) => front_gone(),
        Ok(_) => {
            let mut words = Vec::new();
            let cut = worker(|w| w.links[at].cut(&mut w.inbox, &mut words));
            if let Err(error) = cut {
                protocol_error(&error);
            }
            words.iter().for_each(|(link, word)| worker(|w| w.hear(*link, word)));
            true
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
        Err(_) => front_gone(),
    }
}

/// End of file: nobody is there to answer to. While the worker is on its way out, the way is not cut short.
fn front_gone() -> bool {
    if !worker(|w| w.finished || (w.draining && w.active == 0 && w.inbox.is_empty())) {
        os::exit_now(0);
    }
    false
}

/// The front and this worker do not speak the same language: a new worker may.
pub(crate) fn protocol_error(error: &wire::Malformed) -> ! {
    eprintln!("firebrick: worker {}: {error}; ending the process", std::process::id());
    os::exit_now(70)
}

/// Sends what waits on all links.
fn send_all(task: &'static Task) {
    let links = worker(|w| w.links.len());
    (0..links).for_each(|at| send(task, at));
}

/// Sends what waits on link `at`; waits without the GVL while the socket is full.
pub(crate) fn send(task: &'static Task, at: usize) {
    loop {
        let (sent, fd) = worker(|w| (w.links[at].send(), w.links[at].fd));
        match sent {
            Ok(Sent::All) => return,
            Ok(Sent::Full) => {}
            Err(_) => os::exit_now(0),
        }
        let mut wait = Wait::writable(fd);
        gvl::release(|| wait.wait());
        drop(wait);
        interrupts(task);
    }
}

/// Sleeps until called, or until the standby has to take over.
fn sleep(task: &'static Task) {
    gvl::release(|| {
        loop {
            let watch = is_standby(task.index);
            let fds = [task.bell.fd(), alarm().fd()];
            let mut wait = Wait::readable(fds.into_iter().take(if watch { 2 } else { 1 }));
            wait.wait();
            if wait.ready(0) {
                task.bell.hush();
                if task.called.swap(false, Acquire) {
                    return;
                }
                continue;
            }
            if !wait.ready(1) {
                return;
            }
            alarm().hush(PATIENCE);
            if must_take_over(os::now_us()) {
                return;
            }
        }
    });
    worker(|w| w.awake(task.index));
    interrupts(task);
}

/// Waits until the front has given window bytes back. May raise: the client has gone, or an interrupt.
pub(crate) fn wait_for_window(task: &'static Task) {
    while task.window.get() <= 0 && !task.gone.get() {
        send(task, task.link.get() as usize);
        let leads = worker(|w| {
            if matches!(w.leader, Some(leader) if leader != task.index) || w.appoint() {
                return false;
            }
            w.lead(task.index);
            true
        });
        watch(task, leads);
    }
    resign(task);
    raise_if_gone(task);
}

/// Sends the offer that has been appended and waits for its answer: the client's socket, or none. May raise: the client has
/// gone, or an interrupt.
pub(crate) fn wait_for_loan(task: &'static Task) -> Option<RawFd> {
    task.loan.set(Loan::Asked);
    while task.loan.get() == Loan::Asked && !task.gone.get() {
        send(task, task.link.get() as usize);
        // The answer comes soon: to read it oneself is cheaper than to wake another thread, unless that has work to do.
        let leads = worker(|w| {
            if matches!(w.leader, Some(leader) if leader != task.index)
                || (!w.inbox.is_empty() && w.appoint())
            {
                return false;
            }
            w.lead(task.index);
            true
        });
        watch(task, leads);
    }
    resign(task);
    raise_if_gone(task);
    match task.loan.get() {
        Loan::Lent(fd) => Some(fd),
        Loan::None | Loan::Asked | Loan::Declined => None,
    }
}

/// Reads the links as their leader, or waits to be called.
fn watch(task: &'static Task, leads: bool) {
    if leads {
        return read(task);
    }
    gvl::release(|| Wait::readable([task.bell.fd()].into_iter()).wait());
    task.bell.hush();
    interrupts(task);
}

/// Hears, without waiting, what the front has to say, if nobody else does.
fn listen() {
    if worker(|w| w.leader.is_none()) {
        (0..worker(|w| w.links.len())).for_each(|at| {
            receive_now(at);
        });
    }
}

/// Finds out, without waiting, whether the client has gone. May raise.
pub(crate) fn glance(task: &'static Task) {
    listen();
    raise_if_gone(task);
}

fn raise_if_gone(task: &'static Task) {
    if task.gone.get() && task.stage.get() != Stage::Ended {
        ruby::raise(names().client_gone.get(), "the client has gone");
    }
}

fn resign(task: &'static Task) {
    if worker(|w| w.leader == Some(task.index)) {
        lend(worker(|w| w.step_down(task.index, os::now_us())));
    }
}

/// Lets Ruby act on interrupts. What they raise is the app's while it runs (this function then does not return);
/// otherwise it is reported.
pub(crate) fn interrupts(task: &'static Task) {
    if task.in_app.get() {
        resign(task);
        return ruby::check_interrupts();
    }
    match ruby::protect(ruby::check_interrupts) {
        Err((jump, _)) if jump.is_kill() => task.killed.set(true),
        Err((_, error)) => report(error),
        Ok(()) => {}
    }
}
