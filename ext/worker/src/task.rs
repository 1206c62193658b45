//! A request while it is served. A thread has one task; a thread that serves with fibers has one for each of them.
//!
//! Contract: lives as long as the process; all fields are plain or known to the collector, so Ruby may raise while
//! any of them is in use.

use crate::emit::Open;
use crate::fibers;
use crate::fibers::{Key, Strand};
use crate::outbox::Outbox;
use crate::raw::gvl::{Guarded, Gvl, Scratch};
use crate::raw::os::{self, Wakeup};
use crate::raw::ruby::NIL;
use crate::raw::slots::Slot;
use crate::thread::ServingThread;
use crate::{place, serve, ticket};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use wire::response::Suspended;
use wire::times::Times;

/// How far the response has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Nothing of it has been appended to the link.
    Unsent,
    /// RESPONSE has been appended, END has not.
    Begun,
    /// The connection was handed to the app; END is missing.
    Hijacked,
    /// All of it has been appended.
    Ended,
}

/// State of the offer to write a part of the body straight to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loan {
    /// There is none.
    None,
    /// Offered; LEND has not come yet.
    Offered,
    Declined,
    /// The client's socket, which the worker must close.
    Lent(RawFd),
}

/// Who waits for news of a request, besides the thread that serves it.
pub(crate) enum Watcher {
    /// A fiber of the loop with this number.
    Fiber { number: usize, key: Key },
    /// A thread that serves no requests.
    Thread(&'static Wakeup),
}

pub(crate) struct Task {
    /// Its number among all of the process ([`crate::ticket`]).
    pub(crate) number: usize,
    /// The thread that serves it.
    pub(crate) thread: &'static ServingThread,
    /// What it is in the loop of that thread; `None` where threads serve without fibers.
    pub(crate) fiber: Option<Strand>,

    /// Code of the app may be running: what is raised belongs to it.
    pub(crate) in_app: Cell<bool>,
    pub(crate) active: Cell<bool>,
    /// Where the worker is that the request has come to.
    pub(crate) place: Cell<usize>,
    pub(crate) link: Cell<u32>,
    pub(crate) id: Cell<u32>,
    /// What waits to be sent on the request's link.
    outbox: Cell<Option<&'static Outbox>>,
    /// The last serial number that was given out ([`crate::ticket`]), that of the request, and that of the body which is being written (0: none is).
    last_serial: Cell<u64>,
    pub(crate) request: Cell<u64>,
    pub(crate) writer: Cell<u64>,
    /// The head that waits for the first bytes of that body.
    pub(crate) suspended: Cell<Option<Suspended>>,
    watchers: Cell<Vec<Watcher>>,
    pub(crate) started_us: Cell<u64>,
    /// How long the request had waited for a thread then, microseconds.
    pub(crate) queued_us: Cell<u64>,
    pub(crate) stage: Cell<Stage>,
    /// Bytes of BODY that may still be sent.
    pub(crate) window: Cell<i64>,
    pub(crate) loan: Cell<Loan>,
    /// The client has gone.
    pub(crate) gone: Cell<bool>,
    pub(crate) head_only: Cell<bool>,
    /// Processor time of the thread when it took the request up, microseconds; `None` when that is not measured.
    pub(crate) cpu_from: Cell<Option<u64>>,
    /// Something must be done after the response.
    pub(crate) unfinished: Cell<bool>,
    pub(crate) status: Cell<u16>,
    pub(crate) flushed_us: Cell<u64>,
    /// The last frame of the response, if more can be added to it.
    pub(crate) open: Cell<Option<Open>>,
    /// The body has a known length, or can become an array: it will end soon.
    pub(crate) finite: Cell<bool>,
    /// The app has encoded the body itself (Transfer-Encoding): the front decodes it, which takes BODY frames.
    pub(crate) coded: Cell<bool>,
    /// The app names a file that may take the place of the body (X-Sendfile, X-Accel-Redirect).
    pub(crate) send_file: Cell<bool>,

