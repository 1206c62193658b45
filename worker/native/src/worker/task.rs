//! The state of a request while it is served. A thread has one task; a thread that serves with fibers has one task per fiber.
//!
//! Contract: a task lives as long as the process; all fields are plain or known to the collector, so Ruby may raise while
//! any of them is in use.

mod gauge;
pub(crate) mod strand;
mod thread;

pub(crate) use thread::ServingThread;

use super::place::{Place, place};
use crate::outbox::{FramePosition, Outbox};
use crate::raw::gvl::{Guarded, Gvl, Scratch};
use crate::raw::os::{self, Wakeup};
use crate::raw::ruby::{self, NIL};
use crate::raw::slots::RootSlot;
use crate::repeats::Repeats;
use gauge::Gauge;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand::{Key, Strand};
use wire::response::Suspended;
use wire::times::Times;
use wire::used::{REPEATED, Remarks, Used};

/// The progress of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseStage {
    /// Nothing has been appended to the link.
    Unsent,
    /// RESPONSE has been appended, END has not.
    Begun,
    /// The connection was handed to the app; END has not been appended.
    Hijacked,
    /// END has been appended.
    Ended,
}

/// The state of the offer to write a part of the body straight to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loan {
    None,
    /// Offered; LEND has not arrived yet.
    Offered,
    Declined,
    /// The client's socket, which the worker must close.
    Lent(RawFd),
}

/// A waiter for news of a request, other than the thread that serves it.
pub(crate) enum Watcher {
    /// A fiber of the loop with this number, and the function that ends its wait.
    Fiber { number: usize, key: Key, wake: fn(&Gvl, usize, Key) },
    /// A thread that serves no requests.
    Thread(&'static Wakeup),
}

/// The last frame of an unfinished response, while it is unsent.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) position: FramePosition,
    pub(crate) is_response: bool,
}

/// The largest number of tasks: a ticket has so many bits for one.
const MOST: usize = 1 << 21;

/// All tasks, by number.
static ALL: Guarded<Vec<&'static Task>> = Guarded::new(Vec::new());

thread_local! {
    /// The request that the calling thread serves; with fibers, that of the fiber which the loop entered last. Code of the app may run on
    /// another thread or fiber than its request's, so the state of a request is never looked up through this ([`crate::ticket`]).
    pub(crate) static CURRENT: Cell<Option<&'static Task>> = const { Cell::new(None) };
}

/// Set when a library reports its queries of the database.
static QUERIES_REPORTED: AtomicBool = AtomicBool::new(false);

/// Records that a library reports its queries of the database.
pub(crate) fn report_queries() {
    QUERIES_REPORTED.store(true, Relaxed);
}

pub(crate) struct Task {
    /// The task's number, unique in the process ([`crate::ticket`]).
    pub(crate) number: usize,
    pub(crate) thread: &'static ServingThread,
    /// Its part in the loop of that thread; `None` where threads serve without fibers.
    pub(crate) fiber: Option<Strand>,

