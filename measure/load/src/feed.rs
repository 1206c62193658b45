//! The source of one user's next request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::Sleep;

use crate::clock::{Moment, NEVER};
use crate::cookies::Jar;
use crate::exchange::Incoming;
use crate::job::Job;
use crate::lane::{Lane, Slot};
use crate::prepare::PreparedRequest;
use crate::scenario::{Think, Traffic};

pub(crate) struct Feed {
    lane: Rc<Lane>,
    pub slot: Rc<Slot>,
    /// Requests that were sent but, through no fault of the server, not processed. They are sent again.
    retries: VecDeque<Job>,
    rounds_left: u64,
    think: Option<Think>,
    thinking: Option<Pin<Box<Sleep>>>,
    /// The cookies, if they are kept.
    jar: Option<Jar>,
}

impl Feed {
    pub(crate) fn new(lane: Rc<Lane>) -> Feed {
        let slot = lane.enter();
        let scenario = &lane.run.scenario;
        let think = match &scenario.traffic {
            Traffic::Closed { think, .. } => Some(*think),
            _ => None,
        };
        let rounds_left = scenario.stop.rounds.filter(|_| think.is_some()).unwrap_or(u64::MAX);
        let jar = scenario.cookies.then(Jar::default);
        Feed { jar, slot, retries: VecDeque::new(), rounds_left, think, thinking: None, lane }
    }

    /// Returns the next request as soon as it is due; `None` if there are no more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<Job>> {
        if let Some(job) = self.retries.pop_front() {
            return Poll::Ready(Some(job));
        }
        let job = match self.think {
            Some(_) => self.poll_closed(cx, now),
            None => self.lane.poll_queue(&self.slot, now),
        };
        if let Poll::Ready(Some(job)) = &job {
            self.lane.recorder.borrow_mut().begun(job);
        }
        job
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<Job>> {
        let run = &self.lane.run;
        if now >= run.end() || self.lane.cut.get() {
            return Poll::Ready(None);
        }
        let began = run.began();
        if began == NEVER {
            // Other users are still connecting; the thread wakes this user when all have begun.
            return Poll::Pending;
        }
        if let Some(sleep) = &mut self.thinking {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.thinking = None;
        }
        let counted = now >= began;
        if counted && self.rounds_left == 0 {
            return Poll::Ready(None);
        }
        let Some(kind) = run.next_kind(counted) else { return Poll::Ready(None) };
        self.rounds_left -= u64::from(counted);
        Poll::Ready(Some(Job { kind, due: now, counted }))
    }

    /// Starts the think time after a request has ended, with or without a response.
    pub(crate) fn finished(&mut self) {
        let pause = match self.think {
            None | Some(Think::None) => return,
            Some(Think::Fixed(pause)) => pause,
            Some(Think::UpTo(most)) => most.mul_f64(fastrand::f64()),
        };
        if pause > Duration::ZERO {
            self.thinking = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// Returns the value of the `Cookie` field for a request; `None` if the prepared message needs no change.
    pub(crate) fn cookie(&self, kind: &PreparedRequest) -> Option<String> {
        let jar = self.jar.as_ref()?;
        let origin = &self.lane.run.prepared.origins[kind.origin];
        jar.line(kind.cookie.as_deref(), origin, &kind.path, SystemTime::now())
    }

    /// Stores the cookies that a response sets.
    pub(crate) fn keep_cookies(&mut self, kind: &PreparedRequest, incoming: &Incoming) {
        let Some(jar) = &mut self.jar else { return };
        let origin = &self.lane.run.prepared.origins[kind.origin];
        for field in &incoming.cookies {
            jar.set(field, origin, &kind.path, SystemTime::now());
        }
    }

    /// Queues a request before all others.
    pub(crate) fn retry(&mut self, job: Job) {
        self.retries.push_back(job);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.lane.leave(&self.slot);
    }
}
