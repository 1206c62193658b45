//! Records the results of a thread. It allocates nothing per request, and a usual response costs one entry in
//! one histogram.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bands;
use crate::clock::{Moment, NEVER, micros};
use crate::histogram::Histogram;
use crate::job::{Failure, Job, Response};
use crate::outcome::{Band, Bytes, Errors, Handshakes, RequestOutcome, Second, ServerInfo, Stages};
use crate::recorded::{Compared, Group, Recorded};
use crate::stream::Negotiated;
use crate::timing::Timing;

/// The most kinds of requests that are recorded separately; the others are combined.
pub(crate) const MOST_KINDS: usize = 200;
/// The most distinct error texts that are kept.
const MOST_TEXTS: usize = 20;
/// `STEPS` of the bands per second.
pub(crate) const COURSE: u32 = 5;
/// `STEPS` of the bands of the stages.
pub(crate) const STAGES: u32 = 6;

#[derive(Debug)]
pub(crate) struct Recorder {
    /// The start of the counted part.
    began: Moment,
    pub sent: u64,
    pub ok: u64,
    pub failures: u64,
    pub in_flight: u64,
    /// Requests that were due while all connections were in use.
    pub crowded: u64,
    pub errors: Errors,
    pub connections: u64,
    pub bytes: Bytes,
    pub server: Option<ServerInfo>,
    /// The time of the last complete response or failed request.
    pub last_response: Moment,
    statuses: Vec<u64>,
    /// Successful responses with equal latency, service time and first byte time.
    usual: Histogram,
    latency: Histogram,
    service: Histogram,
    first_byte: Histogram,
    connect: Histogram,
    handshakes: Handshakes,
    course: Course,
    kinds: Vec<KindRecord>,
    /// The row of each kind, if kinds are combined to groups.
    recorded: Option<Arc<Recorded>>,
    /// Comparisons with recorded responses, by group.
    pub compared: Vec<Compared>,
    /// Journeys, from their first request to their last response.
    journeys: Option<KindRecord>,
    stages: BTreeMap<usize, Band>,
}

#[derive(Debug, Default)]
struct KindRecord {
    ok: u64,
    errors: u64,
    latency: Histogram,
}

impl KindRecord {
    fn outcome(self, name: &str) -> RequestOutcome {
        RequestOutcome { name: name.to_owned(), ok: self.ok, errors: self.errors, latency: self.latency }
    }
}

impl Recorder {
    pub(crate) fn new(kinds: usize) -> Recorder {
        let kept = if kinds > 1 { kinds.min(MOST_KINDS + 1) } else { 0 };
        Recorder {
            began: NEVER,
            sent: 0,
            ok: 0,
            failures: 0,
            in_flight: 0,
            crowded: 0,
            errors: Errors::default(),
            connections: 0,
            bytes: Bytes::default(),
            server: None,
            last_response: 0,
            statuses: vec![0; 1000],
            usual: Histogram::default(),
            latency: Histogram::default(),
            service: Histogram::default(),
            first_byte: Histogram::default(),
            connect: Histogram::default(),
            handshakes: Handshakes::default(),
            course: Course::default(),
            kinds: (0..kept).map(|_| KindRecord::default()).collect(),
            recorded: None,
            compared: Vec::new(),
            journeys: None,
            stages: BTreeMap::new(),
        }
    }

    /// Combines the kinds of a replay to their groups.
    pub(crate) fn in_groups(mut self, recorded: Option<&Arc<Recorded>>) -> Recorder {
        if let Some(recorded) = recorded {
            self.kinds = recorded.groups.iter().map(|_| KindRecord::default()).collect();
            let named = |group: &Group| Compared { name: group.name.clone(), ..Compared::default() };
            self.compared = recorded.groups.iter().map(named).collect();
            self.recorded = Some(recorded.clone());
        }
        self
    }

    /// Counts a journey: the time of a complete one, or an abandoned one.
    pub(crate) fn travelled(&mut self, took_us: Option<u64>) {
        let all = self.journeys.get_or_insert_default();
        match took_us {
            Some(took_us) => {
                all.ok += 1;
                all.latency.saturating_record(took_us);
            }
            None => all.errors += 1,
        }
    }

    /// Starts the counted part.
    pub(crate) fn begin(&mut self, moment: Moment, warmed_up: bool) {
        self.began = moment;
        self.last_response = self.last_response.max(moment);
        // Without a warm-up, bytes may have been sent and received before this thread noticed the start.
        if warmed_up {
            self.bytes = Bytes::default();
        }
    }

    fn second(&self, moment: Moment) -> usize {
        usize::try_from(moment.saturating_sub(self.began) / 1_000_000_000).unwrap_or(usize::MAX)
    }

