//! The rest of the server as a handler sees it: `H2O.next`, `H2O.reprocess`, `x-reproxy-url` and early hints.
//!
//! Contract:
//! 1. `next` asks those who come after the handler in its route; `reprocess` asks the whole server again. Both make a request of
//!    the env they are given: what Rack says about the connection stays what it was.
//! 2. A request goes through the server again a bounded number of times ([`Hops`]); then it is answered 502.
//! 3. Their responses are held as those of other servers are, and may be returned without passing through Ruby.

mod delegate;
mod env;

pub(crate) use delegate::delegate;

use crate::fetch;
use crate::fetch::request::{Patient, exchange};
use crate::ops::{Waiting, fault};
use crate::runtime::Runtime;
use crate::script::{Next, Script};
use crate::stream;
use crate::tasks::Asker;
use bytes::Bytes;
use env::Env;
use handler::{Client, Exchange, Failure, FailureKind, Peer, Response, Trace};
use mruby::{Tape, Value};
use std::rc::Rc;

/// How often a request may still be handed on within the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    /// By `x-reproxy-url`.
    pub delegations: u8,
    /// By `H2O.reprocess`.
    pub reprocesses: u8,
}

impl Default for Hops {
    /// Five of each, as H2O allows.
    fn default() -> Hops {
        Hops { delegations: 5, reprocesses: 5 }
    }
}

impl Hops {
    /// Keys and values for the env, unless they are what every request has at first.
    pub(crate) fn told(self) -> Option<[(&'static str, String); 2]> {
        (self != Hops::default()).then(|| {
            [
                ("h2o.remaining_delegations", self.delegations.to_string()),
                ("h2o.remaining_reprocesses", self.reprocesses.to_string()),
            ]
        })
    }
}

/// Where in the chain of a route a request is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) route: usize,
    /// Number of the handler in its route.
    pub(crate) handler: usize,
    pub(crate) next: Rc<dyn Next>,
    pub(crate) hops: Hops,
}

/// The request that a task answers.
pub(crate) struct Origin {
    script: Rc<Script>,
    place: Place,
    client: Rc<dyn Client>,
    trace: Rc<Trace>,
    peer: Rc<Peer>,
}

impl Origin {
    pub(crate) fn new(script: &Rc<Script>, place: Place, exchange: &Exchange) -> Origin {
        Origin {
            script: script.clone(),
            place,
            client: exchange.client.clone(),
            trace: exchange.trace.clone(),
            peer: exchange.request.peer.clone(),
        }
    }

    fn exchange(&self, env: &Env<'_>, body: Option<Bytes>) -> Result<Exchange, String> {
        let request = env.parts(self.peer.clone(), body.as_ref().map(Bytes::len))?.request()?;
        let client = Rc::new(Patient(Some(self.client.clone())));
        Ok(exchange(request, body, client, self.trace.clone()))
    }
}

/// Waits of this area.
pub(crate) fn begin(runtime: &Rc<Runtime>, asker: &Rc<Asker>, op: &[u8], args: &[Value<'_>]) -> Waiting {
    let Some(origin) = &asker.origin else {
        return fault("RuntimeError", "there is no request here: this works while a request is answered");
    };
    let asked = match op {
        b"hints" => return hints(origin, args),
        b"next" => next(origin, args),
        _ => again(origin, args),
    };
    match asked {
        Ok(work) => fetch::numbered(runtime.state.fetch.table.begin(&asker.held, false, work)),
        Err(why) => fault("ArgumentError", why),
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<Response, Failure>>>>;

/// `[[key, value …], body]`: those who come after this handler.
fn next(origin: &Origin, args: &[Value<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let env = Env(&pairs);
    let mount = origin.script.mount(origin.place.route);
    if env.get("SCRIPT_NAME").unwrap_or_default() != mount.as_bytes() {
        return Err(format!(
            "H2O.next answers below SCRIPT_NAME \"{mount}\"; use H2O.reprocess to change it"
        ));
    }
    let exchange = origin.exchange(&env, body(args))?;
    let (script, place) = (origin.script.clone(), origin.place.clone());
    let after = Place { handler: place.handler + 1, ..place };
    Ok(Box::pin(async move { Ok(script.answer_from(after, exchange).await) }))
}

/// `[[key, value …], body]`: the whole server.
fn again(origin: &Origin, args: &[Value<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let exchange = origin.exchange(&Env(&pairs), body(args))?;
    let Place { next, hops, .. } = origin.place.clone();
    let Some(reprocesses) = hops.reprocesses.checked_sub(1) else {
        let failure = Failure::new(FailureKind::BadResponse, "a request was reprocessed too often: a loop?");
        origin.script.tell(&failure, &exchange.request);
        return Ok(Box::pin(std::future::ready(Ok(failure.into_response()))));
    };
    Ok(Box::pin(async move { Ok(next.again(exchange, Hops { reprocesses, ..hops }).await) }))
}

fn body(args: &[Value<'_>]) -> Option<Bytes> {
    args.get(1).and_then(Value::text).map(Bytes::copy_from_slice)
}

/// `[[name, value …]]`: a 103 (RFC 8297).
fn hints(origin: &Origin, args: &[Value<'_>]) -> Waiting {
    let pairs = stream::fields(args.first());
    match crate::answer::fields(pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))) {
        Ok(fields) => {
            origin.client.interim(103, &fields);
            let mut tape = Tape::new();
            tape.nil();
            Box::pin(std::future::ready(tape))
        }
        Err(failure) => fault("ArgumentError", failure.reason.as_bytes()),
    }
}
