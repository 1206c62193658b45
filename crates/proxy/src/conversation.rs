//! One request and its response on one connection, until the response's head is there.
//!
//! Contract:
//! 1. Sending and receiving go on at the same time: a final response ends sending, whatever is left to be sent.
//! 2. What is lost says how far it got, for those who may want to ask again.

use crate::Config;
use crate::pool::Connection;
use crate::receiver::{Asked, NoResponse, Received, Receiver, Rest, land};
use crate::response_head::Mistake;
use crate::sender::{Sender, Unsent};
use handler::{Client, Departure, Failure, FailureKind};
use http::Lane;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Of a body that has not come with its head, so much is waited for until the next turn of the event loop: then both may
/// go out in one write.
const SMALL: u64 = 32 << 10;

/// How long a client that has closed its sending side is waited for. Nearly all of them have gone; a few still read, and
/// those ask for what is there soon.
const HALF_GONE: Duration = Duration::from_secs(2);

/// A response.
pub(crate) struct Said {
    pub(crate) received: Received,
    /// The request was sent whole.
    pub(crate) whole: bool,
}

/// There is none.
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    /// It is the upstream's fault.
    pub(crate) upstream: bool,
    /// The connection ended before a byte of a response.
    pub(crate) unanswered: bool,
    /// Nothing of the request was sent.
    pub(crate) unheard: bool,
    /// The body can be had a second time.
    pub(crate) untouched: bool,
}

/// Asks, and waits for the answer.
pub(crate) async fn converse(
    config: &Config,
    connection: &Connection,
    sender: Sender<'_>,
    asked: Asked<'_>,
    client: &dyn Client,
) -> Result<Said, Lost> {
    let mut conversation = Conversation {
        config,
        connection,
        sender,
        receiver: Receiver::new(asked),
        client,
        over: false,
        cut: false,
        half_gone: false,
    };
    let mut received = poll_fn(|cx| conversation.poll(cx)).await?;
    let whole = conversation.sender.done;
    if is_nearly_there(&received) {
        tokio::task::yield_now().await;
        if let Err(mistake) = look_again(connection, &mut received) {
            return Err(conversation.unanswered(NoResponse::Malformed(mistake)));
        }
    }
    Ok(Said { received, whole })
}

/// How the client has gone away, the farther step if there are two.
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
    config: &'a Config,
    connection: &'a Connection,
    sender: Sender<'a>,
    receiver: Receiver<'a>,
    client: &'a dyn Client,
    /// Nothing more is sent.
    over: bool,
    /// Because the upstream did not take it.
    cut: bool,
    /// The client has closed its sending side: most have gone.
    half_gone: bool,
}

impl Conversation<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>> {
        self.connection.timer.wakes(cx.waker());
        if !self.over
            && let Err(lost) = self.poll_send(cx)
        {
            return Poll::Ready(Err(lost));
        }
        let mut told = false;
        match self.receiver.poll(&self.connection.stream, self.client, &mut told, cx) {
            Poll::Ready(Ok(received)) => return Poll::Ready(Ok(received)),
            Poll::Ready(Err(none)) => return Poll::Ready(Err(self.unanswered(none))),
            Poll::Pending => {}
        }
        if told && self.over {
            self.wait();
        }
        if self.over && self.connection.timer.expired(Lane::Read) {
            if self.half_gone {
                let failure =
                    Failure::new(FailureKind::ClientGone, "the client closed its side and waited in vain");
                return Poll::Ready(Err(self.lost(failure, false)));
            }
            let why = format!("no response head within read_timeout ({:?})", self.config.read_timeout);
            return Poll::Ready(Err(self.lost(Failure::new(FailureKind::UpstreamTimeout, why), true)));
        }
        match poll_departure(self.client, cx) {
            Poll::Ready(Departure::Gone) => {
                let failure = Failure::new(FailureKind::ClientGone, "the client went away");
                Poll::Ready(Err(self.lost(failure, false)))
            }
            Poll::Ready(Departure::HalfClosed) if !self.half_gone => {
                self.half_gone = true;
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
            // It may have answered before it closed, or why it closed.
            Poll::Ready(Err(Unsent::Upstream)) => self.cut = true,
            Poll::Ready(Err(Unsent::Client(error))) => return Err(self.lost(error.into(), false)),
            Poll::Ready(Err(Unsent::Timeout)) => {
                let why =
                    format!("took nothing of the request for send_timeout ({:?})", self.config.send_timeout);
                return Err(self.lost(Failure::new(FailureKind::UpstreamTimeout, why), true));
            }
        }
        self.over = true;
        self.wait();
        Ok(())
    }

    /// From now on the response is waited for.
    fn wait(&self) {
        let patience = self.config.read_timeout;
        let patience = if self.half_gone { patience.min(HALF_GONE) } else { patience };
        self.connection.timer.arm(Lane::Read, Instant::now() + patience);
    }

    fn unanswered(&self, none: NoResponse) -> Lost {
        let (why, unanswered) = match none {
            NoResponse::Malformed(mistake) => (format!("answered with {mistake}"), false),
            NoResponse::Closed(true, None) => ("closed inside the response head".to_owned(), false),
            NoResponse::Closed(false, None) if self.cut => {
                ("closed while the request was sent".to_owned(), true)
            }
            NoResponse::Closed(false, None) => ("closed without an answer".to_owned(), true),
            NoResponse::Closed(begun, Some(error)) => (format!("broke off the connection: {error}"), !begun),
        };
        let lost = self.lost(Failure::new(FailureKind::BadUpstream, why), true);
        Lost { unanswered, ..lost }
    }

    fn lost(&self, failure: Failure, upstream: bool) -> Lost {
        Lost {
            failure,
            upstream,
            unanswered: false,
            unheard: !self.sender.begun,
            untouched: !self.sender.touched,
        }
    }
}

/// Whether the rest of a small body may be there in a moment.
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

/// Takes what has come of a body since its head, without waiting.
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
