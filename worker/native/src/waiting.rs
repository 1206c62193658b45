//! Waits in the code of a request, on any thread or fiber: for room in the socket, for the front's window, for a loan.
//!
//! Contract: all may raise, so their callers own nothing that needs dropping.

use crate::names::names;
use crate::outbox::Sent;
use crate::raw::gvl::{self, Gvl};
use crate::raw::os::Wait;
use crate::raw::ruby;
use crate::ticket::Writer;
use crate::worker::place;
use crate::worker::task::{Loan, ResponseStage, Task};
use crate::worker::{Worker, worker, worker_at};
use crate::{fibers, guest, links};
use std::os::fd::RawFd;

/// Sends the unsent frames of the request's link, from any thread or fiber. Waits while the socket is full. May raise.
pub(crate) fn flush(gvl: &mut Gvl, task: &'static Task) {
    let (at, outbox) = (task.place.get(), task.outbox());
    while !worker_at(gvl, at, |w| w.is_lost()).unwrap_or(true) {
        match outbox.send() {
            Ok(Sent::All) => return,
            Ok(Sent::Part) => {}
            Err(_) => return place::within(at, || links::end(gvl, 0)),
        }
        if !task.has_this_thread() && fibers::wait_writable(gvl, outbox.fd()) {
            continue;
        }
        let mut wait = Wait::writable(outbox.fd());
        gvl::release(gvl, || wait.wait());
        drop(wait);
        if task.is_current() {
            links::interrupts(gvl, task);
        } else {
            ruby::check_interrupts(gvl);
        }
    }
}

/// Waits until the front grants window bytes. May raise: the body has ended, the client has disconnected, or
/// an interrupt.
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
    links::resign(gvl, task);
    must_be_open(gvl, writer);
    raise_if_gone(gvl, task);
}

fn is_lost(gvl: &Gvl, task: &Task) -> bool {
    worker_at(gvl, task.place.get(), |w| w.is_lost()).unwrap_or(true)
}

/// Sends the offer that has been appended and waits for LEND, which carries the client's socket or none. May
/// raise: the client has disconnected, or an interrupt.
pub(crate) fn wait_for_loan(gvl: &mut Gvl, task: &'static Task) -> Option<RawFd> {
    task.loan.set(Loan::Offered);
    while task.loan.get() == Loan::Offered && !task.gone.get() {
        flush(gvl, task);
        if task.loan.get() == Loan::Offered && !task.gone.get() {
            // LEND comes soon: reading it here is cheaper than waking another thread, unless requests wait
            // for a thread.
            wait_for_news(gvl, task, |w| !w.inbox.is_empty());
        }
    }
    links::resign(gvl, task);
    raise_if_gone(gvl, task);
    match task.loan.get() {
        Loan::Lent(fd) => Some(fd),
        Loan::None | Loan::Offered | Loan::Declined => None,
    }
}

/// Waits until a message from the front arrives for the request. Works on any thread or fiber; may return
/// early. The request's own thread reads the links itself if no other thread does, unless `appoints` is true
/// and an idle thread can. May raise.
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
        return links::read(gvl, task);
    }
    let wakeup = task.thread.wakeup.fd();
    gvl::release(gvl, || Wait::readable([wakeup].into_iter()).wait());
    task.thread.wakeup.clear();
    links::interrupts(gvl, task);
}

/// Raises if the client has disconnected while the body is being written. Does not wait.
pub(crate) fn check_client(gvl: &mut Gvl, writer: Writer) {
    if writer.is_open(gvl) {
        place::within(writer.task.place.get(), || links::poll_links(gvl));
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
    if task.gone.get() && task.stage.get() != ResponseStage::Ended {
        ruby::raise(gvl, names().client_gone.get(), "the client has gone");
    }
}
