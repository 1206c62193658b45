//! A user over HTTP/1.1: takes the next request, opens a connection if needed, and waits for the response.

use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use crate::connect::Attempts;
use crate::feed::Feed;
use crate::h1::{Connection, Exit};
use crate::lane::Lane;
use crate::scenario::Protocol;

/// Sends requests until there are no more.
pub(crate) async fn user(lane: Rc<Lane>) {
    let feed = Feed::new(lane.clone());
    feed.slot.register_waker().await;
    let mut user = User { lane, feed, idle: HashMap::new(), attempts: Attempts::default() };
    user.connect_first().await;
    user.run().await;
}

struct User {
    lane: Rc<Lane>,
    feed: Feed,
    /// Idle connections by origin.
    idle: HashMap<usize, Connection>,
    attempts: Attempts,
}

impl User {
    /// Connects users of the closed model before the run begins, so that connecting is not part of any latency.
    async fn connect_first(&mut self) {
        let run = &self.lane.run;
        let keeps = !matches!(run.scenario.transport.protocol, Protocol::Http1 { keep_alive: false, .. });
        if run.is_closed() && keeps {
            let origin = run.prepared.kinds[0].origin;
            if let Ok(stream) = Box::pin(self.attempts.open(&self.lane, &self.feed.slot, origin)).await {
                self.idle.insert(origin, Connection::new(stream, origin, &self.lane));
            }
        }
    }

    async fn run(&mut self) {
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
            let idle = self.idle.remove(&origin);
            let mut connection = match self.still_open(idle).await {
                Some(connection) => connection,
                None => match Box::pin(self.attempts.open(&self.lane, &self.feed.slot, origin)).await {
                    Ok(stream) => Connection::new(stream, origin, &self.lane),
                    Err((failure, text)) => {
                        let now = self.lane.now();
                        self.lane.recorder.borrow_mut().failed(&job, failure, &text, now);
                        self.feed.stepped(&job, false, now);
                        self.feed.slot.unavailable();
                        self.attempts.pause(&self.lane).await;
                        continue;
                    }
                },
            };
            connection.push(job, self.lane.now(), &self.lane, &self.feed);
            match poll_fn(|cx| connection.poll(cx, &self.lane, &mut self.feed)).await {
                Exit::Done => return,
                Exit::OtherOrigin(job) => {
                    self.idle.insert(origin, connection);
                    next = Some(job);
                }
                Exit::Closed { failed, responded } => {
                    drop(connection);
                    self.feed.slot.unavailable();
                    if responded {
                        self.attempts.succeeded();
                    }
                    if failed {
                        self.attempts.pause(&self.lane).await;
                    }
                }
            }
        }
    }

    /// Returns an idle connection, unless it was closed meanwhile.
    async fn still_open(&self, connection: Option<Connection>) -> Option<Connection> {
        let mut connection = connection?;
        let quiet = poll_fn(|cx| Poll::Ready(connection.is_idle(cx, &self.lane))).await;
        quiet.then_some(connection)
    }
}
