//! Tickets: the app's references to a request, valid on other threads and fibers and after the end of the request.
//!
//! Why: the code of a request may run anywhere, and the thread or fiber that served it serves another request
//! next. So Ruby refers to a request by a number that is never reused, and never finds it by the thread or
//! fiber on which the code happens to run.
//!
//! Contract:
//! 1. A ticket consists of a task and one of its serial numbers. A task gives out each number once: to its
//!    request, and to each run of a body's `each`.
//! 2. Between [`Ticket::request`] or [`Writer::is_open`] and the append to the link, the caller must neither
//!    wait nor call Ruby.

use crate::raw::gvl::Gvl;
use crate::raw::handle;
use crate::raw::ruby::{self, Value};
use crate::worker::task::{ResponseStage, Task};
use crate::worker::worker_at;
use wire::response::Suspended;

/// Bits of a serial number. The remaining bits of a small integer of Ruby hold the task's number.
const SERIAL: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// Makes a ticket, which is never 0.
    fn new(task: &Task, serial: u64) -> Ticket {
        Ticket((task.number as u64 + 1) << SERIAL | serial)
    }

    fn task(self, gvl: &Gvl) -> Option<&'static Task> {
        let number = usize::try_from(self.0 >> SERIAL).ok()?.checked_sub(1)?;
        Task::numbered(gvl, number)
    }

    fn serial(self) -> u64 {
        self.0 & ((1 << SERIAL) - 1)
    }

    /// Returns the ticket of the request that the task serves.
    pub(crate) fn of_request(task: &Task) -> Ticket {
        Ticket::new(task, task.request.get())
    }

    /// Makes an object for the app that refers to the ticket.
    #[inline]
    pub(crate) fn handle(self, gvl: &mut Gvl, class: Value) -> Value {
        handle::new(gvl, class, self.0)
    }

    /// Returns the ticket of such an object.
    pub(crate) fn of_handle(gvl: &Gvl, handle: Value) -> Option<Ticket> {
        handle::number(gvl, handle).map(Ticket)
    }

    /// Returns the request, while it is being served and its response has not ended. `None` in a child that
    /// the app has forked.
    pub(crate) fn request(self, gvl: &Gvl) -> Option<&'static Task> {
        let task = self.task(gvl)?;
        let is_served = task.active.get()
            && task.request.get() == self.serial()
            && task.stage.get() != ResponseStage::Ended;
        (is_served && has_worker(gvl, task)).then_some(task)
    }
}

/// Returns whether the worker of the task is in this process.
fn has_worker(gvl: &Gvl, task: &Task) -> bool {
    worker_at(gvl, task.place.get(), |_| ()).is_some()
}

/// The right to write the body of a response. It belongs to the block of the body's `each`, while that runs.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) task: &'static Task,
    serial: u64,
}

impl Writer {
    /// Begins a body; `head` waits for its first bytes. Ends the right of any previous writer.
    pub(crate) fn open(task: &'static Task, head: Option<Suspended>) -> Writer {
        let serial = task.next_serial();
        task.writer.set(serial);
        task.suspended.set(head);
        Writer { task, serial }
    }

    /// Converts the writer to the value that Ruby keeps with the block.
    pub(crate) fn to_value(self, gvl: &mut Gvl) -> Value {
        ruby::integer(gvl, Ticket::new(self.task, self.serial).0 as i64)
    }

    /// Returns the writer of a block, if the body has not ended.
    #[inline]
    pub(crate) fn of_value(gvl: &Gvl, value: Value) -> Option<Writer> {
        let ticket = Ticket(value.fixnum()? as u64);
        let writer = Writer { task: ticket.task(gvl)?, serial: ticket.serial() };
        writer.is_open(gvl).then_some(writer)
    }

    #[inline]
    pub(crate) fn is_open(self, gvl: &Gvl) -> bool {
        self.task.active.get() && self.task.writer.get() == self.serial && has_worker(gvl, self.task)
    }

    /// Ends this body: its block can write nothing any more.
    pub(crate) fn close(self, gvl: &Gvl) {
        if self.task.writer.get() == self.serial {
            self.task.close_writer(gvl);
        }
    }
}
