//! Runs one request on one connection, until the head of its response has arrived.
//!
//! Contract:
//! 1. Sending and receiving happen at the same time. A final response ends sending.
//! 2. An error tells how far the request got, so that the caller can decide about a retry.

use crate::ProxyConfig;
use crate::pool::Connection;
use crate::receiver::{Expected, Mistake, NoResponse, Received, Receiver, Rest, land};
use crate::sender::{Sender, Unsent};
use handler::{Client, Departure, Failure};
use net::Lane;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A body up to this size that did not arrive with its head is awaited until the next turn of the event loop,
/// so that both can be sent in one write.
const SMALL: u64 = 32 << 10;

/// How long to wait for a response after the client has closed its sending side. Nearly all such clients have
/// gone; the few that still read expect a prompt response.
const HALF_CLOSED: Duration = Duration::from_secs(2);

pub(crate) struct OriginResponse {
    pub(crate) received: Received,
    /// The request was sent completely.
    pub(crate) whole: bool,
}

/// The meaning of a failure for the origin's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// Nothing: the client caused it.
    Client,
    /// The origin has closed the connection, which a single request may have caused.
    Closed,
    /// The origin misbehaves.
    Origin,
}

/// Why there is no response.
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    pub(crate) blame: Blame,
    /// The connection ended before the first byte of a response.
    pub(crate) unanswered: bool,
    /// Nothing of the request was sent.
    pub(crate) unsent: bool,
    /// No byte of the body was read, so it can be sent again.
    pub(crate) body_unread: bool,
}

/// Sends the request and waits for the response.
pub(crate) async fn converse(
    config: &ProxyConfig,
    connection: &Connection,
    sender: Sender<'_>,
    expected: Expected<'_>,
    client: &dyn Client,
) -> Result<OriginResponse, Lost> {
    let mut conversation = Conversation {
        config,
        connection,
        sender,
        receiver: Receiver::new(expected),
        client,
        over: false,
        cut: false,
        half_closed: false,
    };
    let mut received = poll_fn(|cx| conversation.poll(cx)).await?;
    let whole = conversation.sender.done;
    if is_nearly_there(&received) {
        tokio::task::yield_now().await;
        if let Err(mistake) = look_again(connection, &mut received) {
            return Err(conversation.unanswered(NoResponse::Malformed(mistake)));
        }
    }
    Ok(OriginResponse { received, whole })
}

/// Returns how the client has departed; `Gone` if both steps have happened.
pub(crate) fn poll_departure(client: &dyn Client, cx: &mut Context<'_>) -> Poll<Departure> {
    match client.poll_departure(cx) {
        Poll::Ready(Departure::HalfClosed) => match client.poll_departure(cx) {
            Poll::Ready(Departure::Gone) => Poll::Ready(Departure::Gone),
            _ => Poll::Ready(Departure::HalfClosed),
        },
        other => other,
    }
}

struct Conversation<'a> {
    config: &'a ProxyConfig,
    connection: &'a Connection,
    sender: Sender<'a>,
    receiver: Receiver<'a>,
    client: &'a dyn Client,
    /// Sending has ended.
    over: bool,
    /// Sending has ended because the origin did not accept the request.
    cut: bool,
    /// The client has closed its sending side.
    half_closed: bool,
}

