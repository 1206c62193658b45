//! The methods of `Firebrick::Native`.

mod begin;

use crate::heap as dumps;
use crate::link::Link;
use crate::raw::gvl::Gvl;
use crate::raw::methods::{self, Module};
use crate::raw::ruby::{self, NIL, Value};
use crate::raw::{heap, os, signals};
use crate::ticket::Ticket;
use crate::worker::place::{self, Place};
use crate::worker::task::{ResponseStage, Task};
use crate::worker::{self, Worker, worker};
use crate::{
    allocations, body, collection, emit, fibers, guest, head, links, names, profile, queries, serve, waiting,
};
use begin::{attach, prepare, start};
use wire::FrameKind;

/// Defines the methods.
pub(crate) fn define(module: &Module) {
    module.define_handle(c"Handle");
    module.define_handle(c"Hints");
    queries::define(module);
    dumps::define(module);
    allocations::define(module);
    module.define(c"wire", wire_version);
    module.define(c"prepare", prepare);
    module.define(c"start", start);
    module.define(c"serve", serve_main);
    module.define(c"attach", attach);
    module.define(c"attached_serving", attached_serving);
    module.define(c"attached_traces", attached_traces);
    module.define(c"revive", revive);
    module.define(c"lose", lose);
    module.define(c"release", release);
    module.define(c"stopping", stopping);
    module.define(c"serving", serving);
    module.define(c"traces", send_traces);
    module.define(c"take_signals", take_signals);
    module.define(c"signals", asked_by_signals);
    module.define(c"profile", obey_profile);
    module.define(c"sample", take_samples);
    module.define(c"abandon", abandon);
    module.define(c"promotion", promotion);
    module.define(c"retire", retire);
    module.define(c"collect_with", collect_with);
    module.define(c"hijack", hijack);
    module.define(c"early_hints", early_hints);
    module.define(c"extend_timeout", extend_timeout);
    module.define(c"fiber_body", fiber_body);
    module.define(c"fiber_io", fiber_io);
    module.define(c"fiber_select", fiber_select);
    module.define(c"fiber_sleep", fiber_sleep);
    module.define(c"fiber_block", fiber_block);
    module.define(c"fiber_unblock", fiber_unblock);
    module.define(c"fiber_pause", fiber_pause);
    module.define(c"fiber_start", fiber_start);
    module.define(c"fiber_alarm", fiber_alarm);
    module.define(c"fiber_interrupts", fiber_interrupts);
    module.define(c"fiber_alarms", fiber_alarms);
    module.define(c"fiber_hold", fiber_hold);
    module.define(c"fiber_deliver", fiber_deliver);
    module.define(c"fiber_pending", fiber_pending);
    module.define(c"fiber_cancel", fiber_cancel);
    module.define(c"fiber_closes", fiber_closes);
    module.define(c"fiber_unsliced", fiber_unsliced);
    module.define(c"fiber_chdir", fiber_chdir);
    module.define(c"fiber_reads", fiber_reads);
    module.define(c"fiber_away", fiber_away);
    module.define(c"fiber_raise", fiber_raise);
    module.define(c"receive", receive);
    module.define(c"reap", reap);
    module.define(c"parent_death_signal", parent_death_signal);
    module.define(c"settle_heap", settle_heap);
    module.define(c"release_gaps", release_gaps);
}

fn number(value: Value) -> usize {
    value.fixnum().and_then(|number| usize::try_from(number).ok()).expect("a number that is not negative")
}

fn failed(gvl: &mut Gvl, text: impl AsRef<str>) -> ! {
    let class = ruby::runtime_error(gvl);
    ruby::raise(gvl, class, text)
}

/// Returns the version of docs/internals/wire.md that this library implements.
fn wire_version(gvl: &mut Gvl) -> Value {
    ruby::integer(gvl, wire::VERSION.into())
}

fn attached(gvl: &Gvl, serial: Value) -> Option<&'static Place> {
    worker::find(gvl, number(serial) as u64)
}

/// Calls [`serving`] for an attached worker.
fn attached_serving(gvl: &mut Gvl, serial: Value) -> Value {
    match attached(gvl, serial) {
        Some(at) => place::within(at, || serving(gvl)),
        None => ruby::array(gvl, &[]),
    }
}

/// Calls [`send_traces`] for an attached worker.
fn attached_traces(gvl: &mut Gvl, serial: Value, traces: Value) -> Value {
    attached(gvl, serial).map_or(NIL, |at| place::within(at, || send_traces(gvl, traces)))
}