    /// Code of the app may be running, so exceptions belong to it.
    pub(crate) in_app: Cell<bool>,
    pub(crate) active: Cell<bool>,
    /// The place of the worker that received the request.
    pub(crate) place: Cell<&'static Place>,
    pub(crate) link: Cell<u32>,
    pub(crate) id: Cell<u32>,
    /// The outbox of the request's link.
    outbox: Cell<Option<&'static Outbox>>,
    /// The last serial number given out ([`crate::ticket`]), the request's, and that of the body being written (0: none).
    last_serial: Cell<u64>,
    pub(crate) request: Cell<u64>,
    pub(crate) writer: Cell<u64>,
    /// The response head that waits for the first bytes of that body.
    pub(crate) suspended: Cell<Option<Suspended>>,
    watchers: Cell<Vec<Watcher>>,
    pub(crate) started_us: Cell<u64>,
    /// The time that the request had been queued before that, in microseconds.
    pub(crate) queued_us: Cell<u64>,
    pub(crate) stage: Cell<ResponseStage>,
    /// Bytes of BODY frames that may still be sent.
    pub(crate) window: Cell<i64>,
    pub(crate) loan: Cell<Loan>,
    /// The client has disconnected.
    pub(crate) gone: Cell<bool>,
    pub(crate) head_only: Cell<bool>,
    /// The request is the copy of a client's, by which a reload compares new code with old.
    pub(crate) shadow: Cell<bool>,
    /// Processor time of the thread when it took up the request, in microseconds; `None` when that is not measured.
    pub(crate) cpu_from: Cell<Option<u64>>,
    /// The counters of the process when the thread or fiber went on with a measured request, and what had been used of them before.
    gauge_from: Cell<Option<Gauge>>,
    gauge_used: Cell<Gauge>,
    /// Other threads of the process run Ruby, too.
    shares_process: Cell<bool>,
    /// The number of the request's route ([`crate::routes`]); 0: none.
    pub(crate) route: Cell<u16>,
    /// The request ([`Task::request`]) that has a number in a profile, and that number.
    pub(crate) profiled: Cell<(u64, u32)>,
    /// The request that has allocated objects while that is recorded, and its number there ([`crate::allocations`]).
    pub(crate) allocates: Cell<(u64, u32)>,
    /// The queries of the database so far, their time in microseconds, and when the current one began; 0: there is none.
    pub(crate) queries: Cell<u32>,
    pub(crate) queries_us: Cell<u64>,
    pub(crate) query_from_us: Cell<u64>,
    /// Them by their shapes; those of an earlier request while `queries` is 0.
    pub(crate) repeats: Repeats,
    /// The longest time for which a function in C has kept the GVL, in microseconds, and the number of its place's name.
    pub(crate) held: Cell<(u32, u16)>,
    /// Callbacks or an input remain to be finished after the response.
    pub(crate) unfinished: Cell<bool>,
    pub(crate) status: Cell<u16>,
    pub(crate) flushed_us: Cell<u64>,
    /// The last frame of the response, if it can still grow.
    pub(crate) open: Cell<Option<Open>>,
    /// The body has a known length, or can become an array, so it will end soon.
    pub(crate) finite: Cell<bool>,
    /// The app has encoded the body itself (Transfer-Encoding). The front decodes it, which requires BODY frames.
    pub(crate) coded: Cell<bool>,
    /// The response names a file that may replace the body (X-Sendfile, X-Accel-Redirect).
    pub(crate) send_file: Cell<bool>,
    /// The response names the protocol that the connection switches to (`rack.protocol`).
    pub(crate) switches: Cell<bool>,

    pub(crate) env: &'static RootSlot,
    pub(crate) headers: &'static RootSlot,
    pub(crate) body: &'static RootSlot,
    /// `rack.hijack` of the response headers.
    pub(crate) take_over: &'static RootSlot,
    /// The `rack.input` that must be closed.
    pub(crate) input: &'static RootSlot,
    pub(crate) error: &'static RootSlot,
    pub(crate) after_reply: &'static RootSlot,
    pub(crate) response_finished: &'static RootSlot,

    pub(crate) head: Scratch,
    pub(crate) interim: Scratch,
}

impl Task {
    /// Returns whether the next wait of the app ends at once because the client has disconnected.
    pub(crate) fn ends_waits(&self) -> bool {
        self.has_lost_client() && self.fiber.as_ref().is_some_and(|part| !part.held.get())
    }

    /// Returns whether the client has disconnected and no wait has been ended for that yet.
    pub(crate) fn has_lost_client(&self) -> bool {
        let interruptible = self.fiber.as_ref().is_some_and(|part| part.interruptible.get());
        self.gone.get() && interruptible && self.stage.get() != ResponseStage::Hijacked
    }

    /// Releases what the last request holds, and large buffers, after the thread has ended with its worker.
    pub(crate) fn retire(&self, gvl: &Gvl) {
        self.end(gvl);
        self.after_reply.set(NIL);
        self.response_finished.set(NIL);
        self.in_app.set(false);
        for buffer in [&self.head, &self.interim] {
            buffer.with(gvl, |bytes| *bytes = Vec::new());
        }
    }

