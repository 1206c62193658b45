//! The methods of `Firebrick::Native`.

use super::gvl::{self, Guarded, Gvl};
use super::handle;
use super::os;
use super::ruby::{self, NIL, Value};
use crate::link::Link;
use crate::place::{self, place};
use crate::scoreboard::Scoreboard;
use crate::task::{Stage, Task};
use crate::thread::ServingThread;
use crate::ticket::Ticket;
use crate::watchdog::Port;
use crate::worker::{self, Help, Options, Pair, Worker, worker};
use crate::{body, collection, emit, fibers, head, names, serve};
use rb_sys::VALUE;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wire::Kind;

type Method = unsafe extern "C" fn() -> VALUE;

fn define(module: VALUE, name: &CStr, method: Method, arity: i32) {
    // SAFETY: the callers below pass a method of this arity.
    unsafe { rb_sys::rb_define_singleton_method(module, name.as_ptr(), Some(method), arity) };
}

macro_rules! methods {
    ($module:ident: $($ruby:literal => $function:ident($($argument:ident),*);)*) => {$({
        unsafe extern "C" fn trampoline(_module: VALUE $(, $argument: VALUE)*) -> VALUE {
            // SAFETY: Ruby calls methods with the GVL.
            unsafe { gvl::enter(|gvl| $function(gvl, $(Value::from_raw($argument)),*)) }.raw()
        }
        const ARITY: i32 = { let names: &[&str] = &[$(stringify!($argument)),*]; names.len() as i32 };
        // SAFETY: Ruby calls the function with as many values as the arity says.
        let method = unsafe { std::mem::transmute::<*const (), Method>(trampoline as *const ()) };
        define($module, $ruby, method, ARITY);
    })*};
}

/// Ruby calls this when it loads the library.
#[unsafe(no_mangle)]
pub extern "C" fn Init_native() {
    super::ruby::guard(|| {
        // SAFETY: Ruby is up and this thread has the GVL.
        let module = unsafe {
            let firebrick = rb_sys::rb_define_module(c"Firebrick".as_ptr());
            rb_sys::rb_define_module_under(firebrick, c"Native".as_ptr())
        };
        handle::define(module, c"Handle");
        handle::define(module, c"Hints");
        methods! { module:
            c"wire" => wire_version();
            c"prepare" => prepare(app, base, threads, limits, rack3);
            c"start" => start(index, links, scoreboard, slot_len);
            c"serve" => serve_main();
            c"attach" => attach(app, base, threads, limits, rack3, links, scoreboard, slot_len, bell);
            c"attached_serving" => attached_serving(serial);
            c"attached_traces" => attached_traces(serial, traces);
            c"revive" => revive(serial);
            c"lose" => lose(serial);
            c"release" => release(serial);
            c"stopping" => stopping();
            c"serving" => serving();
            c"traces" => send_traces(traces);
            c"take_signals" => take_signals(signals);
            c"signals" => asked_by_signals();
            c"abandon" => abandon();
            c"promotion" => promotion();
            c"retire" => retire();
            c"collect_with" => collect_with(collector);
            c"hijack" => hijack(handle);
            c"early_hints" => early_hints(handle, headers);
            c"extend_timeout" => extend_timeout(handle, milliseconds);
            c"fiber_body" => fiber_body();
            c"fiber_io" => fiber_io(fd, events, us);
            c"fiber_select" => fiber_select(wanted, us);
            c"fiber_sleep" => fiber_sleep(us);
            c"fiber_block" => fiber_block(us);
            c"fiber_unblock" => fiber_unblock(number, fiber);
            c"fiber_pause" => fiber_pause();
            c"fiber_start" => fiber_start(fiber);
            c"fiber_alarm" => fiber_alarm(us, place);
            c"fiber_interrupts" => fiber_interrupts();
            c"fiber_alarms" => fiber_alarms();
            c"fiber_hold" => fiber_hold(number, place);
            c"fiber_deliver" => fiber_deliver();
            c"fiber_pending" => fiber_pending();
            c"fiber_cancel" => fiber_cancel(number);
            c"fiber_closes" => fiber_closes(fd);
            c"fiber_unsliced" => fiber_unsliced(begins);
            c"fiber_chdir" => fiber_chdir(begins);
            c"fiber_reads" => fiber_reads(scheduler);
            c"fiber_away" => fiber_away();
            c"fiber_raise" => fiber_raise(number, since, alarm, error, message);
            c"receive" => receive(fd);
            c"reap" => reap(pid);
            c"parent_death_signal" => parent_death_signal(signal);
            c"settle_heap" => settle_heap();
            c"release_gaps" => release_gaps();
        }
    });
}

