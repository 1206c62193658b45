//! Counts the queries of the database that a request makes, and their time.
//!
//! The object `Firebrick::Native::Queries` gets the events `start` and `finish` of each query: from `ActiveSupport::Notifications`, or from a method
//! around Sequel's (`worker/lib/firebrick/routes.rb`). Both are native, so that an event costs two readings of the clock and no object.
//!
//! When a request has made a query [`REPEATED`](wire::used::REPEATED) times, the line of the app that makes it is looked for: the innermost frame in
//! the app's folder. A backtrace is taken once for a query in a route (or in a path without its numbers), at most [`PLACES`] times in a process.
//!
//! Contract: a query counts for the request that the calling thread or fiber serves. Queries of other threads, of the schema, and those that
//! Active Record's cache has answered do not count.

use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::methods::Module;
use crate::raw::os;
use crate::raw::ruby::{self, NIL, Value};
use crate::repeats::shape;
use crate::routes;
use crate::worker::task::{self, CURRENT, Task};
use rustc_hash::FxHashMap;

/// The name that Active Record gives to queries of the schema.
const SCHEMA: &[u8] = b"SCHEMA";
/// The places of repeated queries that are kept.
const PLACES: usize = 256;

/// The numbers of the names of places, by query and route; 0: it has none.
static KNOWN: Guarded<Option<FxHashMap<u64, u16>>> = Guarded::new(None);

/// Defines the object.
pub(crate) fn define(module: &Module) {
    let queries = module.under(c"Queries");
    queries.define(c"start", start);
    queries.define(c"finish", finish);
    module.define(c"reports_queries", reports);
}

fn reports(_gvl: &mut Gvl) -> Value {
    task::report_queries();
    NIL
}

fn current() -> Option<&'static Task> {
    CURRENT.get().filter(|task| task.active.get())
}

fn start(_gvl: &mut Gvl, _name: Value, _id: Value, _payload: Value) -> Value {
    if let Some(task) = current() {
        task.query_from_us.set(os::now_us());
    }
    NIL
}

fn finish(gvl: &mut Gvl, _name: Value, _id: Value, payload: Value) -> Value {
    if let Some(task) = current()
        && let from_us @ 1.. = task.query_from_us.take()
        && counts(gvl, payload)
    {
        if task.queries.get() == 0 {
            task.repeats.begin();
        }
        let us = os::now_us().saturating_sub(from_us);
        task.queries.set(task.queries.get().saturating_add(1));
        task.queries_us.set(task.queries_us.get() + us);
        let sql = match payload.is_hash(gvl) {
            true => ruby::hash_get(gvl, payload, names().sql.get()),
            false => payload,
        };
        note(gvl, task, sql, us);
    }
    NIL
}

/// `payload`: the Hash of an event of Active Record; the text of a query of Sequel.
fn counts(gvl: &mut Gvl, payload: Value) -> bool {
    if !payload.is_hash(gvl) {
        return true;
    }
    let name = ruby::hash_get(gvl, payload, names().name_key.get());
    let is_of_schema = name.is_string(gvl) && name.bytes(gvl) == SCHEMA;
    !is_of_schema && !ruby::hash_get(gvl, payload, names().cached.get()).truthy()
}

/// Counts a query of the request. `sql`: its text, if that is a String.
fn note(gvl: &mut Gvl, task: &'static Task, sql: Value, us: u64) {
    if !sql.is_string(gvl) {
        return;
    }
    let shape = shape(sql.bytes(gvl));
    if let Some(shape) = task.repeats.count(shape, us) {
        let place = place(gvl, task, shape, sql);
        task.repeats.is_at(shape, place);
    }
}

/// Returns the number of the name of the place that makes the query now; 0: it is not known.
#[cold]
fn place(gvl: &mut Gvl, task: &'static Task, shape: u64, sql: Value) -> u16 {
    let key = shape ^ u64::from(u32::MAX).wrapping_mul(routes::key(gvl, task));
    let known = |known: &mut Option<FxHashMap<u64, u16>>| {
        let known = known.get_or_insert_default();
        known.get(&key).copied().or_else(|| (known.len() >= PLACES).then_some(0))
    };
    if let Some(number) = KNOWN.with(gvl, known) {
        return number;
    }
    let mut number = 0;
    // An error here must not reach the app.
    let _ = ruby::protect(gvl, |gvl| {
        let name = ruby::call(gvl, names().routes.get(), names().place, &[sql]);
        number = if name.is_string(gvl) { routes::numbered(gvl, name.bytes(gvl)) } else { 0 };
    });
    KNOWN.with(gvl, |known| known.get_or_insert_default().insert(key, number));
    number
}
