//! Profiles: orders all workers to take one, and collects what they send.
//!
//! The order is a word in each worker's slot of the scoreboard, and URG makes the worker read it. It is repeated on each tick until the worker has sent
//! something, so workers that start meanwhile take part, too. A worker that dies loses only what it had not sent.

use super::{PROFILE_GRACE, ProfileWish, Supervisor};
use crate::reconciler::Row;
use crate::spawner::without_fork;
use profile::Part;
use queue::Serial;
use stats::WorkerState;
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::sync::oneshot;
use wire::profile::Order;

/// The most bytes that are kept for a profile.
const MOST_BYTES: usize = 64 << 20;

/// A profile that is being taken.
pub(super) struct Profiling {
    order: Order,
    parts: BTreeMap<Serial, Part>,
    bytes: usize,
    /// Set once it is ended: since when, and the receiver of the parts.
    end: Option<(Instant, oneshot::Sender<Vec<Part>>)>,
}

impl Profiling {
    /// Adds what a worker has sent.
    fn add(&mut self, serial: Serial, row: Option<&Row>, records: &[u8], last: bool) {
        if let Some(row) = row {
            let new = || Part { worker: row.index, pid: row.pid, ..Part::default() };
            self.parts.entry(serial).or_insert_with(new);
        }
        // Otherwise the worker is gone, and may have sent something before.
        let Some(part) = self.parts.get_mut(&serial) else { return };
        part.complete |= last;
        if self.bytes + records.len() > MOST_BYTES {
            part.truncated = true;
        } else if !part.truncated {
            self.bytes += records.len();
            part.records.extend_from_slice(records);
        }
    }
}

impl Supervisor {
    pub(super) fn begin_profile(&mut self, wish: ProfileWish, reply: oneshot::Sender<Result<(), String>>) {
        let free = self.subjects.profiling.is_none();
        let answer = match without_fork(&self.options.boot.settings) {
            Some(engine) if self.options.attached.is_none() => Err(format!(
                "the workers run {engine}: profiles need CRuby with the native part of the worker (docs/profile.md)"
            )),
            _ if !free => Err("another profile is being taken: try again when it has ended".to_owned()),
            _ => Ok(()),
        };
        let begins = answer.is_ok();
        // The client may have gone; then nothing begins.
        if reply.send(answer).is_err() || !begins {
            return;
        }
        let order = Order { serial: fastrand::u32(1..), hz: wish.hz, clock: wish.clock };
        self.subjects.profiling = Some(Profiling { order, parts: BTreeMap::new(), bytes: 0, end: None });
        self.order_profiles();
    }

    pub(super) fn end_profile(&mut self, reply: oneshot::Sender<Vec<Part>>) {
        if let Some(profiling) = &mut self.subjects.profiling {
            profiling.end = Some((Instant::now(), reply));
            self.order_profiles();
            self.check_profile(Instant::now());
        }
    }

    /// Gives the order to workers that have not obeyed it yet.
    fn order_profiles(&self) {
        let Some(profiling) = &self.subjects.profiling else { return };
        let order = profiling.end.is_none().then_some(profiling.order);
        for row in self.reconciler.rows().filter(|row| row.state != WorkerState::Booting) {
            let obeyed = match profiling.parts.get(&row.serial) {
                Some(part) => order.is_some() || part.complete,
                None => false,
            };
            if !obeyed {
                self.shared.scoreboard().order_profile(row.index as usize, order);
                self.ask_traces(row.serial);
            }
        }
    }

    pub(super) fn profiled(&mut self, serial: Serial, order: u32, records: &[u8], last: bool) {
        let row = self.reconciler.rows().find(|row| row.serial == serial);
        // The rest of an earlier profile may come late.
        if let Some(profiling) = self.subjects.profiling.as_mut().filter(|one| one.order.serial == order) {
            profiling.add(serial, row.as_ref(), records, last);
            self.check_profile(Instant::now());
        }
    }

    /// Repeats orders, and hands over the parts when all workers have sent theirs. Called on each tick.
    pub(super) fn check_profile(&mut self, now: Instant) {
        let Some(profiling) = &self.subjects.profiling else { return };
        let Some((since, receiver)) = &profiling.end else {
            return self.order_profiles();
        };
        let is_up = |serial: &Serial| self.reconciler.index_of(*serial).is_some();
        let complete = profiling.parts.iter().all(|(serial, part)| part.complete || !is_up(serial));
        if !complete && now.saturating_duration_since(*since) < PROFILE_GRACE && !receiver.is_closed() {
            return self.order_profiles();
        }
        if let Some(Profiling { parts, end: Some((_, receiver)), .. }) = self.subjects.profiling.take() {
            // Every slot: a worker may have begun only now.
            for row in self.reconciler.rows() {
                self.shared.scoreboard().order_profile(row.index as usize, None);
            }
            // The client may have gone.
            let _ = receiver.send(parts.into_values().collect());
        }
    }
}
