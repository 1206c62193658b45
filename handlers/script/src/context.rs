//! The context of a waiting task: [`TaskContext`].

use crate::chain::ServedRequest;
use crate::held::Owned;
use crate::stream::Outlet;
use std::cell::RefCell;
use std::future::Future;

/// The request of a task, with its output and its responses. Empty for tasks without a request.
#[derive(Default)]
pub(crate) struct TaskContext {
    /// The output of a streamed response.
    pub(crate) outlet: Option<RefCell<Outlet>>,
    pub(crate) origin: Option<ServedRequest>,
    /// The responses that the task has requested.
    pub(crate) held: Owned,
}

impl TaskContext {
    /// Completes when the client disconnects before the response being sent is complete.
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
