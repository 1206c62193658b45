//! Serves one request, from its frame to its END.
//!
//! Contract: whatever the app does, exactly one response is sent, the body is closed exactly once, and the thread
//! goes on. The app is called in one place, under one [`ruby::protect`]. A panic fails only its request.

use crate::fibers::blocking;
use crate::link::Job;
use crate::links::protocol_error;
use crate::names::names;
use crate::pace::{Finished, SLOW_US};
use crate::raw::gvl::Gvl;
use crate::raw::os;
use crate::raw::panics;
use crate::raw::ruby::{self, Jump, Value};
use crate::recorder::Recorder;
use crate::worker::place::place;
use crate::worker::task::{ResponseStage, Task};
use crate::worker::{is_abandoned, worker};
use crate::{allocations, body, emit, env, head, profile, routes, waiting};
use std::os::fd::RawFd;
use wire::request::{Request, asks_to_measure};

/// Serves a request taken up at `started_us`. Returns the time when it finished, in microseconds.
pub(crate) fn run(gvl: &mut Gvl, task: &'static Task, job: Job, started_us: u64) -> u64 {
    let (board, outbox) = worker(gvl, |w| (w.scoreboard, w.links[job.link as usize].outbox()));
    task.begin(outbox, job.link, job.id, started_us);
    if task.fiber.is_some() {
        worker(gvl, |w| w.fiber_begins(task));
    }
    board.begin(task.thread.index, job.link, job.id, started_us);
    let (samples, shared) = worker(gvl, |w| (w.samples(), w.shares_process()));
    // Slow requests are all measured: it costs little, and there may be few of them.
    let measure = asks_to_measure(&job.bytes[job.payload.clone()]) || task.thread.slow.get();
    let cpu_us = (samples || measure).then(os::thread_us);
    let waits = samples.then(os::thread_waits);
    cpu_us.filter(|_| measure).into_iter().for_each(|cpu_us| task.measure(gvl, cpu_us, shared));
    let served = panics::contain(|| match job.gone {
        true => drop_unstarted(gvl, task, job.fd),
        false => serve_request(gvl, task, &job, board.recorder()),
    });
    let failed = served.unwrap_or_else(|| {
        task.in_app.set(false);
        let _ = panics::contain(|| end_unfinished(gvl, task));
        true
    });
    board.finish(task.thread.index, failed);
    let now_us = os::now_us();
    if task.fiber.is_some() {
        // After this the request is no longer registered.
        blocking::check(gvl, task.thread, Some(task), now_us);
    }
    let took_us = now_us.saturating_sub(started_us);
    let name = routes::name(gvl, task.route.get());
    let outcome = (failed, task.status.get());
    board.recorder().end(gvl, (task.thread.index, job.link, job.id), (now_us, took_us), outcome, name);
    profile::ended(gvl, task, took_us);
    allocations::ended(gvl, task);
    task.end(gvl);
    // With fibers every stretch of a measured request would cost readings.
    task.thread.slow.set(task.fiber.is_none() && took_us > SLOW_US);
    // A thread that never waited lacked only a processor; another thread beside it would, too.
    let off_us = waits.zip(cpu_us).map(|(waits, cpu_us)| match os::thread_waits() == waits {
        true => 0,
        false => took_us.saturating_sub(os::thread_us().saturating_sub(cpu_us)),
    });
    place().watchdog.ended();
    // A waiting fiber blocks nothing, so only the time since it was entered counts.
    let held_us = task.fiber.as_ref().map_or(took_us, |fiber| now_us.saturating_sub(fiber.entered_us.get()));
    worker(gvl, |w| {
        let queued_us = task.queued_us.get();
        w.ended(task.thread.index, &Finished { now_us, took_us: held_us, queued_us, off_us });
        if task.fiber.is_some() {
            w.fiber_ends(task);
        }
    });
    now_us
}

/// Ends the request of a waiting fiber because its thread is being killed; the client gets no more of the response.
pub(crate) fn give_up(gvl: &mut Gvl, task: &'static Task) {
    end_unfinished(gvl, task);
    task.return_loan();
    place().watchdog.ended();
    worker(gvl, |w| w.fiber_gives_up(task));
}

/// Ends an unfinished request: an unsent response becomes an error response, a begun one is cut off.
fn end_unfinished(gvl: &mut Gvl, task: &'static Task) {
    task.close_writer(gvl);
    match task.stage.get() {
        ResponseStage::Unsent => emit::fallback(gvl, task),
        ResponseStage::Begun | ResponseStage::Hijacked => emit::end(gvl, task, true),
        ResponseStage::Ended => {}
    }
}

fn drop_unstarted(gvl: &mut Gvl, task: &'static Task, fd: Option<RawFd>) -> bool {
    fd.into_iter().for_each(os::close);
    emit::end(gvl, task, true);
    false
}

