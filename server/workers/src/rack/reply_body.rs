//! A response body that arrives in frames.

use crate::call::{Call, CallState};
use crate::loan::Offer;
use crate::local::Local;
use crate::reply::Next;
use handler::{BodyStream, Chunk, Client, Failure};
use std::rc::Rc;
use std::task::{Context, Poll};
use wire::FrameKind;

pub(super) struct ReplyBody {
    pub(super) first: bytes::Bytes,
    pub(super) second: Option<Chunk>,
    pub(super) call: Rc<Call>,
    /// Kept because the response's memory is counted for this client.
    pub(super) _client: Rc<dyn Client>,
    pub(super) local: Rc<Local>,
    pub(super) over: bool,
}

impl BodyStream for ReplyBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(std::mem::take(&mut self.first)))));
        }
        if let Some(chunk) = self.second.take() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        let Poll::Ready((chunk, grant)) = self.call.reply.poll_chunk(&self.call.room(self.local.room()), cx)
        else {
            return Poll::Pending;
        };
        self.over = !matches!(chunk, Some(Ok(_)));
        let chunk = chunk.map(|next| next.map(|next| self.chunk(next)));
        if let (1.., CallState::Sent { serial, id, .. }) = (grant, self.call.state()) {
            self.local.send_frame(serial, FrameKind::Window, id, &grant.to_le_bytes());
        }
        Poll::Ready(chunk)
    }
}

impl ReplyBody {
    fn chunk(&self, next: Next) -> Chunk {
        match next {
            Next::Chunk(chunk) => chunk,
            Next::Offer(len) => {
                Chunk::Offer(Box::new(Offer::new(self.call.clone(), self.local.clone(), len)))
            }
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if !self.over {
            self.local.abandon(&self.call);
        }
    }
}
