//! One request, from its frame to its END.
//!
//! Contract: whatever the app does, exactly one response goes out, the body is closed exactly once, and the thread
//! goes on. The app is entered in one place, under one [`ruby::protect`].

use crate::link::Job;
use crate::names::names;
use crate::raw::os;
use crate::raw::ruby::{self, Jump, Slot, Value};
use crate::serve::protocol_error;
use crate::task::{Stage, Task};
use crate::worker::{is_abandoned, worker};
use crate::{body, emit, env, head, serve};
use std::os::fd::RawFd;
use std::sync::OnceLock;
use wire::request::{Request, asks_to_measure};

static APP: OnceLock<&'static Slot> = OnceLock::new();

/// Sets the app that all requests go to.
pub(crate) fn set_app(app: Value) {
    APP.get_or_init(|| Slot::leak(app)).set(app);
}

/// Serves a request that is taken up at `started_us`; returns when it was done with.
pub(crate) fn run(task: &'static Task, job: Job, started_us: u64) -> u64 {
    task.begin(job.link, job.id, started_us);
    let board = worker(|w| w.scoreboard);
    board.begin(task.index, job.link, job.id, started_us);
    let (samples, measure) = (worker(|w| w.samples()), asks_to_measure(&job.bytes[job.payload.clone()]));
    let cpu_us = (samples || measure).then(os::thread_us);
    cpu_us.filter(|_| measure).into_iter().for_each(|cpu_us| task.measure(cpu_us));
    let failed = if job.gone { drop_unstarted(task, job.fd) } else { serve_request(task, &job) };
    board.finish(task.index, failed);
    task.end();
    let now_us = os::now_us();
    let took_us = now_us.saturating_sub(started_us);
    let off_us = cpu_us
        .filter(|_| samples)
        .map(|before| took_us.saturating_sub(os::thread_us().saturating_sub(before)));
    worker(|w| {
        w.active -= 1;
        w.note(took_us, off_us);
        if w.leader == Some(task.index) {
            w.leader = None;
        }
    });
    now_us
}

fn drop_unstarted(task: &'static Task, fd: Option<RawFd>) -> bool {
    fd.into_iter().for_each(os::close);
    emit::end(task, true);
    false
}

fn serve_request(task: &'static Task, job: &Job) -> bool {
    let request = match Request::decode(&job.bytes[job.payload.clone()]) {
        Ok(request) => request,
        Err(error) => protocol_error(&error),
    };
    task.head_only.set(request.head.method == b"HEAD");
    let mut failed = attempt(task, || enter(task, &request, job.fd)).is_err_and(|cause| failure(task, cause));
    if task.stage.get() != Stage::Ended {
        emit::end(task, failed);
    }
    if needs_close(task.body.get()) {
        failed |= attempt(task, || close(task.body.get())).is_err_and(|(_, error)| complain(task, error));
    }
    if task.unfinished.get() {
        failed |= attempt(task, || finish(task)).is_err_and(|(_, error)| complain(task, error));
    }
    failed
}

/// Runs a part of the app. A child that the app has forked, and that comes back here, ends.
#[inline]
fn attempt(task: &'static Task, part: impl FnMut()) -> Result<(), (Jump, Value)> {
    task.in_app.set(true);
    let outcome = ruby::protect(part);
    task.in_app.set(false);
    if is_abandoned() {
        os::exit_now(i32::from(outcome.is_err()));
    }
    if let Err((jump, _)) = outcome {
        task.killed.set(task.killed.get() || jump.is_kill());
    }
    outcome
}

#[inline]
fn enter(task: &'static Task, request: &Request<'_>, fd: Option<RawFd>) {
    let env = env::build(task, request, fd);
    task.env.set(env);
    let app = APP.get().expect("the app has been set").get();
    let response = ruby::call(app, names().call, &[env]);
    if is_abandoned() {
        return;
    }
    respond(task, response, true);
    task.unfinished.set(!task.input.get().is_nil() || has_callbacks(env));
}

fn has_callbacks(env: Value) -> bool {
    let waits = |list: Value| list.is_array() && list.array_len() > 0;
    waits(ruby::hash_get(env, names().response_finished.get()))
        || waits(ruby::hash_get(env, names().after_reply.get()))
}

/// Takes status, headers and body apart and sends them. May raise.
#[inline]
fn respond(task: &'static Task, response: Value, from_app: bool) {
    let triple = if response.is_array() { response } else { ruby::to_ary(response) };
    if task.stage.get() != Stage::Unsent {
        // Hijacked: whatever was answered is not sent, but a body wants to be closed.
        if !triple.is_nil() {
            task.body.set(triple.at(2));
        }
        return;
    }
    if triple.is_nil() || triple.array_len() != 3 {
        ruby::raise(names().bad_response.get(), "the app did not answer [status, headers, body]");
    }
    let (status, headers, body) = (triple.at(0), triple.at(1), triple.at(2));
    if from_app {
        task.body.set(body);
    }
    task.headers.set(headers);
    let status = head::status(status);
    task.status.set(status);
    let head = head::response(task, status, headers);
    body::respond(task, head, status, body);
    triple.keep();
}

/// The app raised: answers for it, if nothing has been answered. Whether it counts as a failure of the app.
fn failure(task: &'static Task, (_, error): (Jump, Value)) -> bool {
    task.error.set(error);
    let unsent = task.stage.get() == Stage::Unsent;
    if task.gone.get() && !error.is_nil() && ruby::is_a(error, names().client_gone.get()) {
        emit::end(task, true);
        return false;
    }
    task.take_over.set(ruby::NIL);
    let answered = attempt(task, || {
        let page = ruby::call(names().exchange.get(), names().failed, &[error, task.env.get()]);
        if unsent {
            respond(task, page, false);
        }
    });
    match (answered, task.stage.get()) {
        (_, Stage::Unsent) => emit::last_resort(task),
        (_, Stage::Begun | Stage::Hijacked) => emit::end(task, true),
        (_, Stage::Ended) => {}
    }
    true
}

/// Something went wrong after the response.
fn complain(task: &'static Task, error: Value) -> bool {
    task.error.set(error);
    let _ = attempt(task, || {
        ruby::call(names().exchange.get(), names().failed, &[task.error.get(), task.env.get()]);
    });
    true
}

#[inline]
fn needs_close(body: Value) -> bool {
    !body.is_nil() && !body.is_plain_array() && !body.is_string()
}

fn close(body: Value) {
    if ruby::responds(body, names().close) {
        ruby::call(body, names().close, &[]);
    }
}

/// Runs what waits for the end of the response, and closes the input.
#[inline]
fn finish(task: &'static Task) {
    let (env, ids) = (task.env.get(), names());
    if env.is_nil() {
        return;
    }
    if !task.input.get().is_nil() {
        ruby::call(task.input.get(), ids.close, &[]);
    }
    let finished = ruby::hash_get(env, ids.response_finished.get());
    if finished.is_array() && finished.array_len() > 0 {
        let status = ruby::integer(i64::from(task.status.get()));
        ruby::call(ids.exchange.get(), ids.finished, &[env, status, task.headers.get(), task.error.get()]);
    }
    let after = ruby::hash_get(env, ids.after_reply.get());
    if after.is_array() && after.array_len() > 0 {
        serve::send(task, task.link.get() as usize);
        ruby::call(ids.exchange.get(), ids.reply_sent, &[after, env]);
    }
}