/// Restarts the threads of an attached worker that the app has killed.
fn revive(gvl: &mut Gvl, serial: Value) -> Value {
    if let Some(at) = attached(gvl, serial) {
        place::within(at, || {
            let killed = worker(gvl, Worker::take_killed);
            killed.into_iter().for_each(|index| links::again(gvl, index));
        });
    }
    NIL
}

/// Finishes an attached worker, because its front is gone or about to go.
fn lose(gvl: &mut Gvl, serial: Value) -> Value {
    if let Some(at) = attached(gvl, serial) {
        place::within(at, || worker(gvl, |w| w.lose(gvl)));
    }
    NIL
}

/// Returns whether an attached worker has finished and released everything.
fn release(gvl: &mut Gvl, serial: Value) -> Value {
    let released = attached(gvl, serial).is_none_or(|at| Worker::release(gvl, at));
    if released { ruby::TRUE } else { ruby::FALSE }
}

fn stopping(gvl: &mut Gvl) -> Value {
    if worker::is_set_up(gvl) {
        worker(gvl, |w| w.scoreboard.recorder().told(gvl, "to stop, by a signal"));
        send_frame(gvl, |out| wire::frame::append(out, FrameKind::Stopping, 0, 0, b""));
    }
    NIL
}

/// The number of backtraces that are sent at a time.
const TRACES: usize = 1_000;

/// Lists the requests being served: for each its thread or fiber, the number of its link, its id there.
fn serving(gvl: &mut Gvl) -> Value {
    let active = worker(gvl, |w| -> Vec<(Value, u32, u32)> {
        let runs_on = |task: &'static Task| {
            task.fiber.as_ref().map_or(task.thread.ruby.get(), |fiber| fiber.ruby.get())
        };
        w.serving().map(|task| (runs_on(task), task.link.get(), task.id.get())).collect()
    });
    let all = ruby::array(gvl, &[]);
    for (thread, link, id) in active.into_iter().take(TRACES) {
        let (link, id) = (ruby::integer(gvl, i64::from(link)), ruby::integer(gvl, i64::from(id)));
        let entry = ruby::array(gvl, &[thread, link, id]);
        ruby::push(gvl, all, entry);
    }
    all
}

/// Sends TRACES: link, id and an array of strings for each thread.
fn send_traces(gvl: &mut Gvl, traces: Value) -> Value {
    send_frame(gvl, |out| {
        let mut encoder = wire::traces::Encoder::new(out);
        for trace in (0..traces.array_len(gvl)).map(|at| traces.at(gvl, at)) {
            let lines = trace.at(gvl, 2);
            let lines = (0..lines.array_len(gvl)).map(|at| lines.at(gvl, at).bytes(gvl));
            encoder.trace(number(trace.at(gvl, 0)) as u32, number(trace.at(gvl, 1)) as u32, lines);
        }
        encoder.finish();
    });
    NIL
}

/// Calls [`signals::take`] with a list of numbers.
fn take_signals(gvl: &mut Gvl, signals: Value) -> Value {
    let mut few = [0; 8];
    let count = signals.array_len(gvl).min(few.len());
    for (at, signal) in few.iter_mut().take(count).enumerate() {
        *signal = number(signals.at(gvl, at)) as i32;
    }
    if let Err(error) = signals::take(&few[..count]) {
        failed(gvl, format!("the worker's signals: {error}"));
    }
    NIL
}

/// Waits until signals have come. Returns them as the bits of a number.
fn asked_by_signals(gvl: &mut Gvl) -> Value {
    let came = signals::asked(gvl);
    // The server itself asks for those of single requests, often.
    if came & !signals::ROUTINE != 0 && worker::is_set_up(gvl) {
        worker(gvl, |w| w.scoreboard.recorder().told(gvl, "to tell its backtraces, by a signal"));
    }
    ruby::integer(gvl, came as i64)
}

/// Sends a frame that concerns the whole worker: at once if the socket takes it, otherwise with the next responses. Does nothing for a worker
/// without links, whose own thread has already seen that the front is gone.
fn send_frame(gvl: &Gvl, frame: impl FnOnce(&mut Vec<u8>)) {
    let Some(outbox) = worker(gvl, |w| w.links.first().map(Link::outbox)) else { return };
    outbox.append(os::now_us(), None, frame);
    if outbox.send().is_err() {
        links::end(gvl, 0);
    }
}

/// Begins or ends a profile, as the front has ordered.
fn obey_profile(gvl: &mut Gvl) -> Value {
    profile::obey(gvl);
    NIL
}