    pub(crate) env: &'static Slot,
    pub(crate) headers: &'static Slot,
    pub(crate) body: &'static Slot,
    /// `rack.hijack` of the response headers.
    pub(crate) take_over: &'static Slot,
    /// The `rack.input` that must be closed.
    pub(crate) input: &'static Slot,
    pub(crate) error: &'static Slot,
    pub(crate) after_reply: &'static Slot,
    pub(crate) response_finished: &'static Slot,

    pub(crate) head: Scratch,
    pub(crate) interim: Scratch,
}

impl Task {
    /// Whether the next wait of the app ends at once, because the client has gone.
    pub(crate) fn ends_waits(&self) -> bool {
        self.has_lost_client() && self.fiber.as_ref().is_some_and(|part| !part.held.get())
    }

    /// Whether the client has gone, and a wait is still to end for it.
    pub(crate) fn has_lost_client(&self) -> bool {
        let interruptible = self.fiber.as_ref().is_some_and(|part| part.interruptible.get());
        self.gone.get() && interruptible && self.stage.get() != Stage::Hijacked
    }

    /// The thread has ended with its worker: nothing of its last request stays, and no large buffer.
    pub(crate) fn retire(&self, gvl: &Gvl) {
        self.end(gvl);
        self.after_reply.set(NIL);
        self.response_finished.set(NIL);
        self.in_app.set(false);
        for buffer in [&self.head, &self.interim] {
            buffer.with(gvl, |bytes| *bytes = Vec::new());
        }
    }

    /// A task that lives as long as the process.
    pub(crate) fn leak(
        gvl: &mut Gvl,
        thread: &'static ServingThread,
        fiber: Option<Strand>,
    ) -> &'static Task {
        let number = ticket::next_number(gvl);
        let task = Box::leak(Box::new(Task {
            number,
            thread,
            fiber,
            in_app: Cell::new(false),
            active: Cell::new(false),
            place: Cell::new(place::here()),
            link: Cell::new(0),
            id: Cell::new(0),
            outbox: Cell::new(None),
            last_serial: Cell::new(0),
            request: Cell::new(0),
            writer: Cell::new(0),
            suspended: Cell::new(None),
            watchers: Cell::new(Vec::new()),
            started_us: Cell::new(0),
            queued_us: Cell::new(0),
            stage: Cell::new(Stage::Ended),
            window: Cell::new(0),
            loan: Cell::new(Loan::None),
            gone: Cell::new(false),
            head_only: Cell::new(false),
            cpu_from: Cell::new(None),
            unfinished: Cell::new(false),
            status: Cell::new(0),
            flushed_us: Cell::new(0),
            open: Cell::new(None),
            finite: Cell::new(false),
            coded: Cell::new(false),
            send_file: Cell::new(false),
            env: Slot::leak(gvl, NIL),
            headers: Slot::leak(gvl, NIL),
            body: Slot::leak(gvl, NIL),
            take_over: Slot::leak(gvl, NIL),
            input: Slot::leak(gvl, NIL),
            error: Slot::leak(gvl, NIL),
            after_reply: Slot::leak(gvl, NIL),
            response_finished: Slot::leak(gvl, NIL),
            head: Guarded::new(Vec::new()),
            interim: Guarded::new(Vec::new()),
        }));
        task.fiber.iter().for_each(|strand| strand.task.set(Some(task)));
        ticket::add(gvl, task);
        task
    }

    /// Resets the state for a new request, which has come to the worker of the calling thread.
    pub(crate) fn begin(&self, outbox: &'static Outbox, link: u32, id: u32, now_us: u64) {
        self.active.set(true);
        self.place.set(place::here());
        self.outbox.set(Some(outbox));
        self.request.set(self.next_serial());
        self.link.set(link);
        self.id.set(id);
        self.started_us.set(now_us);
        self.queued_us.set(0);
        self.flushed_us.set(now_us);
        self.stage.set(Stage::Unsent);
        self.window.set(i64::from(wire::INITIAL_WINDOW));
        self.gone.set(false);
        self.head_only.set(false);
        self.open.set(None);
        self.finite.set(false);
        self.coded.set(false);
        self.send_file.set(false);
        self.unfinished.set(true);
        self.status.set(0);
    }