fn number(value: Value) -> usize {
    value.fixnum().and_then(|number| usize::try_from(number).ok()).expect("a number that is not negative")
}

fn failed(gvl: &mut Gvl, text: impl AsRef<str>) -> ! {
    // SAFETY: set before any extension loads.
    ruby::raise(gvl, Value::from_raw(unsafe { rb_sys::rb_eRuntimeError }), text)
}

/// Returns the version of docs/internals/wire.md that this library implements.
fn wire_version(gvl: &mut Gvl) -> Value {
    ruby::integer(gvl, wire::VERSION.into())
}

static OPTIONS: Guarded<Option<Options>> = Guarded::new(None);

/// Sets the state that all workers share; called in the template. `threads` starts with the smallest and the largest number of a worker's threads;
/// `limits` are the largest response head, the bytes of a response that may be buffered in memory and in a file, and the directory of
/// these files.
fn prepare(gvl: &mut Gvl, app: Value, base: Value, threads: Value, limits: Value, rack3: Value) -> Value {
    names::look_up(gvl);
    place().set_app(gvl, app, base);
    let options = options(gvl, base, threads, limits, rack3);
    OPTIONS.with(gvl, |slot| *slot = Some(options));
    NIL
}

fn options(gvl: &mut Gvl, base: Value, threads: Value, limits: Value, rack3: Value) -> Options {
    let early_hints = ruby::hash_get(gvl, base, names::names().early_hints.get()).truthy();
    let temp_dir = PathBuf::from(OsStr::from_bytes(limits.at(gvl, 3).bytes(gvl)));
    Options {
        threads_min: number(threads.at(gvl, 0)).max(1),
        threads_max: number(threads.at(gvl, 1)).max(1),
        fibers: threads.at(gvl, 2).fixnum().map_or(0, |fibers| fibers.max(0) as usize),
        slice_us: threads.at(gvl, 3).fixnum().map_or(0, |us| us.max(0) as u64),
        blocking_us: threads.at(gvl, 4).fixnum().map_or(0, |us| us.max(0) as u64),
        fibers_apart: threads.at(gvl, 5).truthy(),
        // A frame must hold the head and an inline body.
        max_head: number(limits.at(gvl, 0)).min(512 << 10),
        early_hints,
        rack3: rack3.truthy(),
        response_memory: number(limits.at(gvl, 1)) as u64,
        response_spool: number(limits.at(gvl, 2)) as u64,
        temp_dir: Box::leak(temp_dir.into_boxed_path()),
    }
}

/// Takes over the links, starts the threads and sends READY, after the fork.
fn start(gvl: &mut Gvl, index: Value, links: Value, scoreboard: Value, slot_len: Value) -> Value {
    let options = OPTIONS.with(gvl, |slot| *slot).expect("prepare comes first");
    let (fd, index, slot_len) = (number(scoreboard) as i32, number(index), number(slot_len));
    let fds = descriptors(gvl, links);
    let apart = options.fibers_apart && options.fibers > 0;
    let threads = options.threads_max + usize::from(apart);
    let board = match Scoreboard::map(fd, index, slot_len, threads) {
        Ok(board) => board,
        Err(error) => failed(gvl, format!("cannot map the scoreboard: {error}")),
    };
    let (fds, of_fibers) = fds.split_at(if apart { fds.len() / 2 } else { fds.len() });
    let fibers = if apart { 0 } else { options.fibers };
    if let Err(error) = install(gvl, Options { fibers, ..options }, fds, board) {
        failed(gvl, format!("cannot use a link, or start a thread: {error}"));
    }
    add_task(gvl, 0);
    board.thread_started();
    (1..options.threads_min).for_each(|index| serve::provide(gvl, Help::Spawn(index)));
    if apart {
        begin_fibers(gvl, options, of_fibers, board.behind(options.threads_max, fds.len()));
        ready(gvl, options.threads_max, options.fibers);
    } else {
        ready(gvl, options.threads_max * options.fibers.max(1), 0);
    }
    NIL
}

/// Starts the thread that serves with fibers beside the threads of the worker just installed.
fn begin_fibers(gvl: &mut Gvl, options: Options, fds: &[i32], board: Scoreboard) {
    let own = place::here();
    let Some(at) = worker::free_place(gvl) else {
        failed(gvl, "there is no room for fibers beside the servers of this process");
    };
    let (app, base) = (place().app(), place().base());
    let options = Options { threads_min: 1, threads_max: 1, ..options };
    let installed = place::within(at, || {
        place().set_app(gvl, app, base);
        install(gvl, options, fds, board)?;
        worker(gvl, |w| w.pair = Pair::Fibers(own));
        serve::provide(gvl, Help::Spawn(0));
        Ok(worker(gvl, |w| w.tasks.len()))
    });
    worker(gvl, |w| w.pair = Pair::Threads(at));
    match installed {
        Ok(1) => {}
        Ok(_) => failed(gvl, "cannot start the thread of the fibers"),
        Err::<_, std::io::Error>(error) => {
            failed(gvl, format!("cannot use a link of the fibers, or start their thread: {error}"))
        }
    }
}

