//! `Native.prepare`, `start` and `attach`: the beginning of a worker.

use super::{failed, number, send_frame};
use crate::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::raw::ruby::{self, NIL, Value};
use crate::scoreboard::Scoreboard;
use crate::watchdog::Port;
use crate::worker::place::{self, place};
use crate::worker::task::ServingThread;
use crate::worker::{Help, Options, Worker, worker};
use crate::{links, routes, serve};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wire::{FrameKind, Seats};

static OPTIONS: Guarded<Option<Options>> = Guarded::new(None);

/// A Hash of Ruby whose keys are Symbols.
#[derive(Clone, Copy)]
struct Named(Value);

impl Named {
    fn get(self, gvl: &mut Gvl, name: &str) -> Value {
        let key = ruby::symbol(gvl, name);
        ruby::hash_get(gvl, self.0, key)
    }

    /// Returns 0 where there is none.
    fn number(self, gvl: &mut Gvl, name: &str) -> usize {
        let value = self.get(gvl, name);
        if value.is_nil() { 0 } else { number(value) }
    }
}

/// Sets the state that all workers share; called in the template. `base` is the env that each request starts from; the keys of `options` are
/// those that [`read`] reads.
pub(super) fn prepare(gvl: &mut Gvl, app: Value, base: Value, options: Value) -> Value {
    names::look_up(gvl);
    get_ready_to_measure(gvl);
    place().set_app(gvl, app, base);
    let options = read(gvl, base, Named(options));
    OPTIONS.with(gvl, |slot| *slot = Some(options));
    NIL
}

/// Looks at what the loaded app and this Ruby tell about requests. May raise.
fn get_ready_to_measure(gvl: &mut Gvl) {
    ruby::find_gc_figures(gvl);
    routes::look_for_frameworks(gvl);
}

fn read(gvl: &mut Gvl, base: Value, given: Named) -> Options {
    let temp_dir = PathBuf::from(OsStr::from_bytes(given.get(gvl, "temp_dir").bytes(gvl)));
    Options {
        threads_min: given.number(gvl, "threads_min").max(1),
        threads_max: given.number(gvl, "threads_max").max(1),
        serve: serve::serve,
        fibers: given.number(gvl, "fibers"),
        slice_us: given.number(gvl, "slice_us") as u64,
        blocking_us: given.number(gvl, "blocking_us") as u64,
        // A frame must hold the head and an inline body.
        max_head: given.number(gvl, "max_head").min(512 << 10),
        early_hints: ruby::hash_get(gvl, base, names::names().early_hints.get()).truthy(),
        rack3: given.get(gvl, "rack3").truthy(),
        response_memory: given.number(gvl, "response_memory") as u64,
        response_spool: given.number(gvl, "response_spool") as u64,
        temp_dir: Box::leak(temp_dir.into_boxed_path()),
    }
}

/// Takes over the links, starts the threads and sends READY, after the fork. `shape` has the worker's `threads_min`, `threads_max` and
/// `fibers`, which replace those of [`prepare`].
pub(super) fn start(
    gvl: &mut Gvl,
    index: Value,
    links: Value,
    scoreboard: Value,
    slot_len: Value,
    shape: Value,
) -> Value {
    let [threads_min, threads_max, fibers] = [0, 1, 2].map(|at| number(shape.at(gvl, at)));
    let prepared = OPTIONS.with(gvl, |slot| *slot).expect("prepare comes first");
    let options = Options { threads_min, threads_max, fibers, ..prepared };
    let fds = descriptors(gvl, links);
    let board = board(gvl, number(scoreboard), number(index), number(slot_len), fds.len());
    if let Err(error) = install(gvl, options, &fds, board) {
        failed(gvl, no_install(&error));
    }
    match ServingThread::obtain(gvl, 0) {
        Ok(task) => worker(gvl, |w| w.tasks.push(task)),
        Err(error) => failed(gvl, format!("cannot start a thread: {error}")),
    }
    board.thread_started();
    (1..options.threads_min).for_each(|index| links::provide(gvl, Help::Spawn(index)));
    ready(gvl, options);
    NIL
}

/// Starts an attached worker, which serves `app` in threads of this process: [`prepare`] and [`start`] in one. `front` has the descriptors of
/// the `links` and of the `scoreboard`, its `slot_len`, and the `bell`: the writing end of a pipe that is written to when there is work for
/// `revive` or `release`. Returns its serial number.
pub(super) fn attach(gvl: &mut Gvl, app: Value, base: Value, options: Value, front: Value) -> Value {
    names::look_up(gvl);
    get_ready_to_measure(gvl);
    let options = read(gvl, base, Named(options));
    let front = Named(front);
    let [scoreboard, slot_len, bell] = ["scoreboard", "slot_len", "bell"].map(|name| front.number(gvl, name));
    let links = front.get(gvl, "links");
    let board = board(gvl, scoreboard, 0, slot_len, links.array_len(gvl));
    let (here, other) = (place(), place::free(gvl));
    let mut started = Err("out of memory".to_owned());
    let begun = ruby::protect(gvl, |gvl| {
        started = place::within(other, || {
            other.set_app(gvl, app, base);
            begin_attached(gvl, options, links, board, bell as i32)
        });
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

fn begin_attached(
    gvl: &mut Gvl,
    options: Options,
    links: Value,
    board: Scoreboard,
    bell: i32,
) -> Result<u64, String> {
    let fds = descriptors(gvl, links);
    if let Err(error) = install(gvl, options, &fds, board) {
        Worker::uninstall(gvl);
        return Err(no_install(&error));
    }
    let serial = worker(gvl, |w| w.attach(gvl, bell));
    (0..options.threads_min).for_each(|index| links::provide(gvl, Help::Spawn(index)));
    if worker(gvl, |w| w.tasks.is_empty()) {
        Worker::uninstall(gvl);
        return Err("cannot start a thread".to_owned());
    }
    ready(gvl, options);
    Ok(serial)
}

fn board(gvl: &mut Gvl, fd: usize, index: usize, slot_len: usize, links: usize) -> Scoreboard {
    match Scoreboard::map(fd as i32, index, slot_len, links) {
        Ok(board) => board,
        Err(error) => failed(gvl, format!("cannot map the scoreboard: {error}")),
    }
}

fn descriptors(gvl: &Gvl, links: Value) -> Vec<i32> {
    (0..links.array_len(gvl)).map(|at| number(links.at(gvl, at)) as i32).collect()
}

fn install(gvl: &mut Gvl, options: Options, fds: &[i32], board: Scoreboard) -> io::Result<()> {
    fds.iter().try_for_each(|&fd| os::set_blocking(fd))?;
    let ports: &'static [Port] = Vec::leak(fds.iter().copied().map(Port::new).collect());
    place().own_timer()?;
    Worker::install(gvl, options, ports, board);
    place().watchdog.start(ports, options.fibers > 0)
}

fn no_install(error: &io::Error) -> String {
    format!("cannot use a link, or start a thread: {error}")
}

/// Sends READY with the number of requests that can be served at the same time.
fn ready(gvl: &Gvl, options: Options) {
    let seats = Seats { threads: options.threads_max as u32, fibers: options.fibers as u32 }.count();
    let ready = wire::frame::Ready { pid: std::process::id(), seats };
    send_frame(gvl, |out| wire::frame::append(out, FrameKind::Ready, 0, 0, &ready.to_bytes()));
}