/// Takes the samples of a profile that are due.
fn take_samples(gvl: &mut Gvl) -> Value {
    profile::take(gvl);
    NIL
}

fn serve_main(gvl: &mut Gvl) -> Value {
    serve::serve(gvl, 0);
    NIL
}

/// Closes the parent's links in a child that the app has forked.
fn abandon(gvl: &mut Gvl) -> Value {
    if Worker::abandon(gvl) {
        fibers::abandon(gvl);
        guest::abandon(gvl);
        signals::close();
        profile::abandon(gvl);
    }
    NIL
}

/// Returns the socket of the template to be forked, or nil, when serving is over. Stops the native threads, which would hinder the
/// fork.
fn promotion(gvl: &mut Gvl) -> Value {
    profile::finish(gvl);
    match worker(gvl, |w| w.promotion.take()) {
        Some(fd) => {
            worker::stop_watchdogs(gvl);
            ruby::integer(gvl, i64::from(fd))
        }
        None => NIL,
    }
}

/// Runs full collections between requests, when `collector` says that they are due; nil turns this off.
fn collect_with(gvl: &mut Gvl, collector: Value) -> Value {
    collection::leave_to(gvl, collector);
    NIL
}

/// Retires the worker, in the child that becomes a template.
fn retire(gvl: &mut Gvl) -> Value {
    Worker::retire(gvl);
    NIL
}

/// Returns the request of a handle. Raises IOError when the request is over, or in another process. Never depends on the calling thread.
fn request(gvl: &mut Gvl, handle: Value) -> &'static Task {
    match Ticket::of_handle(gvl, handle).and_then(|ticket| ticket.request(gvl)) {
        Some(task) => task,
        None => ruby::raise(gvl, names::names().io_error.get(), "the request has ended"),
    }
}

/// `rack.hijack`: returns the worker's end of the connection, and the env; nil when the connection has been handed out already.
fn hijack(gvl: &mut Gvl, handle: Value) -> Value {
    let task = request(gvl, handle);
    match task.stage.get() {
        ResponseStage::Unsent => {}
        ResponseStage::Hijacked => return NIL,
        ResponseStage::Begun | ResponseStage::Ended => ruby::raise(
            gvl,
            names::names().io_error.get(),
            "rack.hijack was called after the response had begun",
        ),
    }
    match body::pair() {
        Ok((ours, theirs)) => {
            let env = task.env.get();
            emit::hijack(gvl, task, theirs);
            waiting::flush(gvl, task);
            let ours = ruby::integer(gvl, i64::from(ours));
            ruby::array(gvl, &[ours, env])
        }
        Err(text) => failed(gvl, text),
    }
}

/// `rack.early_hints`: sends INTERIM, unless the response has begun.
fn early_hints(gvl: &mut Gvl, handle: Value, headers: Value) -> Value {
    let task = request(gvl, handle);
    // Listing calls the app's code, which may take long, so the request must be looked up again.
    let fields = head::list(gvl, task, headers);
    let task = request(gvl, handle);
    if task.stage.get() == ResponseStage::Unsent {
        head::early_hints(gvl, task, fields);
        task.interim.with(gvl, |frame| emit::interim(gvl, task, frame));
        waiting::flush(gvl, task);
    }
    NIL
}

/// `env["firebrick.timeout"].extend`: sends EXTEND, unless the response has begun, which has no time-out.
fn extend_timeout(gvl: &mut Gvl, handle: Value, milliseconds: Value) -> Value {
    let milliseconds = number(milliseconds) as u64;
    let task = request(gvl, handle);
    if !task.is_current() {
        failed(gvl, "firebrick.timeout can only be extended on the thread that serves the request");
    }
    if task.stage.get() == ResponseStage::Unsent {
        emit::extend(gvl, task, milliseconds);
        waiting::flush(gvl, task);
    }
    NIL
}

/// Reads the control socket. Returns bytes and descriptors; nil at its end.
fn receive(gvl: &mut Gvl, fd: Value) -> Value {
    let fd = number(fd) as i32;
    let (mut bytes, mut fds) = (Vec::with_capacity(16 << 10), Vec::new());
    let received = os::receive(fd, &mut bytes, &mut fds, false).unwrap_or_else(|error| {
        let again = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted);
        if again { usize::MAX } else { 0 }
    });
    if received == 0 {
        return NIL;
    }
    let fds: Vec<Value> = fds.into_iter().map(|fd| ruby::integer(gvl, i64::from(fd))).collect();
    let (bytes, fds) = (ruby::string(gvl, &bytes), ruby::array(gvl, &fds));
    ruby::array(gvl, &[bytes, fds])
}