    /// Measures the request that has begun, the thread having used `cpu_us` so far.
    pub(crate) fn measure(&self, cpu_us: u64) {
        self.cpu_from.set(Some(cpu_us));
        // The waits of a thread are those of all its fibers.
        if self.fiber.is_none() {
            self.thread.gvl_wait.begin();
        }
    }

    /// The loop enters the fiber.
    pub(crate) fn enter(&self) {
        let Some(fiber) = &self.fiber else { return };
        if self.cpu_from.get().is_some() {
            self.cpu_from.set(Some(os::thread_us().saturating_sub(fiber.used_us.get())));
        }
    }

    /// The fiber has been left.
    pub(crate) fn leave(&self) {
        if let (Some(fiber), Some(from)) = (&self.fiber, self.cpu_from.get()) {
            fiber.used_us.set(os::thread_us().saturating_sub(from));
        }
    }

    /// How long the request has taken at `now_us`.
    #[inline]
    pub(crate) fn times(&self, now_us: u64) -> Times {
        let saturating = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        let app_us = saturating(now_us.saturating_sub(self.started_us.get()));
        let Some(cpu_from) = self.cpu_from.get() else { return Times { app_us, cpu_us: None, gvl_us: None } };
        // Both are parts of the whole, which is measured by another clock.
        let part = |us: u64| saturating(us).min(app_us);
        let cpu_us = part(os::thread_us().saturating_sub(cpu_from));
        let gvl_us = self.thread.gvl_wait.so_far_us().filter(|_| self.fiber.is_none());
        Times { app_us, cpu_us: Some(cpu_us), gvl_us: gvl_us.map(part) }
    }

    /// A number that this task has not given out before.
    pub(crate) fn next_serial(&self) -> u64 {
        self.last_serial.set(self.last_serial.get() + 1);
        self.last_serial.get()
    }

    /// What waits to be sent on the request's link.
    ///
    /// # Panics
    /// Before the first request.
    #[inline]
    pub(crate) fn outbox(&self) -> &'static Outbox {
        self.outbox.get().expect("the task has had a request")
    }

    /// Whether the calling thread serves this request, and no other meanwhile: as it is without fibers.
    #[inline]
    pub(crate) fn has_this_thread(&self) -> bool {
        self.fiber.is_none() && self.is_current()
    }

    /// Whether the calling thread runs code for this request, as far as its loop knows.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        serve::CURRENT.get().is_some_and(|task| ptr::eq(task, self))
    }

    /// The body that is being written has ended: whoever still has its block writes no more.
    pub(crate) fn close_writer(&self, gvl: &Gvl) {
        self.writer.set(0);
        self.suspended.set(None);
        self.tell(gvl);
    }

    /// Someone waits for news.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let mut watchers = self.watchers.take();
        watchers.push(watcher);
        self.watchers.set(watchers);
    }

    /// A thread waits no more.
    pub(crate) fn forget(&self, wakeup: &'static Wakeup) {
        let mut watchers = self.watchers.take();
        watchers.retain(|one| !matches!(one, Watcher::Thread(other) if ptr::eq(*other, wakeup)));
        self.watchers.set(watchers);
    }

    /// There is news: all that wait look for themselves, and wait again if need be.
    pub(crate) fn tell(&self, gvl: &Gvl) {
        for watcher in self.watchers.take() {
            match watcher {
                Watcher::Fiber { number, key } => fibers::wake(gvl, number, key),
                Watcher::Thread(wakeup) => wakeup.wake(),
            }
        }
    }

    /// Closes the client's socket, if it is on loan.
    pub(crate) fn return_loan(&self) {
        if let Loan::Lent(fd) = self.loan.replace(Loan::None) {
            os::close(fd);
        }
    }

    /// Drops the references to the request, so that its objects can be collected.
    pub(crate) fn end(&self, gvl: &Gvl) {
        self.active.set(false);
        self.close_writer(gvl);
        if self.cpu_from.take().is_some() && self.fiber.is_none() {
            self.thread.gvl_wait.end();
        }
        self.return_loan();
        for slot in [self.env, self.headers, self.body, self.take_over, self.input, self.error] {
            slot.set(NIL);
        }
    }
}