    /// Makes a task that lives as long as the process.
    ///
    /// # Panics
    /// When there are [`MOST`] tasks already.
    pub(crate) fn leak(
        gvl: &mut Gvl,
        thread: &'static ServingThread,
        fiber: Option<Strand>,
    ) -> &'static Task {
        let number = ALL.with(gvl, |all| all.len());
        assert!(number < MOST, "too many tasks");
        let task = Box::leak(Box::new(Task {
            number,
            thread,
            fiber,
            in_app: Cell::new(false),
            active: Cell::new(false),
            place: Cell::new(place()),
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
            stage: Cell::new(ResponseStage::Ended),
            window: Cell::new(0),
            loan: Cell::new(Loan::None),
            gone: Cell::new(false),
            head_only: Cell::new(false),
            shadow: Cell::new(false),
            cpu_from: Cell::new(None),
            gauge_from: Cell::new(None),
            gauge_used: Cell::new(Gauge::default()),
            shares_process: Cell::new(false),
            route: Cell::new(0),
            profiled: Cell::new((0, 0)),
            allocates: Cell::new((0, 0)),
            queries: Cell::new(0),
            queries_us: Cell::new(0),
            query_from_us: Cell::new(0),
            repeats: Repeats::default(),
            held: Cell::new((0, 0)),
            unfinished: Cell::new(false),
            status: Cell::new(0),
            flushed_us: Cell::new(0),
            open: Cell::new(None),
            finite: Cell::new(false),
            coded: Cell::new(false),
            send_file: Cell::new(false),
            switches: Cell::new(false),
            env: RootSlot::leak(gvl, NIL),
            headers: RootSlot::leak(gvl, NIL),
            body: RootSlot::leak(gvl, NIL),
            take_over: RootSlot::leak(gvl, NIL),
            input: RootSlot::leak(gvl, NIL),
            error: RootSlot::leak(gvl, NIL),
            after_reply: RootSlot::leak(gvl, NIL),
            response_finished: RootSlot::leak(gvl, NIL),
            head: Guarded::new(Vec::new()),
            interim: Guarded::new(Vec::new()),
        }));
        task.fiber.iter().for_each(|strand| strand.task.set(Some(task)));
        ALL.with(gvl, |all| all.push(task));
        task
    }

    /// Returns all tasks of the process, also those without a request.
    pub(crate) fn all(gvl: &Gvl) -> Vec<&'static Task> {
        ALL.with(gvl, |all| all.clone())
    }

    pub(crate) fn numbered(gvl: &Gvl, number: usize) -> Option<&'static Task> {
        ALL.with(gvl, |all| all.get(number).copied())
    }

    /// Resets the state for a new request of the calling thread's worker.
    pub(crate) fn begin(&self, outbox: &'static Outbox, link: u32, id: u32, now_us: u64) {
        self.active.set(true);
        self.place.set(place());
        self.outbox.set(Some(outbox));
        self.request.set(self.next_serial());
        self.link.set(link);
        self.id.set(id);
        self.started_us.set(now_us);
        self.queued_us.set(0);
        self.flushed_us.set(now_us);
        self.stage.set(ResponseStage::Unsent);
        self.window.set(i64::from(wire::INITIAL_WINDOW));
        self.gone.set(false);
        self.head_only.set(false);
        self.shadow.set(false);
        self.open.set(None);
        self.finite.set(false);
        self.coded.set(false);
        self.send_file.set(false);
        self.switches.set(false);
        self.unfinished.set(true);
        self.status.set(0);
        self.route.set(0);
        self.queries.set(0);
        self.queries_us.set(0);
        self.query_from_us.set(0);
        self.held.set((0, 0));
    }

    /// Starts measuring the request. `cpu_us`: the thread's processor time so far. `shared`: other threads of the process run Ruby, too.
    pub(crate) fn measure(&self, gvl: &Gvl, cpu_us: u64, shared: bool) {
        self.cpu_from.set(Some(cpu_us));
        self.shares_process.set(shared);
        self.gauge_used.set(Gauge::default());
        self.gauge_from.set(Some(Gauge::read(gvl, shared)));
        // The thread's wait times include those of all its fibers.
        if self.fiber.is_none() {
            self.thread.gvl_wait.begin();
        }
    }

    /// Records that the loop enters the fiber.
    pub(crate) fn enter(&self, gvl: &Gvl) {
        let Some(fiber) = &self.fiber else { return };
        if self.cpu_from.get().is_some() {
            self.cpu_from.set(Some(os::thread_us().saturating_sub(fiber.used_us.get())));
            self.gauge_from.set(Some(Gauge::read(gvl, self.shares_process.get())));
        }
    }

    /// Records that the loop has left the fiber.
    pub(crate) fn leave(&self, gvl: &Gvl) {
        if let (Some(fiber), Some(from)) = (&self.fiber, self.cpu_from.get()) {
            fiber.used_us.set(os::thread_us().saturating_sub(from));
            self.gauge_used.set(self.gauge(gvl));
            self.gauge_from.set(None);
        }
    }

    /// Returns what the process has used while the request ran.
    fn gauge(&self, gvl: &Gvl) -> Gauge {
        let used = self.gauge_used.get();
        let now = |from: Gauge| used.and(&Gauge::read(gvl, self.shares_process.get()).since(&from));
        self.gauge_from.get().map_or(used, now)
    }

    /// Returns what the request has used, apart from times; `None` if nothing of it is known. `times`: those of the same moment.
    pub(crate) fn used(&self, gvl: &Gvl, times: &Times) -> Option<(Used, Option<Remarks>)> {
        let saturating = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let measured = times.cpu_us.filter(|_| self.cpu_from.get().is_some());
        let has_queries = QUERIES_REPORTED.load(Relaxed) && (measured.is_some() || self.queries.get() > 0);
        let remarks = self.remarks();
        if measured.is_none() && !has_queries && remarks.is_none() {
            return None;
        }
        let part = measured.map(|cpu_us| (cpu_us, self.gauge(gvl).part_of(cpu_us.into())));
        let used = Used {
            // A collection runs on the thread that needs it.
            gc_us: part
                .filter(|_| ruby::has_gc_time(gvl))
                .map(|(cpu_us, (gc_us, _))| saturating(gc_us).min(cpu_us)),
            allocations: part.map(|(_, (_, objects))| saturating(objects)),
            queries: has_queries.then(|| self.queries.get()),
            queries_us: has_queries.then(|| saturating(self.queries_us.get())),
        };
        Some((used, remarks))
    }

    /// Returns the remarks about the request so far.
    fn remarks(&self) -> Option<Remarks> {
        let repeats = if self.queries.get() >= REPEATED { self.repeats.worst() } else { None };
        let (repeats, repeats_us, place) = repeats.unwrap_or_default();
        let (held_us, held_at) = self.held.get();
        let remarks =
            Remarks { repeats, repeats_us, repeats_at: place.into(), held_us, held_at: held_at.into() };
        remarks.is_any().then_some(remarks)
    }

    /// Returns the times that the request has taken at `now_us`.
    #[inline]
    pub(crate) fn times(&self, now_us: u64) -> Times {
        let saturating = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        let app_us = saturating(now_us.saturating_sub(self.started_us.get()));
        let Some(cpu_from) = self.cpu_from.get() else { return Times { app_us, cpu_us: None, gvl_us: None } };
        // Both are parts of the total, which another clock measures.
        let part = |us: u64| saturating(us).min(app_us);
        let cpu_us = part(os::thread_us().saturating_sub(cpu_from));
        let gvl_us = self.thread.gvl_wait.so_far_us().filter(|_| self.fiber.is_none());
        Times { app_us, cpu_us: Some(cpu_us), gvl_us: gvl_us.map(part) }
    }

    /// Returns a number that this task has not given out before.
    pub(crate) fn next_serial(&self) -> u64 {
        self.last_serial.set(self.last_serial.get() + 1);
        self.last_serial.get()
    }

    /// Returns the outbox of the request's link.
    ///
    /// # Panics
    /// Before the first request.
    #[inline]
    pub(crate) fn outbox(&self) -> &'static Outbox {
        self.outbox.get().expect("the task has had a request")
    }

    /// Returns whether the calling thread serves this request and no other one meanwhile, which is the case without fibers.
    #[inline]
    pub(crate) fn has_this_thread(&self) -> bool {
        self.fiber.is_none() && self.is_current()
    }

    /// Returns whether the calling thread runs code for this request, as far as its loop knows.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        CURRENT.get().is_some_and(|task| ptr::eq(task, self))
    }

    /// Ends the body being written: its block writes nothing any more.
    pub(crate) fn close_writer(&self, gvl: &Gvl) {
        self.writer.set(0);
        self.suspended.set(None);
        self.tell(gvl);
    }

    /// Adds a waiter for news.
    pub(crate) fn watch(&self, watcher: Watcher) {
        let mut watchers = self.watchers.take();
        watchers.push(watcher);
        self.watchers.set(watchers);
    }

    /// Removes a waiting thread.
    pub(crate) fn forget(&self, wakeup: &'static Wakeup) {
        let mut watchers = self.watchers.take();
        watchers.retain(|one| !matches!(one, Watcher::Thread(other) if ptr::eq(*other, wakeup)));
        self.watchers.set(watchers);
    }

    /// Wakes all waiters. Each checks for itself, and waits again if need be.
    pub(crate) fn tell(&self, gvl: &Gvl) {
        for watcher in self.watchers.take() {
            match watcher {
                Watcher::Fiber { number, key, wake } => wake(gvl, number, key),
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
