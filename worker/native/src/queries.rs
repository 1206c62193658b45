//! Counts the queries of the database that a request makes, and their time.
//!
//! The object `Firebrick::Native::Queries` gets the events `start` and `finish` of each query: from `ActiveSupport::Notifications`, or from a method
//! around Sequel's (`worker/lib/firebrick/routes.rb`). Both are native, so that an event costs two readings of the clock and no object.
//!
//! Contract: a query counts for the request that the calling thread or fiber serves. Queries of other threads, of the schema, and those that
//! Active Record's cache has answered do not count.

use crate::names::names;
use crate::raw::gvl::Gvl;
use crate::raw::methods::Module;
use crate::raw::os;
use crate::raw::ruby::{self, NIL, Value};
use crate::worker::task::{self, CURRENT, Task};

/// The name that Active Record gives to queries of the schema.
const SCHEMA: &[u8] = b"SCHEMA";

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
        task.queries.set(task.queries.get().saturating_add(1));
        task.queries_us.set(task.queries_us.get() + os::now_us().saturating_sub(from_us));
    }
    NIL
}

/// `payload`: the Hash of an event of Active Record; nil for a query of Sequel.
fn counts(gvl: &mut Gvl, payload: Value) -> bool {
    if !payload.is_hash(gvl) {
        return true;
    }
    let name = ruby::hash_get(gvl, payload, names().name_key.get());
    let is_of_schema = name.is_string(gvl) && name.bytes(gvl) == SCHEMA;
    !is_of_schema && !ruby::hash_get(gvl, payload, names().cached.get()).truthy()
}
