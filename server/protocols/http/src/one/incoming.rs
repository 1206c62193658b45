//! Implements the request body that handlers read.

use super::link::Link;
use bytes::Bytes;
use handler::{BodyError, IncomingBody};
use net::Transport;
use std::rc::Weak;
use std::task::{Context, Poll};

pub(crate) struct BodyReader<S> {
    pub(crate) link: Weak<Link<S>>,
    pub(crate) exchange: u32,
    pub(crate) length: Option<u64>,
}

impl<S: Transport> IncomingBody for BodyReader<S> {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self.link.upgrade() {
            Some(link) if link.exchange.get() == self.exchange => link.poll_body(cx),
            _ => Poll::Ready(Some(Err(BodyError::Gone))),
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }
}
