//! A user over HTTP/1.1: gets something to ask, has a connection to whom he asks, waits for the answer.

use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use crate::connect::Attempts;
use crate::feed::Feed;
use crate::h1::connection::{Connection, Exit};
use crate::lane::Lane;
use crate::plan::Protocol;

/// Asks until there is nothing more to ask.
pub(crate) async fn user(lane: Rc<Lane>) {
    let feed = Feed::new(lane.clone());
    feed.slot.watched().await;
    let mut user = User { lane, feed, parked: HashMap::new(), attempts: Attempts::default() };
    user.connect_first().await;
    user.ask().await;
}

struct User {
    lane: Rc<Lane>,
    feed: Feed,
    /// Connections at rest, by origin.
    parked: HashMap<usize, Connection>,
    attempts: Attempts,
}

impl User {
    /// Users of the closed model have their connections before the run begins: then opening them is in nobody's latency.
    async fn connect_first(&mut self) {
        let run = &self.lane.run;
        let keeps = !matches!(run.plan.transport.protocol, Protocol::Http1 { keep_alive: false, .. });
        if run.is_closed() && keeps {
            let origin = run.prepared.kinds[0].origin;
            if let Ok(stream) = Box::pin(self.attempts.open(&self.lane, &self.feed.slot, origin)).await {
                self.parked.insert(origin, Connection::new(stream, origin, &self.lane));
            }
        }
    }

    async fn ask(&mut self) {
        let mut next = None;
        loop {
            let job = match next.take() {
                Some(job) => job,
                None => match poll_fn(|cx| self.feed.poll(cx, self.lane.now())).await {
                    Some(job) => job,
                    None => return,
                },
            };
            let origin = self.lane.run.prepared.kinds[job.kind].origin;
            let parked = self.parked.remove(&origin);
            let mut connection = match self.rested(parked).await {
                Some(connection) => connection,
                None => match Box::pin(self.attempts.open(&self.lane, &self.feed.slot, origin)).await {
                    Ok(stream) => Connection::new(stream, origin, &self.lane),
                    Err((failure, text)) => {
                        self.lane.recorder.borrow_mut().failed(&job, failure, &text, self.lane.now());
                        self.feed.slot.unavailable();
                        self.attempts.pause(&self.lane).await;
                        continue;
                    }
                },
            };
            connection.push(job, self.lane.now(), &self.lane, &self.feed);
            match poll_fn(|cx| connection.poll(cx, &self.lane, &mut self.feed)).await {
                Exit::Done => return,
                Exit::Elsewhere(job) => {
                    self.parked.insert(origin, connection);
                    next = Some(job);
                }
                Exit::Gone { failed, useful } => {
                    drop(connection);
                    self.feed.slot.unavailable();
                    if useful {
                        self.attempts.succeeded();
                    }
                    if failed {
                        self.attempts.pause(&self.lane).await;
                    }
                }
            }
        }
    }

    /// A connection that was at rest, unless it was closed meanwhile.
    async fn rested(&self, connection: Option<Connection>) -> Option<Connection> {
        let mut connection = connection?;
        let quiet = poll_fn(|cx| Poll::Ready(connection.is_quiet(cx, &self.lane))).await;
        quiet.then_some(connection)
    }
}
