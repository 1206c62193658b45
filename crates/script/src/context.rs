//! What a wait knows of the task that waits: [`TaskContext`].

use crate::chain::Origin;
use crate::held::Owned;
use crate::stream::Outlet;
use std::cell::RefCell;
use std::future::Future;

/// The request that a task serves, and what belongs to it. Empty for tasks of no request.
#[derive(Default)]
pub(crate) struct TaskContext {
    /// Where a streamed response is written to.
    pub(crate) outlet: Option<RefCell<Outlet>>,
    /// The request.
    pub(crate) origin: Option<Origin>,
    /// Responses that the task has requested.
    pub(crate) held: Owned,
}

impl TaskContext {
    /// Ready when the client has disconnected before the response being sent was complete.
    pub(crate) fn client_lost(&self) -> impl Future<Output = ()> + use<> {
        let lost = self.outlet.as_ref().map(|outlet| outlet.borrow().client_lost());
        async move {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }
    }
}
