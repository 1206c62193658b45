//! A request's position in the chain of handlers, and what follows the last of them.

use handler::{Client, Exchange, Failure, Fields, Peer, Response, Trace};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// A response that is being made.
pub(crate) type Responding = Pin<Box<dyn Future<Output = Response>>>;

/// What responds when no handler of the route does: files, the app.
pub trait Next {
    /// Responds in place of the handlers.
    fn respond(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;

    /// Sends a request through the whole server again, as if it had just arrived; `hops` are what it has left.
    fn reprocess(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// How often a request may still be passed on within the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    /// By `x-reproxy-url`.
    pub delegations: u8,
    /// By `H2O.reprocess`.
    pub reprocesses: u8,
}

impl Default for Hops {
    /// Five of each, as in H2O.
    fn default() -> Hops {
        Hops { delegations: 5, reprocesses: 5 }
    }
}

impl Hops {
    /// Keys and values for the env; `None` for the defaults, which every env has already.
    pub(crate) fn env(self) -> Option<[(&'static str, String); 2]> {
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
pub(crate) struct Position {
    /// Number of the route.
    pub(crate) route: usize,
    /// Number of the handler in its route.
    pub(crate) handler: usize,
    pub(crate) next: Rc<dyn Next>,
    pub(crate) hops: Hops,
}

/// The handlers, for code that passes requests on to them.
pub(crate) trait Chain {
    /// Path of a route.
    fn mount(&self, route: usize) -> &str;

    /// Whether handlers of a route may send requests to other servers.
    fn may_reproxy(&self, route: usize) -> bool;

    /// The response of the handlers from a position on.
    fn respond_from(self: Rc<Self>, position: Position, exchange: Exchange) -> Responding;

    /// Counts a failure and turns it into a response, which carries it to the log.
    fn fail(&self, failure: Failure) -> Response;
}

/// The request that a task serves.
pub(crate) struct Origin {
    pub(crate) chain: Rc<dyn Chain>,
    pub(crate) position: Position,
    pub(crate) client: Rc<dyn Client>,
    pub(crate) trace: Rc<Trace>,
    pub(crate) peer: Rc<Peer>,
    /// Its `Via`, which requests to other servers extend, so that a loop over them is recognized.
    pub(crate) via: Option<Box<[u8]>>,
}

impl Origin {
    pub(crate) fn new(chain: Rc<dyn Chain>, position: Position, exchange: &Exchange) -> Origin {
        Origin {
            chain,
            position,
            client: exchange.client.clone(),
            trace: exchange.trace.clone(),
            peer: exchange.request.peer.clone(),
            via: via(&exchange.request.fields),
        }
    }
}

/// The list of the servers that a request has passed. Few requests have one.
fn via(fields: &Fields) -> Option<Box<[u8]>> {
    fields.get("via")?;
    let values: Vec<&[u8]> = fields.all("via").collect();
    Some(values.join(&b", "[..]).into())
}
