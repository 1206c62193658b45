//! The app, as a front thread calls it, independent of its release.

use crate::stamp::Stamp;
use cache::Origin;
use handler::{Exchange, Handler as _, Response};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use workers::Rack;

/// The app, independent of its release.
pub(crate) struct App {
    pub(crate) stamp: Stamp,
    pub(crate) rack: Rack,
}

impl Origin for App {
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move { self.rack.handle(exchange).await })
    }
}