fn serve_request(gvl: &mut Gvl, task: &'static Task, job: &Job, recorder: Recorder) -> bool {
    let request = match Request::decode(&job.bytes[job.payload.clone()]) {
        Ok(request) => request,
        Err(error) => {
            job.fd.into_iter().for_each(os::close);
            protocol_error(gvl, &error);
            return true;
        }
    };
    let started_us = task.started_us.get();
    let queued_us = started_us.saturating_sub(request.head.asked_us);
    let serving = (task.thread.index, job.link, job.id);
    recorder.begin(gvl, serving, (started_us, queued_us), (request.head.method, request.path()));
    task.head_only.set(request.head.method == b"HEAD");
    task.queued_us.set(queued_us);
    if let Some(fiber) = &task.fiber {
        fiber.interruptible.set(matches!(request.head.method, b"GET" | b"HEAD" | b"QUERY"));
    }
    let mut failed = match attempt(gvl, task, |gvl| enter(gvl, task, &request, job.fd)) {
        Ok(()) => false,
        Err(cause) => failure(gvl, task, cause),
    };
    if task.stage.get() != ResponseStage::Ended {
        emit::end(gvl, task, failed);
    }
    if needs_close(gvl, task.body.get()) {
        send_before_close(gvl, task);
        failed |= afterwards(gvl, task, close);
    }
    if task.unfinished.get() {
        failed |= afterwards(gvl, task, finish);
    }
    failed
}

/// Runs a part of the app. A child that the app has forked exits when it returns here.
#[inline]
fn attempt(gvl: &mut Gvl, task: &'static Task, part: impl FnMut(&mut Gvl)) -> Result<(), (Jump, Value)> {
    task.in_app.set(true);
    let outcome = ruby::protect(gvl, part);
    task.in_app.set(false);
    if is_abandoned(gvl) {
        os::exit_now(i32::from(outcome.is_err()));
    }
    if let Err((jump, _)) = outcome {
        task.thread.killed.set(task.thread.killed.get() || jump.is_kill());
    }
    outcome
}

#[inline]
fn enter(gvl: &mut Gvl, task: &'static Task, request: &Request<'_>, fd: Option<RawFd>) {
    let env = env::build(gvl, task, request, fd);
    task.env.set(env);
    let app = place().app();
    let response = match task.shadow.get() {
        false => ruby::call(gvl, app, names().call, &[env]),
        true => ruby::call(gvl, names().shadow.get(), names().call, &[app, env]),
    };
    if is_abandoned(gvl) {
        return;
    }
    respond(gvl, task, response, true);
    task.unfinished.set(!task.input.get().is_nil() || has_callbacks(gvl, env));
}

fn has_callbacks(gvl: &mut Gvl, env: Value) -> bool {
    let finished = ruby::hash_get(gvl, env, names().response_finished.get());
    let after = ruby::hash_get(gvl, env, names().after_reply.get());
    [finished, after].iter().any(|list| list.is_array(gvl) && list.array_len(gvl) > 0)
}

/// Takes apart and sends status, headers and body. May raise.
#[inline]
fn respond(gvl: &mut Gvl, task: &'static Task, response: Value, from_app: bool) {
    routes::find(gvl, task);
    let triple = if response.is_array(gvl) { response } else { ruby::to_ary(gvl, response) };
    if task.stage.get() != ResponseStage::Unsent {
        // Hijacked: the response is not sent, but its body must be closed.
        if !triple.is_nil() {
            task.body.set(triple.at(gvl, 2));
        }
        return;
    }
    if triple.is_nil() || triple.array_len(gvl) != 3 {
        ruby::raise(gvl, names().bad_response.get(), "the app did not return [status, headers, body]");
    }
    let (status, headers, body) = (triple.at(gvl, 0), triple.at(gvl, 1), triple.at(gvl, 2));
    if from_app {
        task.body.set(body);
    }
    task.headers.set(headers);
    let status = head::status(gvl, status);
    task.status.set(status);
    if status >= 500 && from_app {
        record_fault(gvl, task);
    }
    let head = head::response(gvl, task, status, headers);
    if from_app && task.send_file.get() {
        let number = ruby::integer(gvl, i64::from(status));
        let file =
            ruby::call(gvl, names().exchange.get(), names().send_file, &[task.env.get(), number, headers]);
        // No rule for that path: the app's response is sent unchanged.
        if !file.is_nil() {
            task.finite.set(false);
            task.coded.set(false);
            return respond(gvl, task, file, false);
        }
    }
    if from_app && task.switches.get() {
        let number = ruby::integer(gvl, i64::from(status));
        let arguments = [task.env.get(), number, headers, body];
        let switched = ruby::call(gvl, names().protocols.get(), names().switched, &arguments);
        // The status does not switch: the app's response is sent unchanged.
        if !switched.is_nil() {
            task.finite.set(false);
            task.coded.set(false);
            return respond(gvl, task, switched, false);
        }
    }
    body::respond(gvl, task, head, status, body);
    triple.keep();
}

