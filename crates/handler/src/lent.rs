//! A request on loan to a handler.
//!
//! Why: the log wants the request after the handler has finished with it, with what filters added, and nobody wants to
//! copy it for that. So a handler owns it for as long as it likes, and dropping it gives it back to the exchange's [`Trace`].

use crate::{Request, Trace};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A request that goes back to its exchange's [`Trace`] when it is dropped.
#[derive(Debug)]
pub struct Lent {
    request: Option<Box<Request>>,
    home: Option<Rc<Trace>>,
}

impl Lent {
    /// Lends `request`; it comes back to `home`.
    pub fn new(request: Box<Request>, home: Rc<Trace>) -> Lent {
        Lent { request: Some(request), home: Some(home) }
    }
}

impl From<Request> for Lent {
    /// A request that goes nowhere when it is dropped: for tests and for requests of our own making.
    fn from(request: Request) -> Lent {
        Lent { request: Some(Box::new(request)), home: None }
    }
}

impl Deref for Lent {
    type Target = Request;

    #[inline]
    fn deref(&self) -> &Request {
        self.request.as_ref().expect("a request is given back only by drop")
    }
}

impl DerefMut for Lent {
    #[inline]
    fn deref_mut(&mut self) -> &mut Request {
        self.request.as_mut().expect("a request is given back only by drop")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(home), request) = (&self.home, self.request.take()) {
            home.returned.replace(request);
        }
    }
}