fn descriptors(gvl: &Gvl, links: Value) -> Vec<i32> {
    (0..links.array_len(gvl)).map(|at| number(links.at(gvl, at)) as i32).collect()
}

fn install(gvl: &mut Gvl, options: Options, fds: &[i32], board: Scoreboard) -> std::io::Result<()> {
    fds.iter().try_for_each(|&fd| os::set_blocking(fd))?;
    let ports: &'static [Port] = Vec::leak(fds.iter().copied().map(Port::new).collect());
    place().own_timer()?;
    Worker::install(gvl, options, ports, board, Vec::new());
    place().watchdog.start(place::here(), ports, options.fibers > 0)
}

/// Starts an attached worker, which serves `app` in threads of this process. Combines [`prepare`] and [`start`]. `bell` is the writing end
/// of a pipe that is written to when there is work for [`revive`] or [`release`]. Returns its serial number.
#[allow(clippy::too_many_arguments)]
fn attach(
    gvl: &mut Gvl,
    app: Value,
    base: Value,
    threads: Value,
    limits: Value,
    rack3: Value,
    links: Value,
    scoreboard: Value,
    slot_len: Value,
    bell: Value,
) -> Value {
    names::look_up(gvl);
    let Some(at) = worker::free_place(gvl) else {
        failed(gvl, format!("there are {} servers in this process already", place::PLACES - 1));
    };
    let options = options(gvl, base, threads, limits, rack3);
    let (fd, slot_len, bell) = (number(scoreboard) as i32, number(slot_len), number(bell) as i32);
    let board = match Scoreboard::map(fd, 0, slot_len, options.threads_max) {
        Ok(board) => board,
        Err(error) => failed(gvl, format!("cannot map the scoreboard: {error}")),
    };
    let mut started = Err("out of memory".to_owned());
    let here = place::here();
    let begun = ruby::protect(gvl, |gvl| {
        started = place::within(at, || begin(gvl, options, (app, base), (links, board), bell));
    });
    if begun.is_err() {
        // An exception has left the thread at the new place.
        place::settle(here);
    }
    match started {
        Ok(serial) => ruby::integer(gvl, serial as i64),
        Err(text) => failed(gvl, text),
    }
}

fn begin(
    gvl: &mut Gvl,
    options: Options,
    (app, base): (Value, Value),
    (links, board): (Value, Scoreboard),
    bell: i32,
) -> Result<u64, String> {
    place().set_app(gvl, app, base);
    let failed = |error| format!("cannot use a link, or start a thread: {error}");
    let fds = descriptors(gvl, links);
    if let Err(error) = install(gvl, options, &fds, board) {
        Worker::uninstall(gvl);
        return Err(failed(error));
    }
    let serial = Worker::attach(gvl, bell);
    (0..options.threads_min).for_each(|index| serve::provide(gvl, Help::Spawn(index)));
    if worker(gvl, |w| w.tasks.is_empty()) {
        Worker::uninstall(gvl);
        return Err("cannot start a thread".to_owned());
    }
    ready(gvl, options.threads_max, 0);
    Ok(serial)
}

