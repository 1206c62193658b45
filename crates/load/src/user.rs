//! A user: gets something to ask, has a connection to whom he asks, waits for the answer.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{NEVER, micros, nanoseconds};
use crate::feed::Feed;
use crate::h1::connection::{Connection, Exit};
use crate::job::Failure;
use crate::lane::Lane;
use crate::plan::Protocol;
use crate::stream::Stream;

/// After failures: twice as long each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Asks until there is nothing more to ask.
pub(crate) async fn user(lane: Rc<Lane>) {
    let feed = Feed::new(lane.clone());
    let mut user = User { lane, feed, parked: HashMap::new(), failures: 0, tried: false };
    poll_fn(|cx| {
        user.feed.slot.watch(cx);
        Poll::Ready(())
    })
    .await;
    user.connect_first().await;
    user.ask().await;
}

struct User {
    lane: Rc<Lane>,
    feed: Feed,
    /// Connections at rest, by origin.
    parked: HashMap<usize, Connection>,
    /// One after the other without a right answer between them.
    failures: u32,
    /// The first connection was tried.
    tried: bool,
}

impl User {
    /// Users of the closed model have their connections before the run begins: then opening them is in nobody's latency.
    async fn connect_first(&mut self) {
        let run = &self.lane.run;
        let keeps = !matches!(run.plan.transport.protocol, Protocol::Http1 { keep_alive: false, .. });
        if run.is_closed() && keeps {
            let origin = run.prepared.kinds[0].origin;
            if let Ok(stream) = self.open(origin).await {
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
                None => match self.open(origin).await {
                    Ok(stream) => Connection::new(stream, origin, &self.lane),
                    Err((failure, text)) => {
                        self.lane.recorder.borrow_mut().failed(&job, failure, &text, self.lane.now());
                        self.pause().await;
                        continue;
                    }
                },
            };
            connection.push(job, self.lane.now());
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
                        self.failures = 0;
                    }
                    if failed {
                        self.pause().await;
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

    /// Opens a connection, in time.
    async fn open(&mut self, origin: usize) -> Result<Stream, (Failure, String)> {
        let lane = &self.lane;
        let first = !std::mem::replace(&mut self.tried, true);
        let tries = &lane.run.first_tries;
        if first {
            tries.begun.fetch_add(1, Relaxed);
        }
        let target = &lane.run.targets[origin];
        let begin = lane.now();
        let slot = &self.feed.slot;
        slot.deadline.set(begin.saturating_add(nanoseconds(lane.run.plan.timeouts.connect)));
        let mut opening = pin!(target.open());
        let opened = poll_fn(|cx| {
            if lane.cut.get() {
                return Poll::Ready(Err((Failure::CutOff, "cut off at the end of the run".to_owned())));
            }
            if slot.expired.take() {
                return Poll::Ready(Err((
                    Failure::ConnectTimeout,
                    format!("no connection to {} in time", target.name()),
                )));
            }
            opening.as_mut().poll(cx).map_err(|text| (Failure::Connect, text))
        })
        .await;
        slot.deadline.set(NEVER);
        slot.expired.set(false);
        match &opened {
            Ok(_) => {
                lane.recorder.borrow_mut().connected(micros(begin, lane.now()));
                tries.opened.store(true, Relaxed);
            }
            Err((_, text)) if first => {
                if let Ok(mut why) = tries.why.lock() {
                    why.get_or_insert_with(|| text.clone());
                }
                tries.failed.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
        if first {
            tries.settled.fetch_add(1, Relaxed);
        }
        opened
    }

    /// A server that is gone is not asked as fast as we can.
    async fn pause(&mut self) {
        let pause = (SHORTEST_PAUSE * 2u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        self.failures = (self.failures + 1).min(16);
        let mut sleep = pin!(tokio::time::sleep(pause));
        let lane = &self.lane;
        poll_fn(|cx| match lane.cut.get() || lane.now() >= lane.run.end() {
            true => Poll::Ready(()),
            false => sleep.as_mut().poll(cx),
        })
        .await;
    }
}