    /// Counts a started request.
    pub(crate) fn begun(&mut self, job: &Job) {
        self.in_flight += 1;
        if job.counted {
            self.sent += 1;
            let second = self.second(job.due);
            self.course.at(second).sent += 1;
        }
    }

    /// Records a successful response.
    pub(crate) fn succeeded(&mut self, job: &Job, response: &Response) {
        self.in_flight -= 1;
        if !job.counted {
            return;
        }
        self.received(response);
        self.ok += 1;
        let latency = micros(job.due, response.end);
        if job.due == response.sent && response.first_byte == response.end {
            self.usual.saturating_record(latency);
        } else {
            self.latency.saturating_record(latency);
            self.service.saturating_record(micros(response.sent, response.end));
            self.first_byte.saturating_record(micros(response.sent, response.first_byte));
        }
        let second = self.second(response.end);
        self.course.succeeded(second, latency);
        if let Some(kind) = self.kind(job.kind) {
            kind.ok += 1;
            kind.latency.saturating_record(latency);
        }
        if let Some(timing) = &response.timing {
            self.record_stages(job, response, latency, timing);
        }
    }

    fn kind(&mut self, kind: usize) -> Option<&mut KindRecord> {
        let row = match &self.recorded {
            Some(recorded) => recorded.expected.get(kind)?.group,
            None => kind.min(MOST_KINDS),
        };
        self.kinds.get_mut(row)
    }

    fn received(&mut self, response: &Response) {
        if let Some(count) = self.statuses.get_mut(usize::from(response.status)) {
            *count += 1;
        }
        self.last_response = self.last_response.max(response.end);
        self.bytes.bodies += response.length;
    }

    fn record_stages(&mut self, job: &Job, response: &Response, latency: u64, timing: &Timing) {
        let index = bands::index::<STAGES>(latency);
        let band = self.stages.entry(index).or_default();
        band.upto_us = bands::upto::<STAGES>(index);
        band.count += 1;
        band.latency += latency;
        band.unsent += response.sent.saturating_sub(job.due) / 1000;
        band.queue += timing.queue;
        band.app += timing.app;
        for (sum, time) in [(&mut band.cpu, timing.cpu), (&mut band.gvl, timing.gvl)] {
            sum.0 += time.unwrap_or(0);
            sum.1 += u64::from(time.is_some());
        }
    }

    /// Records a complete response that failed a check.
    pub(crate) fn rejected(&mut self, job: &Job, response: &Response, failure: Failure, text: &str) {
        if job.counted {
            self.received(response);
        }
        self.failed(job, failure, text, response.end);
    }

    /// Records a failed request.
    pub(crate) fn failed(&mut self, job: &Job, failure: Failure, text: &str, now: Moment) {
        self.in_flight -= 1;
        if !job.counted {
            return;
        }
        self.failures += 1;
        if failure != Failure::CutOff {
            self.last_response = self.last_response.max(now);
        }
        *match failure {
            Failure::Connect => &mut self.errors.connect,
            Failure::ConnectTimeout => &mut self.errors.connect_timeout,
            Failure::Write => &mut self.errors.write,
            Failure::Read => &mut self.errors.read,
            Failure::Timeout => &mut self.errors.timeout,
            Failure::Status => &mut self.errors.status,
            Failure::Length => &mut self.errors.length,
            Failure::Body => &mut self.errors.body,
            Failure::CutOff => &mut self.errors.cut_off,
        } += 1;
        self.text(text, 1);
        let second = self.second(now);
        self.course.at(second).errors += 1;
        if let Some(kind) = self.kind(job.kind) {
            kind.errors += 1;
        }
    }

    /// Counts requests that were due but not sent.
    pub(crate) fn unsent(&mut self, count: u64) {
        if count > 0 {
            self.errors.unsent += count;
            self.failures += count;
            self.text("due before the end, but no connection was free to send it", count);
        }
    }

    /// Counts an error text.
    pub(crate) fn text(&mut self, text: &str, count: u64) {
        if let Some(known) = self.errors.texts.get_mut(text) {
            *known += count;
        } else if self.errors.texts.len() < MOST_TEXTS {
            self.errors.texts.insert(text.to_owned(), count);
        }
    }

    /// Records a new connection.
    pub(crate) fn connected(&mut self, took_us: u64) {
        self.connections += 1;
        self.connect.saturating_record(took_us);
    }

