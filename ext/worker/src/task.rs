//! A serving thread and the request that it is at.
//!
//! Contract: lives as long as the process; all fields are plain or known to the collector, so Ruby may raise while
//! any of them is in use.

use crate::env::Memo;
use crate::raw::gvl::Scratch;
use crate::raw::gvl_wait::GvlWait;
use crate::raw::os::{self, Bell};
use crate::raw::ruby::{NIL, Slot};
use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::times::Times;

/// How far the response has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Nothing of it is on its way.
    Unsent,
    /// RESPONSE is on its way, END is not.
    Begun,
    /// The connection was handed to the app; END is missing.
    Hijacked,
    /// All of it is on its way.
    Ended,
}

/// What has become of the offer to write a part of the body straight to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loan {
    /// There is none.
    None,
    /// The front has not answered yet.
    Asked,
    Declined,
    /// The client's socket, which is ours to close.
    Lent(RawFd),
}

pub(crate) struct Task {
    pub(crate) index: usize,
    pub(crate) bell: Bell,

    /// Rung together with the bell when there is something to do, not only a change of roles.
    pub(crate) called: AtomicBool,
    /// The thread is being killed and must not go on.
    pub(crate) killed: Cell<bool>,

    /// Ruby code may be running; what it raises is the app's.
    pub(crate) in_app: Cell<bool>,
    pub(crate) active: Cell<bool>,
    pub(crate) link: Cell<u32>,
    pub(crate) id: Cell<u32>,
    pub(crate) started_us: Cell<u64>,
    pub(crate) stage: Cell<Stage>,
    /// Bytes of BODY that may still be sent.
    pub(crate) window: Cell<i64>,
    pub(crate) loan: Cell<Loan>,
    /// The client has gone.
    pub(crate) gone: Cell<bool>,
    pub(crate) head_only: Cell<bool>,
    /// Processor time of the thread when it took the request up, microseconds; `None` when that is not measured.
    pub(crate) cpu_from: Cell<Option<u64>>,
    pub(crate) gvl_wait: GvlWait,
    /// Something of the request is to be done after the response.
    pub(crate) unfinished: Cell<bool>,
    pub(crate) status: Cell<u16>,
    pub(crate) flushed_us: Cell<u64>,
    /// The response says how long its body is, or can turn it into an array: it will end soon.
    pub(crate) finite: Cell<bool>,
    /// The app has coded the body itself (Transfer-Encoding): the front decodes it, and for that wants bytes.
    pub(crate) coded: Cell<bool>,

    /// The Ruby thread.
    pub(crate) thread: &'static Slot,
    pub(crate) env: &'static Slot,
    pub(crate) headers: &'static Slot,
    pub(crate) body: &'static Slot,
    /// `rack.hijack` of the response headers.
    pub(crate) take_over: &'static Slot,
    /// The `rack.input` that must be closed.
    pub(crate) input: &'static Slot,
    pub(crate) error: &'static Slot,
    /// The env that all requests of this thread start from.
    pub(crate) template: &'static Slot,
    pub(crate) after_reply: &'static Slot,
    pub(crate) response_finished: &'static Slot,

    pub(crate) head: Scratch,
    pub(crate) chunk: Scratch,
    pub(crate) interim: Scratch,
    pub(crate) memo: Memo,
}

impl Task {
    pub(crate) fn leak(index: usize, bell: Bell) -> &'static Task {
        Box::leak(Box::new(Task {
            index,
            bell,
            called: AtomicBool::new(false),
            killed: Cell::new(false),
            in_app: Cell::new(false),
            active: Cell::new(false),
            link: Cell::new(0),
            id: Cell::new(0),
            started_us: Cell::new(0),
            stage: Cell::new(Stage::Ended),
            window: Cell::new(0),
            loan: Cell::new(Loan::None),
            gone: Cell::new(false),
            head_only: Cell::new(false),
            cpu_from: Cell::new(None),
            gvl_wait: GvlWait::new(),
            unfinished: Cell::new(false),
            status: Cell::new(0),
            flushed_us: Cell::new(0),
            finite: Cell::new(false),
            coded: Cell::new(false),
            thread: Slot::leak(NIL),
            env: Slot::leak(NIL),
            headers: Slot::leak(NIL),
            body: Slot::leak(NIL),
            take_over: Slot::leak(NIL),
            input: Slot::leak(NIL),
            error: Slot::leak(NIL),
            template: Slot::leak(NIL),
            after_reply: Slot::leak(NIL),
            response_finished: Slot::leak(NIL),
            head: Scratch::new(),
            chunk: Scratch::new(),
            interim: Scratch::new(),
            memo: Memo::new(),
        }))
    }

    /// Wakes the thread because there is something to do.
    pub(crate) fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Makes ready for a request.
    pub(crate) fn begin(&self, link: u32, id: u32, now_us: u64) {
        self.active.set(true);
        self.link.set(link);
        self.id.set(id);
        self.started_us.set(now_us);
        self.flushed_us.set(now_us);
        self.stage.set(Stage::Unsent);
        self.window.set(i64::from(wire::INITIAL_WINDOW));
        self.gone.set(false);
        self.head_only.set(false);
        self.finite.set(false);
        self.coded.set(false);
        self.unfinished.set(true);
        self.status.set(0);
    }

    /// Measures the request that has begun, the thread having used `cpu_us` so far.
    pub(crate) fn measure(&self, cpu_us: u64) {
        self.cpu_from.set(Some(cpu_us));
        self.gvl_wait.begin();
    }

    /// How long the request has taken at `now_us`.
    #[inline]
    pub(crate) fn times(&self, now_us: u64) -> Times {
        let saturating = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        let app_us = saturating(now_us.saturating_sub(self.started_us.get()));
        let Some(cpu_from) = self.cpu_from.get() else { return Times { app_us, cpu_us: None, gvl_us: None } };
        // Both are parts of the whole, which is told by another clock.
        let part = |us: u64| saturating(us).min(app_us);
        let cpu_us = part(os::thread_us().saturating_sub(cpu_from));
        Times { app_us, cpu_us: Some(cpu_us), gvl_us: self.gvl_wait.so_far_us().map(part) }
    }

    /// Closes the client's socket, if it is here.
    pub(crate) fn return_loan(&self) {
        if let Loan::Lent(fd) = self.loan.replace(Loan::None) {
            os::close(fd);
        }
    }

    /// Forgets the request, so that the collector can have what belonged to it.
    pub(crate) fn end(&self) {
        self.active.set(false);
        if self.cpu_from.take().is_some() {
            self.gvl_wait.end();
        }
        self.return_loan();
        for slot in [self.env, self.headers, self.body, self.take_over, self.input, self.error] {
            slot.set(NIL);
        }
    }
}
