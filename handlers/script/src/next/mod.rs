//! The rest of the server from a handler's view: `H2O.next`, `H2O.reprocess`, `x-reproxy-url` and early hints.
//!
//! Contract:
//! 1. `next` sends a request to the later handlers, files and the app; `reprocess` sends it through the whole
//!    server. Both build the request from the given env; the env's values about the connection do not change.
//! 2. A request is passed on a limited number of times ([`crate::Hops`]); after that the response is 502.
//! 3. The responses are held like those of other servers, and may be returned without passing through Ruby.

mod delegate;
mod env;

pub(crate) use delegate::delegate;

use crate::chain::{Position, ServedRequest};
use crate::context::TaskContext;
use crate::failure;
use crate::fetch::request::{NoDeparture, exchange};
use crate::held::Table;
use crate::ops::Area;
use crate::stream;
use crate::waiting::{OperationFuture, fault, ready};
use bytes::Bytes;
use env::Env;
use handler::{Exchange, Failure, Response, Trace};
use mruby::TapeValue;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

pub(crate) const AREA: Area<Table> = Area {
    calls: &[],
    waits: &[
        ("NEXT", |responses, task, args| hold(responses, task, args, next)),
        ("REPROCESS", |responses, task, args| hold(responses, task, args, reprocess)),
        ("HINTS", |_, task, args| match &task.origin {
            Some(origin) => hints(origin, args),
            None => no_request(),
        }),
    ],
    preludes: &[("h2o.rb", include_str!("../ruby/h2o.rb"))],
};

type Work = Pin<Box<dyn Future<Output = Result<Response, Failure>>>>;

/// Starts a request; returns the number of its response to Ruby.
fn hold(
    responses: &Rc<Table>,
    task: &TaskContext,
    args: &[TapeValue<'_>],
    start: fn(&ServedRequest, &[TapeValue<'_>]) -> Result<Work, String>,
) -> OperationFuture {
    let Some(origin) = &task.origin else { return no_request() };
    match start(origin, args) {
        Ok(work) => {
            let number = responses.begin(&task.held, false, work);
            ready(|tape| tape.int(number).done())
        }
        Err(why) => fault("ArgumentError", why),
    }
}

fn no_request() -> OperationFuture {
    fault("RuntimeError", "there is no request here: this works only while a request is handled")
}

/// `[[key, value …], body]`: sends a request to the link after this handler.
fn next(origin: &ServedRequest, args: &[TapeValue<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let env = Env(&pairs);
    let mount = origin.chain.mount(origin.position.route);
    if env.get("SCRIPT_NAME").unwrap_or_default() != mount.as_bytes() {
        return Err(format!("H2O.next works below SCRIPT_NAME \"{mount}\"; use H2O.reprocess to change it"));
    }
    let exchange = request(origin, &env, body(args))?;
    let (chain, position) = (origin.chain.clone(), origin.position.clone());
    let after = Position { handler: position.handler + 1, ..position };
    let trace = origin.trace.clone();
    Ok(Box::pin(async move { Ok(note_failure(chain.respond_from(after, exchange).await, &trace)) }))
}

/// `[[key, value …], body]`: sends a request through the whole server.
fn reprocess(origin: &ServedRequest, args: &[TapeValue<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let exchange = request(origin, &Env(&pairs), body(args))?;
    let Position { next, hops, .. } = origin.position.clone();
    let Some(reprocesses) = hops.reprocesses.checked_sub(1) else {
        let failure = failure::bad_delegation("a request was reprocessed too often: a loop?");
        let response = note_failure(origin.chain.fail(failure), &origin.trace);
        return Ok(Box::pin(std::future::ready(Ok(response))));
    };
    let hops = crate::Hops { reprocesses, ..hops };
    let trace = origin.trace.clone();
    Ok(Box::pin(async move { Ok(note_failure(next.reprocess(exchange, hops).await, &trace)) }))
}

/// Takes the failure out of a response that the handler may replace; the failure is logged with the request
/// in any case.
fn note_failure(mut response: Response, trace: &Trace) -> Response {
    if let Some(failure) = response.failure.take() {
        trace.note(*failure);
    }
    response
}

fn request(origin: &ServedRequest, env: &Env<'_>, body: Option<Bytes>) -> Result<Exchange, String> {
    let request = env.parts(origin.peer.clone(), body.as_ref().map(Bytes::len))?.request()?;
    let client = Rc::new(NoDeparture(Some(origin.client.clone())));
    Ok(exchange(request, body, client, origin.trace.clone()))
}

fn body(args: &[TapeValue<'_>]) -> Option<Bytes> {
    args.get(1).and_then(TapeValue::text).map(Bytes::copy_from_slice)
}

/// `[[name, value …]]`: sends a 103 response (RFC 8297).
fn hints(origin: &ServedRequest, args: &[TapeValue<'_>]) -> OperationFuture {
    let pairs = stream::fields(args.first());
    match crate::returned::fields(pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))) {
        Ok(fields) => {
            origin.client.interim(103, &fields);
            ready(|tape| tape.nil().done())
        }
        Err(failure) => fault("ArgumentError", failure.reason.as_bytes()),
    }
}
