//! What a thread saw. Nothing here allocates per request, and the usual answer costs one entry in one histogram.

use std::collections::BTreeMap;

use crate::bands;
use crate::clock::{Moment, NEVER, micros};
use crate::histogram::Histogram;
use crate::job::{Answer, Failure, Job};
use crate::outcome::{Band, Bytes, Errors, RequestOutcome, Second, Seen, Stages};
use crate::timing::Timing;

/// Kinds of requests that are kept apart; the others are taken together.
pub(crate) const MOST_KINDS: usize = 200;
/// Texts of errors that are kept.
const MOST_TEXTS: usize = 20;
/// Bands of the course of time.
pub(crate) const COURSE: u32 = 5;
/// Bands of the stages.
pub(crate) const STAGES: u32 = 6;

#[derive(Debug)]
pub(crate) struct Recorder {
    /// When the counted part began.
    began: Moment,
    pub sent: u64,
    pub ok: u64,
    pub wrong: u64,
    pub in_flight: u64,
    pub errors: Errors,
    pub connections: u64,
    pub bytes: Bytes,
    pub seen: Option<Seen>,
    /// The last whole answer, right or wrong, or the last failure to get one.
    pub last_answer: Moment,
    statuses: Vec<u64>,
    /// Right answers whose latency, service time and first byte are the same.
    usual: Histogram,
    latency: Histogram,
    service: Histogram,
    first_byte: Histogram,
    connect: Histogram,
    course: Course,
    kinds: Vec<KindRecord>,
    stages: BTreeMap<usize, Band>,
}

#[derive(Debug, Default)]
struct KindRecord {
    ok: u64,
    errors: u64,
    latency: Histogram,
}

impl Recorder {
    pub(crate) fn new(kinds: usize) -> Recorder {
        let kept = if kinds > 1 { kinds.min(MOST_KINDS + 1) } else { 0 };
        Recorder {
            began: NEVER,
            sent: 0,
            ok: 0,
            wrong: 0,
            in_flight: 0,
            errors: Errors::default(),
            connections: 0,
            bytes: Bytes::default(),
            seen: None,
            last_answer: 0,
            statuses: vec![0; 1000],
            usual: Histogram::default(),
            latency: Histogram::default(),
            service: Histogram::default(),
            first_byte: Histogram::default(),
            connect: Histogram::default(),
            course: Course::default(),
            kinds: (0..kept).map(|_| KindRecord::default()).collect(),
            stages: BTreeMap::new(),
        }
    }

    /// The counted part began.
    pub(crate) fn begin(&mut self, moment: Moment, warmed_up: bool) {
        self.began = moment;
        self.last_answer = self.last_answer.max(moment);
        // Without a warm-up the first bytes may have come and gone before this thread looked at the clock.
        if warmed_up {
            self.bytes = Bytes::default();
        }
    }

    fn second(&self, moment: Moment) -> usize {
        usize::try_from(moment.saturating_sub(self.began) / 1_000_000_000).unwrap_or(usize::MAX)
    }

    /// A request was begun.
    pub(crate) fn begun(&mut self, job: &Job) {
        self.in_flight += 1;
        if job.counted {
            self.sent += 1;
            let second = self.second(job.due);
            self.course.at(second).sent += 1;
        }
    }

    /// A whole and right answer.
    pub(crate) fn right(&mut self, job: &Job, answer: &Answer) {
        self.in_flight -= 1;
        if !job.counted {
            return;
        }
        self.whole(answer);
        self.ok += 1;
        let latency = micros(job.due, answer.end);
        if job.due == answer.sent && answer.first_byte == answer.end {
            self.usual.saturating_record(latency);
        } else {
            self.latency.saturating_record(latency);
            self.service.saturating_record(micros(answer.sent, answer.end));
            self.first_byte.saturating_record(micros(answer.sent, answer.first_byte));
        }
        let second = self.second(answer.end);
        self.course.right(second, latency);
        if let Some(kind) = self.kind(job.kind) {
            kind.ok += 1;
            kind.latency.saturating_record(latency);
        }
        if let Some(timing) = &answer.timing {
            self.told(job, answer, latency, timing);
        }
    }

    fn kind(&mut self, kind: usize) -> Option<&mut KindRecord> {
        self.kinds.get_mut(kind.min(MOST_KINDS))
    }

    fn whole(&mut self, answer: &Answer) {
        if let Some(count) = self.statuses.get_mut(usize::from(answer.status)) {
            *count += 1;
        }
        self.last_answer = self.last_answer.max(answer.end);
        self.bytes.bodies += answer.length;
    }