    /// Records a TLS handshake: its duration, and the encryption.
    pub(crate) fn shook_hands(&mut self, took_us: u64, tls: &Negotiated) {
        let all = &mut self.handshakes;
        *if tls.resumed { &mut all.resumed } else { &mut all.full } += 1;
        all.counted += u64::from(self.began != NEVER);
        all.took.saturating_record(took_us);
        if let Some(known) = all.suites.get_mut(&tls.suite) {
            *known += 1;
        } else {
            all.suites.insert(tls.suite.clone(), 1);
        }
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn handshake_failed(&mut self, why: &str) {
        let failed = &mut self.handshakes.failed;
        if let Some(known) = failed.get_mut(why) {
            *known += 1;
        } else {
            let why = if failed.len() < MOST_TEXTS { why } else { "other reasons" };
            *failed.entry(why.to_owned()).or_default() += 1;
        }
    }

    /// Adds to `spread` the counts of successful responses by band since the last call.
    pub(crate) fn sample(&mut self, spread: &mut Vec<u64>) {
        self.course.flush();
        let sampled = &mut self.course.since_sample;
        spread.resize(spread.len().max(sampled.len()), 0);
        for (sum, count) in spread.iter_mut().zip(sampled.iter_mut()) {
            *sum += u64::from(std::mem::take(count));
        }
    }
}

/// One record per second. Responses are counted in `fresh`, whose counts are moved when a second ends or
/// progress is reported.
#[derive(Debug, Default)]
struct Course {
    seconds: Vec<Second>,
    second: usize,
    fresh: Vec<u32>,
    this_second: Vec<u32>,
    since_sample: Vec<u32>,
}

impl Course {
    fn at(&mut self, second: usize) -> &mut Second {
        if second >= self.seconds.len() {
            self.seconds.resize_with(second + 1, Second::default);
        }
        &mut self.seconds[second]
    }

    fn succeeded(&mut self, second: usize, latency: u64) {
        if second != self.second {
            self.end_second();
            self.second = second;
        }
        let band = bands::index::<COURSE>(latency);
        if band >= self.fresh.len() {
            self.fresh.resize(band + 32, 0);
        }
        self.fresh[band] += 1;
        let second = self.at(second);
        second.ok += 1;
        second.max = second.max.max(latency);
    }

    fn flush(&mut self) {
        let length = self.fresh.len();
        self.this_second.resize(length, 0);
        self.since_sample.resize(length, 0);
        for (band, count) in self.fresh.iter_mut().enumerate() {
            self.this_second[band] += *count;
            self.since_sample[band] += *count;
            *count = 0;
        }
    }

    fn end_second(&mut self) {
        self.flush();
        let seen = self.this_second.iter_mut().enumerate().filter(|(_, count)| **count > 0);
        let spread: Vec<(u64, u64)> = seen
            .map(|(band, count)| (bands::upto::<COURSE>(band), u64::from(std::mem::take(count))))
            .collect();
        if !spread.is_empty() {
            let second = self.second;
            self.at(second).add_spread(&spread);
        }
    }
}

/// A recorder's share of an outcome.
#[derive(Debug)]
pub(crate) struct Record {
    pub statuses: BTreeMap<u16, u64>,
    pub latency: Histogram,
    pub service: Histogram,
    pub first_byte: Histogram,
    pub connect: Histogram,
    pub handshakes: Option<Handshakes>,
    pub course: Vec<Second>,
    pub stages: Option<Stages>,
    pub requests: Vec<RequestOutcome>,
    pub journeys: Option<RequestOutcome>,
}

impl Recorder {
    /// Converts the records into the form of an outcome.
    pub(crate) fn finish(&mut self, names: &[String]) -> Record {
        self.course.end_second();
        for histogram in [&mut self.latency, &mut self.service, &mut self.first_byte] {
            histogram.take(&self.usual);
        }
        let statuses = self.statuses.iter().zip(0u16..).filter(|(count, _)| **count > 0);
        let bands: Vec<Band> = std::mem::take(&mut self.stages).into_values().collect();
        let requests = self.kinds.drain(..).zip(names).map(|(kind, name)| kind.outcome(name));
        let handshakes = std::mem::take(&mut self.handshakes);
        let shaken = handshakes.complete() + handshakes.failures() > 0;
        Record {
            handshakes: shaken.then_some(handshakes),
            statuses: statuses.map(|(count, status)| (status, *count)).collect(),
            latency: std::mem::take(&mut self.latency),
            service: std::mem::take(&mut self.service),
            first_byte: std::mem::take(&mut self.first_byte),
            connect: std::mem::take(&mut self.connect),
            course: std::mem::take(&mut self.course.seconds),
            stages: (!bands.is_empty())
                .then(|| Stages { reported: bands.iter().map(|band| band.count).sum(), bands }),
            requests: requests.collect(),
            journeys: self.journeys.take().map(|all| all.outcome("journey")),
        }
    }
}
