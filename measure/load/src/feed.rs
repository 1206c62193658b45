//! The source of one user's next request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::time::Sleep;

use crate::clock::{Moment, NEVER, micros};
use crate::cookies::Jar;
use crate::exchange::Incoming;
use crate::job::{Failure, Job};
use crate::lane::{Lane, Slot};
use crate::prepare::PreparedRequest;
use crate::scenario::{Think, Traffic};
use crate::traveller::{Arrived, Traveller};

pub(crate) struct Feed {
    lane: Rc<Lane>,
    pub slot: Rc<Slot>,
    /// Requests that were sent but, through no fault of the server, not processed. They are sent again.
    retries: VecDeque<Job>,
    rounds_left: u64,
    think: Option<Think>,
    thinking: Option<Pin<Box<Sleep>>>,
    /// The cookies, if they are kept, and this is no journey.
    jar: Option<Jar>,
    /// The journey under way.
    traveller: Option<Box<Traveller>>,
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
        let traveller =
            scenario.journey.as_ref().map(|_| Box::new(Traveller::new(lane.run.next_traveller())));
        let jar = (scenario.cookies && traveller.is_none()).then(Jar::default);
        Feed { jar, traveller, slot, retries: VecDeque::new(), rounds_left, think, thinking: None, lane }
    }

    /// Returns the next request as soon as it is due; `None` if there are no more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<Job>> {
        if let Some(job) = self.retries.pop_front() {
            return Poll::Ready(Some(job));
        }
        if self.traveller.is_some() {
            return self.poll_journey(cx, now);
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

    /// Returns the next step of the journey under way, or begins the next journey.
    fn poll_journey(&mut self, cx: &mut Context<'_>, now: Moment) -> Poll<Option<Job>> {
        let run = self.lane.run.clone();
        let (Some(mut traveller), Some(journey)) = (self.traveller.take(), &run.scenario.journey) else {
            return Poll::Ready(None);
        };
        let job = match traveller.next(now) {
            Some(_) if now >= run.end() || self.lane.cut.get() => Poll::Ready(None),
            Some(_) if self.is_thinking(cx) => Poll::Pending,
            Some(job) => Poll::Ready(Some(job)),
            None => {
                let begun = if self.think.is_some() {
                    self.poll_closed(cx, now)
                } else {
                    self.lane.poll_queue(&self.slot, now)
                };
                begun.map(|job| job.map(|job| traveller.begin(journey, job)))
            }
        };
        self.traveller = Some(traveller);
        if let Poll::Ready(Some(job)) = &job {
            self.lane.recorder.borrow_mut().begun(job);
        }
        job
    }

    fn is_thinking(&mut self, cx: &mut Context<'_>) -> bool {
        let thinks = self.thinking.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_pending());
        if !thinks {
            self.thinking = None;
        }
        thinks
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
        if self.is_thinking(cx) {
            return Poll::Pending;
        }
        let run = &self.lane.run;
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
        let Some(think) = self.think.filter(|_| self.traveller.is_none()) else { return };
        self.pause(think.pause());
    }

    fn pause(&mut self, pause: Duration) {
        if pause > Duration::ZERO {
            self.thinking = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// Checks the response of a step and takes values from it; `None` if this is no journey.
    pub(crate) fn judge(&mut self, job: &Job, incoming: &Incoming) -> Option<Result<(), (Failure, String)>> {
        let traveller = self.traveller.as_mut()?;
        let scenario = &self.lane.run.scenario;
        let step = scenario.journey.as_ref()?.steps.get(job.kind)?;
        Some(traveller.judge(step, &scenario.checks, incoming))
    }

    /// Goes on with the journey after a step, or abandons it after a failed one.
    pub(crate) fn stepped(&mut self, job: &Job, good: bool, now: Moment) {
        let Some(traveller) = &mut self.traveller else { return };
        let run = self.lane.run.clone();
        let Some(journey) = &run.scenario.journey else { return };
        if !good {
            traveller.abandon();
            if job.counted {
                self.lane.recorder.borrow_mut().travelled(None);
            }
            return;
        }
        let pause = match traveller.arrived(journey, job.kind) {
            Arrived::On(pause) => pause,
            Arrived::Complete { began, counted, pause } => {
                if counted {
                    self.lane.recorder.borrow_mut().travelled(Some(micros(began, now)));
                }
                // In an open model the rate says when the next journey begins.
                if self.think.is_some() { pause } else { Duration::ZERO }
            }
        };
        self.pause(pause);
    }

    /// Returns the message of a request; `None` if it is the prepared one.
    pub(crate) fn message(&self, kind: &PreparedRequest, job: &Job) -> Option<Box<[u8]>> {
        let run = &self.lane.run;
        if let (Some(traveller), Some(journey)) = (&self.traveller, &run.scenario.journey) {
            let step = journey.steps.get(job.kind)?;
            return Some(traveller.message(step, &run.prepared.origins[kind.origin], kind));
        }
        self.cookie(kind).map(|line| {
            let (fields, rest) = kind.message.split_at(kind.fields_end);
            [fields, b"Cookie: ", line.as_bytes(), b"\r\n", rest].concat().into_boxed_slice()
        })
    }

    /// Returns the value of the `Cookie` field for a request; `None` if the prepared message needs no change.
    pub(crate) fn cookie(&self, kind: &PreparedRequest) -> Option<String> {
        let jar = self.jar.as_ref()?;
        let origin = &self.lane.run.prepared.origins[kind.origin];
        jar.line(kind.cookie.as_deref(), origin, &kind.path, SystemTime::now())
    }

    /// Stores the cookies that a response sets.
    pub(crate) fn keep_cookies(&mut self, kind: &PreparedRequest, incoming: &Incoming) {
        let origin = &self.lane.run.prepared.origins[kind.origin];
        if let Some(traveller) = &mut self.traveller {
            traveller.keep_cookies(&incoming.cookies, origin);
        }
        let Some(jar) = &mut self.jar else { return };
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
