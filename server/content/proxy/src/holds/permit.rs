//! Tracks requests without a response, and requests that wait for a permit.

use super::{Asking, At, HeldConnections, HoldingClient};
use std::rc::Rc;

/// Lets a request be among those without a response, until this is dropped.
pub(crate) struct RequestPermit {
    pub(super) holds: Rc<HeldConnections>,
    pub(super) index: usize,
}

/// A request that waits for a permit.
pub(super) struct Waiting<'a> {
    pub(super) holds: &'a Rc<HeldConnections>,
    pub(super) holder: Rc<HoldingClient>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.holds.released(&self.holder);
    }
}

impl RequestPermit {
    /// Records the origin that the request goes to.
    pub(crate) fn goes_to(&self, at: At) {
        if let Some(asking) = &mut self.holds.asking.borrow_mut()[self.index] {
            asking.at = Some(at);
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let asking = self.holds.asking.borrow_mut()[self.index].take();
        self.holds.free.borrow_mut().push(self.index);
        let Some(Asking { holder: Some(holder), young, .. }) = asking else { return };
        if young {
            holder.asking.update(|count| count - 1);
        }
        self.holds.released(&holder);
    }
}
