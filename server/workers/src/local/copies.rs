//! The front thread's side of a shadow: sends the copies of a round, one after the other, and reads the responses.
//!
//! Why one thread for a round: it has links to both workers, so no frame and no response changes threads. Copies have no
//! position in the queue and are never sent to another worker, like probes.

use super::Local;
use crate::call::{Call, CallBody, CallState};
use crate::reply::{Next, ReplyEvent, ReplyHead};
use crate::shadow::{
    FinishedRound, LONGEST_BODY, Pair, PoolLoad, QUERIES, RequestCopy, Round, STATUS, Shape, Side, shape,
};
use crate::trial::TrialSample;
use handler::{Chunk, Fields, Trace};
use queue::PoolIndex;
use settings::Machine;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use wire::FrameKind;

/// The time limit of a response.
const LIMIT: Duration = Duration::from_secs(10);
/// Bodies up to this length are read here, longer ones on a thread that serves no client.
const SHORT: usize = 8 << 10;
/// One GET in so many, by path, is also sent as HEAD.
const HEADS: u64 = 8;
/// The field with which a worker says that it has not served a copy as it serves a client's request.
const SAYS: &str = "firebrick-shadow";

/// A response to a copy.
struct Answer {
    shape: Shape,
    route: Option<Arc<str>>,
    sample: TrialSample,
    left_out: Option<&'static str>,
}

/// A response as it was read.
struct RawAnswer {
    head: ReplyHead,
    body: Vec<u8>,
    length: u64,
    broken: bool,
}

impl Local {
    /// Copies a client's request, given its REQUEST payload, if there is room for a round.
    #[cold]
    pub(crate) fn shadow(self: &Rc<Local>, payload: &[u8], pool: PoolIndex) {
        if pool != PoolIndex::DEFAULT {
            return;
        }
        let Some(request) = RequestCopy::of(payload) else { return };
        let queue = self.shared().dispatch(pool);
        let (waiting, busy, seats) = (queue.waiting(), queue.busy(), queue.seats());
        drop(queue);
        let processors = Machine::recent().cpu_time().max(1.0) as usize;
        let load = PoolLoad { waiting, busy, seats, processors };
        let now = Instant::now();
        let Some(pair) = self.shared().shadow().take(&request, load, now) else { return };
        let lane = Lease { local: self.clone(), pair, since: now };
        net::task::spawn_local(async move { lane.local.rounds_of(pair, &request, false).await });
    }

    /// Compares responses to these targets, and frees the lane, which the shadow has begun with.
    pub(crate) fn shadow_targets(self: &Rc<Local>, pair: Pair, targets: Vec<String>) {
        let lane = Lease { local: self.clone(), pair, since: Instant::now() };
        net::task::spawn_local(async move {
            for request in targets.iter().filter_map(|target| RequestCopy::of_target(target)) {
                lane.local.rounds_of(pair, &request, true).await;
            }
        });
    }

    /// Runs the rounds of a request: as it is, and sometimes as HEAD.
    async fn rounds_of(self: &Rc<Local>, pair: Pair, request: &RequestCopy, own: bool) {
        let before = self.shared().shadow().visit(pair, &request.folded());
        if self.round_of(pair, request, own).await && request.is_get() && before.is_multiple_of(HEADS) && !own
        {
            self.round_of(pair, &request.head(), own).await;
        }
    }

    /// Runs a round with its repeats. Returns whether it was compared.
    async fn round_of(self: &Rc<Local>, pair: Pair, request: &RequestCopy, own: bool) -> bool {
        let shadow = self.shared().shadow();
        // Either may profit from what the other has warmed up outside of both, such as the caches of a database.
        let order = match fastrand::bool() {
            true => [Side::Old, Side::New, Side::Old],
            false => [Side::New, Side::Old, Side::Old],
        };
        let (mut round, mut samples, mut name) = (Round::default(), [None, None], None);
        for side in order {
            let Some(answer) = self.ask(pair, request, side).await else { return false };
            let late = side == Side::Old && answer.sample.app_us == LIMIT.as_micros() as u32;
            if let Some(why) = answer.left_out.or(late.then_some("no response of the old code within 10 s")) {
                shadow.leave_out(pair, &request.folded(), why);
                return false;
            }
            if side == Side::Old {
                name = name.or(answer.route);
            }
            samples[side as usize].get_or_insert(answer.sample);
            round.take(side, answer.shape);
        }
        let route = route_of(name, request);
        while shadow.needs_repeat(pair, &route, &round) {
            for side in [Side::New, Side::Old] {
                let Some(answer) = self.ask(pair, request, side).await else { return false };
                round.take(side, answer.shape);
            }
        }
        let [old, new] =
            samples.map(|sample| sample.map(|sample| TrialSample { route: route.clone(), ..sample }));
        let samples = old.zip(new).map(|(old, new)| [old, new]);
        shadow.add(pair, FinishedRound { route, request: request.describe(), round, samples, own });
        true
    }

