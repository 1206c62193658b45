//! The client's socket on loan to the worker that makes the response.
//!
//! Why: a large body that goes from the app's memory straight into the client's socket is never copied to another file or
//! buffer, which is what most of the time for it went into.

use crate::local::{Call, Local};
use handler::{Broken, Lender};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Body bytes that the worker of `call` has offered to write itself.
pub(crate) struct Offer {
    call: Rc<Call>,
    local: Rc<Local>,
    len: u64,
    answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    None,
    Lent,
    Over,
}

impl Offer {
    pub(crate) fn new(call: Rc<Call>, local: Rc<Local>, len: u64) -> Offer {
        Offer { call, local, len, answer: Answer::None }
    }

    fn answer(&mut self, socket: Option<BorrowedFd<'_>>) -> Result<Answer, Broken> {
        // Without a descriptor to spare it is not lent.
        let socket = socket.and_then(|socket| socket.try_clone_to_owned().ok());
        let answer = if socket.is_some() { Answer::Lent } else { Answer::Over };
        if self.local.lend(&self.call, socket) { Ok(answer) } else { Err(Broken) }
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
    ) -> Poll<Result<u64, Broken>> {
        if self.answer == Answer::None {
            self.answer = match self.answer(socket) {
                Ok(answer) => answer,
                Err(broken) => return Poll::Ready(Err(broken)),
            };
        }
        match self.answer {
            Answer::Lent => self.call.reply.poll_taken(cx),
            Answer::None | Answer::Over => Poll::Ready(Ok(0)),
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.answer == Answer::None {
            self.local.lend(&self.call, None);
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offer({} bytes, {:?})", self.len, self.answer)
    }
}
