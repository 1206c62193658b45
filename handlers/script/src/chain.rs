//! The position of a request in the chain of handlers, and the [`Next`] link after the last handler.

use handler::{Client, Exchange, Failure, Fields, Peer, Response, Trace};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

pub(crate) type Responding = Pin<Box<dyn Future<Output = Response>>>;

/// The link after the last handler of a route: files, the app.
pub trait Next {
    /// Responds in place of the handlers.
    fn respond(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;

    /// Sends a request through the whole server again, as if it had just arrived; `hops` is the rest of its budget.
    fn reprocess(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// How often a request may still be passed on within the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    /// Passes by `x-reproxy-url`.
    pub delegations: u8,
    /// Passes by `H2O.reprocess`.
    pub reprocesses: u8,
}

impl Default for Hops {
    /// Five of each, as in H2O.
    fn default() -> Hops {
        Hops { delegations: 5, reprocesses: 5 }
    }
}

impl Hops {
    /// Returns keys and values for the env; `None` for the defaults, which every env already has.
    pub(crate) fn env(self) -> Option<[(&'static str, String); 2]> {
        (self != Hops::default()).then(|| {
            [
                ("h2o.remaining_delegations", self.delegations.to_string()),
                ("h2o.remaining_reprocesses", self.reprocesses.to_string()),
            ]
        })
    }
}

/// The position of a request in the chain of a route.
#[derive(Clone)]
pub(crate) struct Position {
    /// The number of the route.
    pub(crate) route: usize,
    /// The number of the handler in its route.
    pub(crate) handler: usize,
    pub(crate) next: Rc<dyn Next>,
    pub(crate) hops: Hops,
}

/// The handlers, as seen by code that passes requests on to them.
pub(crate) trait Chain {
    /// Returns the path of a route.
    fn mount(&self, route: usize) -> &str;

    /// Returns whether handlers of a route may send requests to other servers.
    fn may_reproxy(&self, route: usize) -> bool;

    /// Runs the handlers from a position on.
    fn respond_from(self: Rc<Self>, position: Position, exchange: Exchange) -> Responding;

    /// Counts a failure and turns it into a response, which carries the failure to the log.
    fn fail(&self, failure: Failure) -> Response;
}

/// The request that a task serves.
pub(crate) struct ServedRequest {
    pub(crate) chain: Rc<dyn Chain>,
    pub(crate) position: Position,
    pub(crate) client: Rc<dyn Client>,
    pub(crate) trace: Rc<Trace>,
    pub(crate) peer: Rc<Peer>,
    /// The request's `Via` field. Requests to other servers extend it, so that they recognize a loop.
    pub(crate) via: Option<Box<[u8]>>,
}

impl ServedRequest {
    pub(crate) fn new(chain: Rc<dyn Chain>, position: Position, exchange: &Exchange) -> ServedRequest {
        ServedRequest {
            chain,
            position,
            client: exchange.client.clone(),
            trace: exchange.trace.clone(),
            peer: exchange.request.peer.clone(),
            via: via(&exchange.request.fields),
        }
    }
}

/// Returns the joined `Via` fields of a request, which few requests have.
fn via(fields: &Fields) -> Option<Box<[u8]>> {
    fields.get("via")?;
    let values: Vec<&[u8]> = fields.all("via").collect();
    Some(values.join(&b", "[..]).into())
}