fn attached(gvl: &Gvl, serial: Value) -> Option<usize> {
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
            killed.into_iter().for_each(|index| serve::again(gvl, index));
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

fn add_task(gvl: &mut Gvl, index: usize) {
    match ServingThread::obtain(gvl, index) {
        Ok(task) => worker(gvl, |w| w.tasks.push(task)),
        Err(error) => failed(gvl, format!("cannot start a thread: {error}")),
    }
}

/// Sends READY with the number of requests that can be served at the same time, and the number of those served by fibers with their own links.
fn ready(gvl: &Gvl, seats: usize, fiber_seats: usize) {
    let [seats, fiber_seats] = [seats, fiber_seats].map(|count| u16::try_from(count).unwrap_or(u16::MAX));
    let ready = wire::frame::Ready { pid: std::process::id(), seats, fiber_seats };
    send_frame(gvl, |out| wire::frame::append(out, Kind::Ready, 0, 0, &ready.to_bytes()));
}

fn stopping(gvl: &mut Gvl) -> Value {
    if worker::is_set_up(gvl) {
        send_frame(gvl, |out| wire::frame::append(out, Kind::Stopping, 0, 0, b""));
    }
    NIL
}

/// The number of backtraces that are sent at a time.
const TRACES: usize = 1_000;

/// Lists the requests being served: for each its thread or fiber, the number of its link, its id there.
fn serving(gvl: &mut Gvl) -> Value {
    let list = |gvl: &mut Gvl| {
        worker(gvl, |w| -> Vec<(Value, u32, u32)> {
            let threads = w.tasks.iter().copied().filter(|task| task.active.get());
            let who = |task: &'static Task| {
                task.fiber.as_ref().map_or(task.thread.ruby.get(), |fiber| fiber.ruby.get())
            };
            let all = threads.chain(w.fibers_serving());
            all.map(|task| (who(task), w.scoreboard.link_number(task.link.get()), task.id.get())).collect()
        })
    };
    let mut active = list(gvl);
    if let Pair::Threads(at) = worker(gvl, |w| w.pair) {
        active.extend(place::within(at, || list(gvl)));
    }
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

/// Calls [`super::signals::take`] with a list of numbers.
fn take_signals(gvl: &mut Gvl, signals: Value) -> Value {
    let mut few = [0; 8];
    let count = signals.array_len(gvl).min(few.len());
    for (at, signal) in few.iter_mut().take(count).enumerate() {
        *signal = number(signals.at(gvl, at)) as i32;
    }
    if let Err(error) = super::signals::take(&few[..count]) {
        failed(gvl, format!("the worker's signals: {error}"));
    }
    NIL
}

/// Waits until signals have come. Returns them as the bits of a number.
fn asked_by_signals(gvl: &mut Gvl) -> Value {
    let came = super::signals::asked(gvl);
    ruby::integer(gvl, came as i64)
}

/// Sends a frame that concerns the whole worker: at once if the socket takes it, otherwise with the next responses. Does nothing for a worker
/// without links, whose own thread has already seen that the front is gone.
fn send_frame(gvl: &Gvl, frame: impl FnOnce(&mut Vec<u8>)) {
    let Some(outbox) = worker(gvl, |w| w.links.first().map(Link::outbox)) else { return };
    outbox.append(os::now_us(), None, frame);
    if outbox.send().is_err() {
        serve::end(gvl, 0);
    }
}

fn serve_main(gvl: &mut Gvl) -> Value {
    serve::serve(gvl, 0);
    NIL
}

/// Closes the parent's links in a child that the app has forked.
fn abandon(gvl: &mut Gvl) -> Value {
    Worker::abandon(gvl);
    NIL
}

/// Returns the socket of the template to be forked, or nil, when serving is over. Stops the native threads, which would hinder the
/// fork.
fn promotion(gvl: &mut Gvl) -> Value {
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
        Stage::Unsent => {}
        Stage::Hijacked => return NIL,
        Stage::Begun | Stage::Ended => ruby::raise(
            gvl,
            names::names().io_error.get(),
            "rack.hijack was called after the response had begun",
        ),
    }
    match body::pair() {
        Ok((ours, theirs)) => {
            let env = task.env.get();
            emit::hijack(gvl, task, theirs);
            serve::flush(gvl, task);
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
    if task.stage.get() == Stage::Unsent {
        head::early_hints(gvl, task, fields);
        task.interim.with(gvl, |frame| emit::interim(gvl, task, frame));
        serve::flush(gvl, task);
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
    if task.stage.get() == Stage::Unsent {
        emit::extend(gvl, task, milliseconds);
        serve::flush(gvl, task);
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
    os::release_gaps();
    NIL
}

fn settle_heap(_gvl: &mut Gvl) -> Value {
    os::settle_heap();
    NIL
}

// Fibers: see `crate::fibers`. Times are in microseconds; nil means no limit.

/// The body of a fiber that serves requests.
fn fiber_body(gvl: &mut Gvl) -> Value {
    fibers::body(gvl);
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
///
/// It returns "undefined", as if the method did not exist, so Ruby reads by itself. Only a C function can return that, and only to Ruby's own C
/// code, its caller.
fn fiber_reads(_gvl: &mut Gvl, scheduler: Value) -> Value {
    unsafe extern "C" fn io_read(count: i32, arguments: *const VALUE, _scheduler: VALUE) -> VALUE {
        if count > 0 {
            // SAFETY: Ruby calls methods with the GVL, and this one with so many arguments.
            unsafe { gvl::enter(|gvl| fibers::before_read(gvl, Value::from_raw(*arguments))) };
        }
        rb_sys::Qundef as VALUE
    }
    // SAFETY: a class, and a method that takes any number of arguments.
    unsafe {
        let method = std::mem::transmute::<*const (), Method>(io_read as *const ());
        rb_sys::rb_define_method(scheduler.raw(), c"io_read".as_ptr(), Some(method), -1);
    }
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