/// Sends an error page for an exception of the app, if the response has not begun. Returns whether it counts as a failure.
fn failure(gvl: &mut Gvl, task: &'static Task, (_, error): (Jump, Value)) -> bool {
    task.error.set(error);
    task.close_writer(gvl);
    emit::take_back(gvl, task);
    let unsent = task.stage.get() == ResponseStage::Unsent;
    if is_client_gone(gvl, task, error) {
        emit::end(gvl, task, true);
        return false;
    }
    task.take_over.set(ruby::NIL);
    let _ = attempt(gvl, task, |gvl| record_fault(gvl, task));
    let answered = attempt(gvl, task, |gvl| {
        let page = ruby::call(gvl, names().exchange.get(), names().failed, &[error, task.env.get()]);
        if unsent {
            respond(gvl, task, page, false);
        }
    });
    if answered.is_err() || task.stage.get() != ResponseStage::Ended {
        end_unfinished(gvl, task);
    }
    true
}

/// Records the exception of the app: the one out of it, or the one of which a framework has made an error page. May raise.
#[cold]
fn record_fault(gvl: &mut Gvl, task: &'static Task) {
    let fault = ruby::call(gvl, names().exchange.get(), names().fault, &[task.error.get(), task.env.get()]);
    if fault.is_string(gvl) {
        let serving = (task.thread.index, task.link.get(), task.id.get());
        worker(gvl, |w| w.scoreboard).recorder().raised(gvl, serving, fault.bytes(gvl));
    }
}

/// Returns whether the exception only reports that the client has disconnected, even if a library has wrapped it.
fn is_client_gone(gvl: &mut Gvl, task: &'static Task, error: Value) -> bool {
    if error.is_nil() {
        return false;
    }
    let mut gone = false;
    let asked = attempt(gvl, task, |gvl| {
        gone = ruby::call(gvl, names().exchange.get(), names().is_client_gone, &[error]).truthy();
    });
    asked.is_ok() && gone
}

/// Runs a step that follows the response. Returns whether it failed; a failure is logged.
#[inline]
fn afterwards(gvl: &mut Gvl, task: &'static Task, part: fn(&mut Gvl, &'static Task)) -> bool {
    let Err((_, error)) = attempt(gvl, task, |gvl| part(gvl, task)) else { return false };
    task.error.set(error);
    if is_client_gone(gvl, task, error) {
        return false;
    }
    let _ = attempt(gvl, task, |gvl| {
        ruby::call(gvl, names().exchange.get(), names().failed, &[task.error.get(), task.env.get()]);
    });
    true
}

/// Sends the response before `close`, which may take long, if no more requests wait. Otherwise the response stays in the batch,
/// and the watchdog sends it if `close` is slow.
#[inline]
fn send_before_close(gvl: &mut Gvl, task: &'static Task) {
    if worker(gvl, |w| w.inbox.is_empty()) {
        waiting::flush(gvl, task);
    }
}

#[inline]
fn needs_close(gvl: &Gvl, body: Value) -> bool {
    !body.is_nil() && !body.is_plain_array(gvl) && !body.is_string(gvl)
}

fn close(gvl: &mut Gvl, task: &'static Task) {
    let body = task.body.get();
    if ruby::responds(gvl, body, names().close) {
        ruby::call(gvl, body, names().close, &[]);
    }
}

/// Runs the callbacks for the end of the response, and closes the input.
#[inline]
fn finish(gvl: &mut Gvl, task: &'static Task) {
    let (env, ids) = (task.env.get(), names());
    if env.is_nil() {
        return;
    }
    if !task.input.get().is_nil() {
        ruby::call(gvl, task.input.get(), ids.close, &[]);
    }
    let finished = ruby::hash_get(gvl, env, ids.response_finished.get());
    if finished.is_array(gvl) && finished.array_len(gvl) > 0 {
        waiting::flush(gvl, task);
        let status = ruby::integer(gvl, i64::from(task.status.get()));
        ruby::call(
            gvl,
            ids.exchange.get(),
            ids.finished,
            &[env, status, task.headers.get(), task.error.get()],
        );
    }
    let after = ruby::hash_get(gvl, env, ids.after_reply.get());
    if after.is_array(gvl) && after.array_len(gvl) > 0 {
        waiting::flush(gvl, task);
        ruby::call(gvl, ids.exchange.get(), ids.reply_sent, &[after, env]);
    }
}
