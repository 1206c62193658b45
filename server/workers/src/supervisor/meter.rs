//! Measures the memory of workers, and reads the kernel's counter of OOM kills. [`crate::memory`] decides when
//! a worker is measured again.

use super::*;
use crate::memory::RSS_EVERY;
use crate::oom::OomKills;
use settings::Machine;

pub(super) struct Meter {
    pub(super) oom_kills: OomKills,
    next_reading: Instant,
    /// The worker whose PSS is being measured.
    measuring: Option<Serial>,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Meter {
        let oom_kills = OomKills::new(Machine::oom_kills(), now);
        Meter { oom_kills, next_reading: now, measuring: None }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next_reading;
        if due {
            self.next_reading = now + RSS_EVERY;
        }
        due
    }
}

impl Supervisor {
    /// Reads the workers' resident memory and the kernel's OOM-kill counter.
    pub(super) fn read_memory(&mut self, rows: &[Row], now: Instant) {
        if !self.subjects.meter.is_due(now) {
            return;
        }
        self.subjects.meter.oom_kills.read(Machine::oom_kills(), now);
        for row in rows {
            if let Some(worker) = self.workers.get_mut(&row.serial) {
                worker.memory.resident(sys::process::rss_bytes(row.pid));
            }
        }
        self.measure(now);
    }

    pub(super) fn measured(&mut self, serial: Serial, pss: u64) {
        let now = Instant::now();
        self.subjects.meter.measuring = None;
        if let Some(worker) = self.workers.get_mut(&serial) {
            worker.memory.measured(pss, now);
        }
        self.measure(now);
    }

    /// Measures the PSS of one worker that is due, on another thread, because that takes milliseconds.
    fn measure(&mut self, now: Instant) {
        if self.subjects.meter.measuring.is_some() {
            return;
        }
        let is_due = |row: &Row| {
            let Some(worker) = self.workers.get(&row.serial) else { return false };
            let crossed = |thresholds: [u64; 2]| {
                thresholds.into_iter().any(|threshold| worker.memory.is_due(Some(threshold), now))
            };
            let thresholds = self.reconciler.thresholds(row.serial);
            row.state != WorkerState::Booting && thresholds.map_or(worker.memory.is_due(None, now), crossed)
        };
        let Some(Row { serial, pid, .. }) = self.reconciler.rows().find(is_due) else { return };
        self.subjects.meter.measuring = Some(serial);
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            shared.report(SupervisorMessage::Measured { serial, pss: sys::process::pss_bytes(pid) });
        });
    }
}