    /// Sends a copy and returns the response; `None` if the worker is gone, which others notice.
    async fn ask(self: &Rc<Local>, pair: Pair, request: &RequestCopy, side: Side) -> Option<Answer> {
        let serial = if side == Side::Old { pair.old } else { pair.new };
        let now = Instant::now();
        let frame = request.frame(side, self.monotonic_us(now))?;
        let trace = Rc::new(Trace::default());
        trace.measure.set(true);
        let call = Rc::new(Call::new(frame, CallBody::Nothing, trace, None, PoolIndex::DEFAULT, now));
        let link = self.link(serial)?;
        call.sent_to(serial, link.index);
        let id = link.send(call.clone()).ok()?;
        call.set_state(CallState::Sent { ticket: None, serial, id });
        let _giving_up = GivingUp { local: self, call: &call };
        match tokio::time::timeout(LIMIT, self.read(&call)).await {
            Ok(raw) => Some(answer(&call, raw?).await),
            Err(_) => Some(late()),
        }
    }

    /// Reads a response to its end.
    async fn read(self: &Rc<Local>, call: &Rc<Call>) -> Option<RawAnswer> {
        let mut head = loop {
            match poll_fn(|cx| call.reply.poll_event(cx)).await {
                ReplyEvent::Interim(..) | ReplyEvent::Postponed => {}
                ReplyEvent::Head(head) => break head,
                ReplyEvent::Hijacked(_) => {
                    let mut fields = Fields::default();
                    fields.push(SAYS.as_bytes(), b"stream");
                    break ReplyHead { status: 200, fields, body: bytes::Bytes::new(), stream: None };
                }
                ReplyEvent::Failed(_) => return None,
            }
        };
        if head.stream.take().is_some() {
            head.fields.push(SAYS.as_bytes(), b"stream");
        }
        let mut raw =
            RawAnswer { body: head.body.to_vec(), length: head.body.len() as u64, head, broken: false };
        if raw.head.fields.get(SAYS) == Some(b"stream") {
            return Some(raw);
        }
        loop {
            let (next, grant) = poll_fn(|cx| call.reply.poll_chunk(&self.room(), cx)).await;
            if let (1.., CallState::Sent { serial, id, .. }) = (grant, call.state()) {
                self.send_frame(serial, FrameKind::Window, id, &grant.to_le_bytes());
            }
            match next {
                None => return Some(raw),
                Some(Err(_)) => {
                    raw.broken = true;
                    return Some(raw);
                }
                Some(Ok(Next::Offer(_))) => drop(self.lend(call, None)),
                Some(Ok(Next::Chunk(chunk))) => raw.push(chunk),
            }
        }
    }
}

impl RawAnswer {
    fn push(&mut self, chunk: Chunk) {
        match chunk {
            Chunk::Bytes(bytes) => {
                self.length += bytes.len() as u64;
                let room = LONGEST_BODY.saturating_sub(self.body.len());
                self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Chunk::File(region) => self.length += region.len,
            Chunk::Offer(_) => {}
        }
    }
}

impl Round {
    fn take(&mut self, side: Side, shape: Shape) {
        match side {
            Side::Old => self.old.push(shape),
            Side::New => self.new.push(shape),
        }
    }
}

/// Returns the shape and the figures of a response.
async fn answer(call: &Call, raw: RawAnswer) -> Answer {
    let RawAnswer { head, body, length, broken } = raw;
    let (status, fields) = (head.status, head.fields);
    let left_out = match fields.get(SAYS) {
        Some(b"writes") => Some("a GET that writes to the database"),
        Some(_) => Some("a stream"),
        None => None,
    };
    let mut shape = match body.len() <= SHORT {
        true => shape(status, &fields, &body, length),
        false => {
            let reading = spawn_blocking(move || shape(status, &fields, &body, length));
            reading.await.unwrap_or_default()
        }
    };
    if broken {
        shape.put(STATUS, &format!("{status}, broken off"));
    }
    let used = call.trace.used.get();
    if let Some(queries) = used.queries {
        shape.put(QUERIES, &queries.to_string());
    }
    let sample = TrialSample {
        route: "".into(),
        failed: broken || status >= 500,
        app_us: call.trace.app_us.get(),
        cpu_us: call.trace.cpu_us.get(),
        allocations: used.allocations,
        queries: used.queries,
    };
    Answer { shape, route: call.trace.route.borrow().clone(), sample, left_out }
}

/// Returns what stands for a response that has not come.
fn late() -> Answer {
    let mut shape = Shape::default();
    shape.put(STATUS, &format!("none within {} s", LIMIT.as_secs()));
    let app_us = LIMIT.as_micros() as u32;
    let sample = TrialSample {
        route: "".into(),
        failed: true,
        app_us,
        cpu_us: None,
        allocations: None,
        queries: None,
    };
    Answer { shape, route: None, sample, left_out: None }
}

/// Returns the route of a request, given the app's name for it. Of HEAD it is another one, so that both are compared apart.
fn route_of(name: Option<Arc<str>>, request: &RequestCopy) -> Arc<str> {
    match name {
        Some(name) if request.is_get() || name.starts_with("HEAD ") => name,
        Some(name) => format!("HEAD {name}").into(),
        None => request.folded().into(),
    }
}

/// Frees the lane at the end of a round, however it ends.
struct Lease {
    local: Rc<Local>,
    pair: Pair,
    since: Instant,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.local.shared().shadow().free(self.pair, self.since.elapsed());
    }
}

/// Gives a copy up whose response is not complete.
struct GivingUp<'a> {
    local: &'a Rc<Local>,
    call: &'a Rc<Call>,
}

impl Drop for GivingUp<'_> {
    fn drop(&mut self) {
        if self.call.state() != CallState::Finished {
            self.local.abandon(self.call);
        }
    }
}
