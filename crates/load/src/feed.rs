//! What one user is to send next.

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
use crate::plan::{Think, Traffic};
use crate::prepare::Kind;

pub(crate) struct Feed {
    lane: Rc<Lane>,
    pub slot: Rc<Slot>,
    /// Begun and not answered, through no fault of the server: sent again.
    again: VecDeque<Job>,
    rounds_left: u64,
    think: Option<Think>,
    thinking: Option<Pin<Box<Sleep>>>,
    /// When cookies are kept.
    jar: Option<Jar>,
}

impl Feed {
    pub(crate) fn new(lane: Rc<Lane>) -> Feed {
        let slot = lane.enter();
        let plan = &lane.run.plan;
        let think = match &plan.traffic {
            Traffic::Closed { think, .. } => Some(*think),
            _ => None,
        };
        let rounds_left = plan.stop.rounds.filter(|_| think.is_some()).unwrap_or(u64::MAX);
        let jar = plan.cookies.then(Jar::default);
        Feed { jar, slot, again: VecDeque::new(), rounds_left, think, thinking: None, lane }
    }

    /// The next request, as soon as it is due; `None` when there will be none.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<Job>> {
        if let Some(job) = self.again.pop_front() {
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
            // The others are still connecting; the thread wakes us when all have begun.
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

    /// There was an answer, or none: now the user thinks.
    pub(crate) fn answered(&mut self) {
        let pause = match self.think {
            None | Some(Think::None) => return,
            Some(Think::Fixed(pause)) => pause,
            Some(Think::UpTo(most)) => most.mul_f64(fastrand::f64()),
        };
        if pause > Duration::ZERO {
            self.thinking = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// The `Cookie` line for a request; `None` when it has none but its own, or none at all.
    pub(crate) fn cookie(&self, kind: &Kind) -> Option<String> {
        let jar = self.jar.as_ref()?;
        let origin = &self.lane.run.prepared.origins[kind.origin];
        jar.line(kind.cookie.as_deref(), origin, &kind.path, SystemTime::now())
    }

    /// Takes the cookies that an answer sets.
    pub(crate) fn keep_cookies(&mut self, kind: &Kind, incoming: &Incoming) {
        let Some(jar) = &mut self.jar else { return };
        let origin = &self.lane.run.prepared.origins[kind.origin];
        for field in &incoming.cookies {
            jar.set(field, origin, &kind.path, SystemTime::now());
        }
    }

    /// To be sent before anything else.
    pub(crate) fn again(&mut self, job: Job) {
        self.again.push_back(job);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.lane.leave(&self.slot);
    }
}
