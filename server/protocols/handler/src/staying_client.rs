//! The client of requests that the server itself makes.

use crate::{Client, Departure, Fields};
use std::task::{Context, Poll};

/// A client that never departs: such a request is cancelled by dropping it.
#[derive(Debug, Clone, Copy)]
pub struct StayingClient;

impl Client for StayingClient {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, _: u16, _: &Fields) {}
}
