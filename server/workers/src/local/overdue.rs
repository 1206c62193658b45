//! Requests that take longer than `timeouts.worker`.

use super::Local;
use super::take_back::stuck_failure;
use crate::messages::SupervisorMessage;
use crate::os;
use queue::Serial;
use std::time::Duration;

/// How long the fiber of a request that was given up may continue before its seat counts as stuck. Ending its
/// wait takes a moment, and then `ensure` and `rescue` blocks of the app run.
const LOST_AFTER: Duration = Duration::from_secs(1);

impl Local {
    /// Fails an overdue request: the client gets its response now, and the supervisor handles the worker.
    /// Later frames for this request are ignored.
    pub(super) fn overdue(&self, serial: Serial, id: u32) {
        let call = self.link(serial).and_then(|link| link.flight(id));
        let call = call.filter(|call| !call.is_extended(os::monotonic_us()) && call.blames_worker());
        let Some(call) = call else { return };
        self.shared.report(SupervisorMessage::Stuck { serial, request: call.describe() });
        // With fibers, the request may have been given up already while it was waiting.
        if !call.mark_overdue(os::monotonic_us()) && !call.reply.is_unwanted() {
            call.fail(stuck_failure());
        }
    }

    /// With fibers: gives up requests that were sent longer than `timeout` ago and have no response yet. Such
    /// a fiber ends at the app's next wait, and then the worker is not at fault. If the fiber continues for
    /// [`LOST_AFTER`], its seat counts as stuck, like that of a stuck thread, and the supervisor replaces the
    /// worker.
    pub(super) fn overdue_since(&self, serial: Serial, timeout: Duration) {
        let now_us = os::monotonic_us();
        let limit_us = now_us.saturating_sub(timeout.as_micros() as u64);
        let (mut late, mut lost, mut kept) = (Vec::new(), Vec::new(), 0);
        if let Some(link) = self.link(serial) {
            link.each_flight(|_, call| {
                if let Some(for_us) = call.overdue_for_us(now_us) {
                    kept += 1;
                    if for_us >= LOST_AFTER.as_micros() as u64 && call.blames_worker() {
                        lost.push(call.describe());
                    }
                    return;
                }
                let sent_us = match call.sent_us() {
                    0 => {
                        call.sent_at(now_us);
                        now_us
                    }
                    sent_us => sent_us,
                };
                if sent_us < limit_us && !call.reply.headed() && !call.is_extended(now_us) {
                    late.push(call.clone());
                }
            });
        }
        for call in late.into_iter().filter(|call| !call.mark_overdue(now_us) && !call.reply.is_unwanted()) {
            call.fail(stuck_failure());
        }
        if kept > 0 {
            self.shared.report(SupervisorMessage::Kept { serial, thread: self.index, count: kept });
        }
        lost.into_iter().for_each(|request| self.shared.report(SupervisorMessage::Stuck { serial, request }));
    }
}
