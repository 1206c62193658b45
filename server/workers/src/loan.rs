//! Lends the client's socket to the worker that produces the response.
//!
//! Why: a large body that goes directly from the app's memory to the client's socket is never copied to
//! another file or buffer, which took most of the time for such bodies.

use crate::call::Call;
use crate::local::Local;
use handler::{Failure, Lender};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Body bytes that the worker of `call` has offered to write itself.
pub(crate) struct Offer {
    call: Rc<Call>,
    local: Rc<Local>,
    len: u64,
    state: OfferState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferState {
    Open,
    Lent,
    Declined,
}

impl Offer {
    pub(crate) fn new(call: Rc<Call>, local: Rc<Local>, len: u64) -> Offer {
        Offer { call, local, len, state: OfferState::Open }
    }

    fn reply(&mut self, socket: Option<BorrowedFd<'_>>) -> Result<OfferState, Failure> {
        // If no descriptor is available, the offer is declined.
        let socket = socket.and_then(|socket| socket.try_clone_to_owned().ok());
        let state = if socket.is_some() { OfferState::Lent } else { OfferState::Declined };
        if self.local.lend(&self.call, socket) {
            Ok(state)
        } else {
            Err(Failure::app(502, "the worker died"))
        }
    }
}

impl Lender for Offer {
    fn offered(&self) -> u64 {
        self.len
    }

    fn poll_lend(
        &mut self,
        cx: &mut Context<'_>,
        socket: Option<BorrowedFd<'_>>,
    ) -> Poll<Result<u64, Failure>> {
        if self.state == OfferState::Open {
            self.state = match self.reply(socket) {
                Ok(state) => state,
                Err(broken) => return Poll::Ready(Err(broken)),
            };
        }
        match self.state {
            OfferState::Lent => self.call.reply.poll_taken(cx),
            OfferState::Open | OfferState::Declined => Poll::Ready(Ok(0)),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.state == OfferState::Open {
            self.local.lend(&self.call, None);
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({} bytes, {:?})", self.len, self.state)
    }
}