    fn told(&mut self, job: &Job, answer: &Answer, latency: u64, timing: &Timing) {
        let index = bands::index::<STAGES>(latency);
        let band = self.stages.entry(index).or_default();
        band.upto_us = bands::upto::<STAGES>(index);
        band.count += 1;
        band.latency += latency;
        band.unsent += answer.sent.saturating_sub(job.due) / 1000;
        band.queue += timing.queue;
        band.app += timing.app;
        for (sum, told) in [(&mut band.cpu, timing.cpu), (&mut band.gvl, timing.gvl)] {
            sum.0 += told.unwrap_or(0);
            sum.1 += u64::from(told.is_some());
        }
    }

    /// A whole answer that is not right.
    pub(crate) fn wrong(&mut self, job: &Job, answer: &Answer, failure: Failure, text: &str) {
        if job.counted {
            self.whole(answer);
        }
        self.failed(job, failure, text, answer.end);
    }

    /// No right answer, whatever the reason.
    pub(crate) fn failed(&mut self, job: &Job, failure: Failure, text: &str, now: Moment) {
        self.in_flight -= 1;
        if !job.counted {
            return;
        }
        self.wrong += 1;
        if failure != Failure::CutOff {
            self.last_answer = self.last_answer.max(now);
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

    /// Due, and never sent.
    pub(crate) fn unsent(&mut self, count: u64) {
        if count > 0 {
            self.errors.unsent += count;
            self.wrong += count;
            self.text("due before the end, but no connection was free to send it", count);
        }
    }

    /// Notes what went wrong.
    pub(crate) fn text(&mut self, text: &str, count: u64) {
        if let Some(known) = self.errors.texts.get_mut(text) {
            *known += count;
        } else if self.errors.texts.len() < MOST_TEXTS {
            self.errors.texts.insert(text.to_owned(), count);
        }
    }

    /// A connection was opened.
    pub(crate) fn connected(&mut self, took_us: u64) {
        self.connections += 1;
        self.connect.saturating_record(took_us);
    }

    /// Right answers by band since the last look.
    pub(crate) fn look(&mut self, spread: &mut Vec<u64>) {
        self.course.flush();
        let looked = &mut self.course.since_look;
        spread.resize(spread.len().max(looked.len()), 0);
        for (sum, count) in spread.iter_mut().zip(looked.iter_mut()) {
            *sum += u64::from(std::mem::take(count));
        }
    }
}

/// The course of time. Answers go into bands, which are moved on when a second ends or somebody looks.
#[derive(Debug, Default)]
struct Course {
    seconds: Vec<Second>,
    second: usize,
    fresh: Vec<u32>,
    this_second: Vec<u32>,
    since_look: Vec<u32>,
}

impl Course {
    fn at(&mut self, second: usize) -> &mut Second {
        if second >= self.seconds.len() {
            self.seconds.resize_with(second + 1, Second::default);
        }
        &mut self.seconds[second]
    }

    fn right(&mut self, second: usize, latency: u64) {
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
        self.since_look.resize(length, 0);
        for (band, count) in self.fresh.iter_mut().enumerate() {
            self.this_second[band] += *count;
            self.since_look[band] += *count;
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
    pub course: Vec<Second>,
    pub stages: Option<Stages>,
    pub requests: Vec<RequestOutcome>,
}

impl Recorder {
    /// Everything that is kept in another form than an outcome has it.
    pub(crate) fn finish(&mut self, names: &[String]) -> Record {
        self.course.end_second();
        for histogram in [&mut self.latency, &mut self.service, &mut self.first_byte] {
            histogram.take(&self.usual);
        }
        let statuses = self.statuses.iter().zip(0u16..).filter(|(count, _)| **count > 0);
        let bands: Vec<Band> = std::mem::take(&mut self.stages).into_values().collect();
        let requests = self.kinds.drain(..).zip(names).map(|(kind, name)| RequestOutcome {
            name: name.clone(),
            ok: kind.ok,
            errors: kind.errors,
            latency: kind.latency,
        });
        Record {
            statuses: statuses.map(|(count, status)| (status, *count)).collect(),
            latency: std::mem::take(&mut self.latency),
            service: std::mem::take(&mut self.service),
            first_byte: std::mem::take(&mut self.first_byte),
            connect: std::mem::take(&mut self.connect),
            course: std::mem::take(&mut self.course.seconds),
            stages: (!bands.is_empty())
                .then(|| Stages { told: bands.iter().map(|band| band.count).sum(), bands }),
            requests: requests.collect(),
        }
    }
}