impl Conversation<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>> {
        self.connection.timer.wakes(cx.waker());
        if !self.over
            && let Err(lost) = self.poll_send(cx)
        {
            return Poll::Ready(Err(lost));
        }
        let mut informed = false;
        match self.receiver.poll(&self.connection.stream, self.client, &mut informed, cx) {
            Poll::Ready(Ok(received)) => return Poll::Ready(Ok(received)),
            Poll::Ready(Err(none)) => return Poll::Ready(Err(self.unanswered(none))),
            Poll::Pending => {}
        }
        if informed && self.over {
            self.wait();
        }
        if self.over && self.connection.timer.expired(Lane::Read) {
            if self.half_closed {
                let failure = Failure::client_gone("the client closed its side and got no response in time");
                return Poll::Ready(Err(self.lost(failure, Blame::Client)));
            }
            let why = format!("no response head within read_timeout ({:?})", self.config.read_timeout);
            return Poll::Ready(Err(self.lost(Failure::app(504, why), Blame::Origin)));
        }
        match poll_departure(self.client, cx) {
            Poll::Ready(Departure::Gone) => {
                let failure = Failure::client_gone("the client went away");
                Poll::Ready(Err(self.lost(failure, Blame::Client)))
            }
            Poll::Ready(Departure::HalfClosed) if !self.half_closed => {
                self.half_closed = true;
                if self.over {
                    self.wait();
                }
                self.poll(cx)
            }
            _ => Poll::Pending,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        match self.sender.poll(self.connection, self.config.send_timeout, cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(())) => {}
            // The origin may have responded before it closed.
            Poll::Ready(Err(Unsent::Upstream)) => self.cut = true,
            Poll::Ready(Err(Unsent::Client(error))) => return Err(self.lost(error.into(), Blame::Client)),
            Poll::Ready(Err(Unsent::Timeout)) => {
                let why =
                    format!("read nothing of the request for send_timeout ({:?})", self.config.send_timeout);
                return Err(self.lost(Failure::app(504, why), Blame::Origin));
            }
        }
        self.over = true;
        self.wait();
        Ok(())
    }

    /// Starts the time-out of the response.
    fn wait(&self) {
        let timeout = self.config.read_timeout;
        let timeout = if self.half_closed { timeout.min(HALF_CLOSED) } else { timeout };
        self.connection.timer.arm(Lane::Read, Instant::now() + timeout);
    }

    fn unanswered(&self, none: NoResponse) -> Lost {
        let blame = if matches!(none, NoResponse::Malformed(_)) { Blame::Origin } else { Blame::Closed };
        let (why, unanswered) = match none {
            NoResponse::Malformed(mistake) => (format!("invalid response: {mistake}"), false),
            NoResponse::Closed(true, None) => ("closed inside the response head".to_owned(), false),
            NoResponse::Closed(false, None) if self.cut => {
                ("closed while the request was sent".to_owned(), true)
            }
            NoResponse::Closed(false, None) => ("closed without an answer".to_owned(), true),
            NoResponse::Closed(begun, Some(error)) => (format!("broke off the connection: {error}"), !begun),
        };
        let lost = self.lost(Failure::app(502, why), blame);
        Lost { unanswered, ..lost }
    }

    fn lost(&self, failure: Failure, blame: Blame) -> Lost {
        Lost {
            failure,
            blame,
            unanswered: false,
            unsent: !self.sender.begun,
            body_unread: !self.sender.touched,
        }
    }
}

/// Returns whether the rest of a small body may arrive in a moment.
fn is_nearly_there(received: &Received) -> bool {
    if received.status == 101 {
        return false;
    }
    match received.rest {
        Rest::Done | Rest::Broken(_) => false,
        Rest::Length(left) => left <= SMALL,
        Rest::Chunked(_) | Rest::Close => (received.first.len() as u64) < SMALL,
    }
}

/// Takes further bytes of a body that have arrived since its head, without waiting.
fn look_again(connection: &Connection, received: &mut Received) -> Result<(), Mistake> {
    let landed = land(&connection.stream, |bytes| {
        if bytes.is_empty() {
            received.end();
            return Ok(());
        }
        let mut data = Vec::with_capacity(received.first.len() + bytes.len());
        data.extend_from_slice(&received.first);
        received.append(bytes, &mut data)?;
        received.first = data.into();
        Ok(())
    });
    match landed {
        Ok(result) => result,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => {
            received.rest = Rest::broken(format!("broke off inside a body: {error}"));
            Ok(())
        }
    }
}