/// Returns nil while the child runs; `["exit" or "signal", code, peak KiB]`; false when this process has no such child.
fn reap(gvl: &mut Gvl, pid: Value) -> Value {
    match os::reap(number(pid) as i32) {
        Ok(None) => NIL,
        Ok(Some(exit)) => {
            let how = ruby::string(gvl, if exit.by_signal { b"signal" } else { b"exit" });
            let code = ruby::integer(gvl, i64::from(exit.code));
            let peak = ruby::integer(gvl, exit.peak_kib as i64);
            ruby::array(gvl, &[how, code, peak])
        }
        Err(_) => ruby::FALSE,
    }
}

fn parent_death_signal(_gvl: &mut Gvl, signal: Value) -> Value {
    os::parent_death_signal(number(signal) as i32);
    NIL
}

fn release_gaps(_gvl: &mut Gvl) -> Value {
    heap::release_gaps();
    NIL
}

fn settle_heap(_gvl: &mut Gvl) -> Value {
    heap::settle();
    NIL
}

// Fibers: see `crate::fibers`. Times are in microseconds; nil means no limit.

/// The body of a fiber that serves requests.
fn fiber_body(gvl: &mut Gvl) -> Value {
    serve::fiber_body(gvl);
    NIL
}

fn fiber_io(gvl: &mut Gvl, fd: Value, events: Value, us: Value) -> Value {
    fibers::io(gvl, fd, events, us)
}

fn fiber_select(gvl: &mut Gvl, wanted: Value, us: Value) -> Value {
    fibers::select(gvl, wanted, us)
}

fn fiber_sleep(gvl: &mut Gvl, us: Value) -> Value {
    fibers::sleep(gvl, us)
}

fn fiber_block(gvl: &mut Gvl, us: Value) -> Value {
    fibers::block(gvl, us)
}

fn fiber_unblock(gvl: &mut Gvl, number: Value, fiber: Value) -> Value {
    fibers::unblock(gvl, number, fiber)
}

fn fiber_pause(gvl: &mut Gvl) -> Value {
    fibers::pause(gvl)
}

fn fiber_start(gvl: &mut Gvl, fiber: Value) -> Value {
    fibers::start(gvl, fiber)
}

fn fiber_alarm(gvl: &mut Gvl, us: Value, place: Value) -> Value {
    fibers::alarm(gvl, us, place)
}

fn fiber_interrupts(gvl: &mut Gvl) -> Value {
    fibers::interrupts(gvl)
}

fn fiber_alarms(gvl: &mut Gvl) -> Value {
    fibers::alarms(gvl)
}

fn fiber_hold(gvl: &mut Gvl, number: Value, place: Value) -> Value {
    fibers::hold_off(gvl, number, place)
}

fn fiber_deliver(gvl: &mut Gvl) -> Value {
    fibers::deliver(gvl)
}

fn fiber_pending(gvl: &mut Gvl) -> Value {
    fibers::pending(gvl)
}

fn fiber_cancel(gvl: &mut Gvl, number: Value) -> Value {
    fibers::cancel(gvl, number)
}

fn fiber_closes(gvl: &mut Gvl, fd: Value) -> Value {
    fibers::closes(gvl, fd)
}

/// Defines the method `io_read` on the class of schedulers.
fn fiber_reads(gvl: &mut Gvl, scheduler: Value) -> Value {
    methods::define_io_read(gvl, scheduler, fibers::before_read);
    NIL
}

/// See [`fibers::blocking::away`].
fn fiber_away(gvl: &mut Gvl) -> Value {
    fibers::blocking::away(gvl)
}

/// Records that a block of `Dir.chdir` begins, or has ended.
fn fiber_chdir(_gvl: &mut Gvl, begins: Value) -> Value {
    fibers::changes_directory(begins.truthy());
    NIL
}

/// See [`fibers::blocking::raise_late`].
fn fiber_raise(
    gvl: &mut Gvl,
    number: Value,
    since: Value,
    alarm: Value,
    error: Value,
    message: Value,
) -> Value {
    fibers::blocking::raise_late(gvl, number, since, alarm, error, message)
}

/// Records that a block of `Firebrick.unsliced` begins, or ends.
fn fiber_unsliced(_gvl: &mut Gvl, begins: Value) -> Value {
    fibers::unsliced(begins.truthy());
    NIL
}
