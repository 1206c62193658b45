//! `Firebrick::Native`: what Ruby may call.

use super::ruby::{self, NIL, Value, guard};
use super::{gvl, os};
use crate::scoreboard::Scoreboard;
use crate::task::{Stage, Task};
use crate::worker::{self, Help, Options, Worker, worker};
use crate::{body, emit, env, head, job, names, serve};
use rb_sys::VALUE;
use std::ffi::CStr;
use wire::Kind;

type Method = unsafe extern "C" fn() -> VALUE;

fn define(module: VALUE, name: &CStr, method: Method, arity: i32) {
    // SAFETY: the callers below pass a method of this arity.
    unsafe { rb_sys::rb_define_singleton_method(module, name.as_ptr(), Some(method), arity) };
}

macro_rules! methods {
    ($module:ident: $($ruby:literal => $function:ident($($argument:ident),*);)*) => {$({
        unsafe extern "C" fn trampoline(_module: VALUE $(, $argument: VALUE)*) -> VALUE {
            guard(|| $function($(Value::from_raw($argument)),*)).raw()
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
    guard(|| {
        // SAFETY: Ruby is up and this thread has the GVL.
        let module = unsafe {
            let firebrick = rb_sys::rb_define_module(c"Firebrick".as_ptr());
            rb_sys::rb_define_module_under(firebrick, c"Native".as_ptr())
        };
        methods! { module:
            c"wire" => wire_version();
            c"prepare" => prepare(app, base, threads_min, threads_max, max_head, rack3);
            c"start" => start(index, links, scoreboard, slot_len);
            c"serve" => serve_main();
            c"stopping" => stopping();
            c"serving" => serving();
            c"traces" => send_traces(traces);
            c"abandon" => abandon();
            c"hijack" => hijack();
            c"early_hints" => early_hints(headers);
            c"receive" => receive(fd);
            c"reap" => reap(pid);
            c"parent_death_signal" => parent_death_signal(signal);
            c"trim_heap" => trim_heap();
        }
    });
}

fn number(value: Value) -> usize {
    value.fixnum().and_then(|number| usize::try_from(number).ok()).expect("a number that is not negative")
}

fn failed(text: impl AsRef<str>) -> ! {
    // SAFETY: set before any extension loads.
    ruby::raise(Value::from_raw(unsafe { rb_sys::rb_eRuntimeError }), text)
}

/// Which docs/wire.md this library speaks.
fn wire_version() -> Value {
    ruby::integer(wire::VERSION.into())
}

static OPTIONS: gvl::Guarded<Option<Options>> = gvl::Guarded::new(None);

/// In the template: everything that workers will share.
fn prepare(
    app: Value,
    base: Value,
    threads_min: Value,
    threads_max: Value,
    max_head: Value,
    rack3: Value,
) -> Value {
    let _ = names::names();
    job::set_app(app);
    env::set_base(base);
    let options = Options {
        threads_min: number(threads_min).max(1),
        threads_max: number(threads_max).max(1),
        // A frame must hold the head and an inline body.
        max_head: number(max_head).min(512 << 10),
        rack3: rack3.truthy(),
    };
    OPTIONS.with(|slot| *slot = Some(options));
    NIL
}

/// After the fork: takes the links over, starts the threads, reports for work.
fn start(index: Value, links: Value, scoreboard: Value, slot_len: Value) -> Value {
    let options = OPTIONS.with(|slot| *slot).expect("prepare comes first");
    let (fd, index, slot_len) = (number(scoreboard) as i32, number(index), number(slot_len));
    let board = match Scoreboard::map(fd, index, slot_len, options.threads_max) {
        Ok(board) => board,
        Err(error) => failed(format!("cannot map the scoreboard: {error}")),
    };
    if let Err(error) = install(options, links, board) {
        failed(format!("cannot use a link: {error}"));
    }
    add_task(0);
    board.thread_started();
    (1..options.threads_min).for_each(|index| serve::lend(Help::Spawn(index)));
    let _ = worker::alarm();
    ready(options.threads_max);
    NIL
}

fn install(options: Options, links: Value, board: Scoreboard) -> std::io::Result<()> {
    let fds: Vec<i32> = (0..links.array_len()).map(|at| number(links.at(at)) as i32).collect();
    fds.iter().try_for_each(|&fd| os::set_blocking(fd))?;
    Worker::install(options, &fds, board, Vec::new());
    Ok(())
}

fn add_task(index: usize) {
    match os::Bell::new() {
        Ok(bell) => {
            let task = Task::leak(index, bell);
            task.template.set(env::template());
            worker(|w| w.tasks.push(task));
        }
        Err(error) => failed(format!("cannot start a thread: {error}")),
    }
}

fn ready(threads: usize) {
    let mut payload = [0; 6];
    payload[..4].copy_from_slice(&std::process::id().to_le_bytes());
    payload[4..].copy_from_slice(&(threads as u16).to_le_bytes());
    tell(Kind::Ready, &payload);
}

fn stopping() -> Value {
    if worker::is_set_up() {
        tell(Kind::Stopping, b"");
    }
    NIL
}

/// For each request that is being served: the thread that serves it, the number of its link, its id there.
fn serving() -> Value {
    let active = worker(|w| -> Vec<(Value, u32, u32)> {
        let active = w.tasks.iter().filter(|task| task.active.get());
        active.map(|task| (task.thread.get(), task.link.get(), task.id.get())).collect()
    });
    let all = ruby::array(&[]);
    for (thread, link, id) in active {
        let numbers = [ruby::integer(i64::from(link)), ruby::integer(i64::from(id))];
        ruby::push(all, ruby::array(&[thread, numbers[0], numbers[1]]));
    }
    all
}

/// TRACES: link, id and an array of strings for each thread.
fn send_traces(traces: Value) -> Value {
    worker(|w| {
        let link = &mut w.links[0];
        link.append(os::now_us(), |out| {
            let mut encoder = wire::traces::Encoder::new(out);
            for trace in (0..traces.array_len()).map(|at| traces.at(at)) {
                let lines = trace.at(2);
                let lines = (0..lines.array_len()).map(|at| lines.at(at).bytes());
                encoder.trace(number(trace.at(0)) as u32, number(trace.at(1)) as u32, lines);
            }
            encoder.finish();
        });
        if link.send().is_err() {
            os::exit_now(0);
        }
    });
    NIL
}

/// A frame of the whole worker, sent at once if the socket takes it and with the next answers if not.
fn tell(kind: Kind, payload: &[u8]) {
    worker(|w| {
        let link = &mut w.links[0];
        link.append(os::now_us(), |out| wire::frame::append(out, kind, 0, 0, payload));
        if link.send().is_err() {
            os::exit_now(0);
        }
    });
}

fn serve_main() -> Value {
    serve::serve(0);
    NIL
}

/// In a child that the app has forked.
fn abandon() -> Value {
    Worker::abandon();
    NIL
}

/// `rack.hijack`: our end of the connection, and the env.
fn hijack() -> Value {
    let Some(task) = serve::current() else {
        failed("rack.hijack belongs to the thread that serves the request")
    };
    if task.stage.get() != Stage::Unsent {
        failed("rack.hijack comes too late: the response has begun");
    }
    match body::pair() {
        Ok((ours, theirs)) => {
            emit::hijack(task, theirs);
            serve::send(task, task.link.get() as usize);
            ruby::array(&[ruby::integer(i64::from(ours)), task.env.get()])
        }
        Err(text) => failed(text),
    }
}

/// `rack.early_hints`.
fn early_hints(headers: Value) -> Value {
    let Some(task) = serve::current() else {
        failed("rack.early_hints belongs to the thread that serves the request")
    };
    if task.stage.get() == Stage::Unsent {
        head::early_hints(task, headers);
        task.interim.with(|frame| emit::interim(task, frame));
        serve::send(task, task.link.get() as usize);
    }
    NIL
}

/// What has come on the control socket: bytes and descriptors; nil at its end.
fn receive(fd: Value) -> Value {
    let fd = number(fd) as i32;
    let (mut bytes, mut fds) = (Vec::with_capacity(16 << 10), Vec::new());
    let received = os::receive(fd, &mut bytes, &mut fds, false).unwrap_or_else(|error| {
        let again = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted);
        if again { usize::MAX } else { 0 }
    });
    if received == 0 {
        return NIL;
    }
    let fds: Vec<Value> = fds.into_iter().map(|fd| ruby::integer(i64::from(fd))).collect();
    ruby::array(&[ruby::string(&bytes), ruby::array(&fds)])
}

/// nil while the child runs; `["exit" or "signal", code, peak KiB]`; false when it is not ours.
fn reap(pid: Value) -> Value {
    match os::reap(number(pid) as i32) {
        Ok(None) => NIL,
        Ok(Some(ended)) => {
            let how = ruby::string(if ended.by_signal { b"signal" } else { b"exit" });
            ruby::array(&[how, ruby::integer(i64::from(ended.code)), ruby::integer(ended.peak_kib as i64)])
        }
        Err(_) => ruby::FALSE,
    }
}

fn parent_death_signal(signal: Value) -> Value {
    os::parent_death_signal(number(signal) as i32);
    NIL
}

fn trim_heap() -> Value {
    os::trim_heap();
    NIL
}
