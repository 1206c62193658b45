//! A request that returns to its exchange when the handler drops it.
//!
//! Why: the log needs the request after the handler has finished with it, including changes by filters, and
//! without a copy. So the handler owns the request, and dropping it moves it to the exchange's [`Trace`].

use crate::{Request, Trace};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// A request that moves to its exchange's [`Trace`] when it is dropped.
#[derive(Debug)]
pub struct Lent {
    request: Option<Box<Request>>,
    home: Option<Rc<Trace>>,
}

impl Lent {
    /// Lends `request`; it returns to `home`.
    pub fn new(request: Box<Request>, home: Rc<Trace>) -> Lent {
        Lent { request: Some(request), home: Some(home) }
    }
}

impl From<Request> for Lent {
    /// Wraps a request that is freed when it is dropped: for tests, and for requests that the server itself
    /// creates.
    fn from(request: Request) -> Lent {
        Lent { request: Some(Box::new(request)), home: None }
    }
}

impl Deref for Lent {
    type Target = Request;

    #[inline]
    fn deref(&self) -> &Request {
        self.request.as_ref().expect("only drop takes the request")
    }
}

impl DerefMut for Lent {
    #[inline]
    fn deref_mut(&mut self) -> &mut Request {
        self.request.as_mut().expect("only drop takes the request")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(home), request) = (&self.home, self.request.take()) {
            home.returned.replace(request);
        }
    }
}
