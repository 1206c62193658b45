//! The requests in progress, and their positions in the app's code, for `GET /requests`.

use super::snapshot::Snapshotter;
use stats::{InFlight, RequestPhase};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use workers::Serial;
use workers::reconciler::Row;
use workers::supervisor::Command;
use workers::{Busy, InFlight as RequestInFlight, Slot, Trace};

/// Time-out for the backtraces of workers. A worker whose GVL is held sends none.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

impl Snapshotter {
    /// Returns at most `limit` requests, slowest first, with backtraces if requested.
    pub(crate) async fn in_flight(&self, limit: usize, backtraces: bool) -> Vec<InFlight> {
        let Some(shared) = self.shared() else { return Vec::new() };
        let in_flight = shared.in_flight(limit).await;
        let rows = self.processes().await.workers;
        let slots: HashMap<Serial, (&Row, Slot)> = rows
            .iter()
            .map(|row| (row.serial, (row, shared.scoreboard().slot(row.index as usize))))
            .collect();
        let mut traces = if backtraces { self.traces(&in_flight).await } else { HashMap::new() };
        in_flight.iter().map(|request| entry(request, &slots, &mut traces)).collect()
    }

    /// Requests the backtraces of all workers with one of these requests, in parallel.
    async fn traces(&self, requests: &[RequestInFlight]) -> HashMap<Serial, Vec<Trace>> {
        let mut asked = HashMap::new();
        for serial in requests.iter().filter_map(|request| Some(request.sent?.serial)) {
            if let Entry::Vacant(vacant) = asked.entry(serial) {
                let (answer, traces) = oneshot::channel();
                vacant.insert(traces);
                // During shutdown no reply comes.
                let _ = self.commands().send(Command::Trace(serial, answer)).await;
            }
        }
        let deadline = Instant::now() + REPLY_TIMEOUT;
        let mut received = HashMap::new();
        for (serial, traces) in asked {
            if let Ok(Ok(traces)) = timeout_at(deadline, traces).await {
                received.insert(serial, traces);
            }
        }
        received
    }
}

/// Builds the entry of one request.
fn entry(
    request: &RequestInFlight,
    slots: &HashMap<Serial, (&Row, Slot)>,
    traces: &mut HashMap<Serial, Vec<Trace>>,
) -> InFlight {
    let worker = request.sent.and_then(|sent| Some((sent, slots.get(&sent.serial)?)));
    let busy: Option<&Busy> = worker.and_then(|(sent, (_, slot))| {
        slot.busy.iter().find(|busy| busy.serving.link == u32::from(sent.link) && busy.serving.id == sent.id)
    });
    let backtrace = request.sent.and_then(|sent| {
        let traces = traces.get_mut(&sent.serial)?;
        let at = traces.iter().position(|trace| trace.link == u32::from(sent.link) && trace.id == sent.id)?;
        Some(traces.swap_remove(at).lines)
    });
    // Each sent request has its own fiber. The slot lists only requests that are running at this moment.
    let on_fiber = worker.is_some_and(|(_, (_, slot))| slot.serving > 0);
    let queue_us = match busy {
        _ if on_fiber => 0,
        Some(busy) => busy.since_us.saturating_sub(request.asked_us),
        None => request.age_us(),
    };
    InFlight {
        worker: worker.map(|(_, (row, _))| row.index),
        pid: worker.map(|(_, (row, _))| row.pid),
        thread: busy.map(|busy| busy.thread),
        method: request.method.clone(),
        path: request.path.clone(),
        age_ms: request.age_us() as f64 / 1_000.0,
        queue_ms: queue_us as f64 / 1_000.0,
        state: match busy {
            _ if request.responding => RequestPhase::Sending,
            Some(_) => RequestPhase::App,
            None if on_fiber => RequestPhase::App,
            None => RequestPhase::Queued,
        },
        backtrace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::WorkerState;
    use workers::{PoolIndex, Sent, Serving};

    fn request(sent: Option<Sent>) -> RequestInFlight {
        RequestInFlight { sent, method: "GET".into(), path: "/a".into(), asked_us: 1_000, responding: false }
    }

    #[test]
    fn a_request_is_found_in_its_workers_slot_and_among_its_traces() {
        let forked = std::time::Instant::now();
        let row = Row {
            index: 2,
            serial: 7,
            pool: PoolIndex(0),
            generation: 1,
            pid: 70,
            state: WorkerState::Ready,
            forked,
            restarts: 0,
        };
        let serving = Serving { link: 1, id: 5 };
        let slot = Slot { busy: vec![Busy { thread: 3, serving, since_us: 3_500 }], ..Slot::default() };
        let slots = HashMap::from([(7, (&row, slot))]);
        let trace = |link, line: &str| Trace { link, id: 5, lines: vec![line.to_owned()] };
        let mut traces = HashMap::from([(7, vec![trace(0, "other"), trace(1, "here")])]);

        let found = entry(&request(Some(Sent { serial: 7, link: 1, id: 5 })), &slots, &mut traces);
        assert_eq!((found.worker, found.pid, found.thread), (Some(2), Some(70), Some(3)));
        assert_eq!((found.queue_ms, found.state), (2.5, RequestPhase::App));
        assert_eq!(found.backtrace, Some(vec!["here".to_owned()]));

        let ahead = entry(&request(Some(Sent { serial: 7, link: 1, id: 6 })), &slots, &mut traces);
        assert_eq!((ahead.worker, ahead.thread, ahead.state), (Some(2), None, RequestPhase::Queued));
        let queued = entry(&request(None), &slots, &mut traces);
        assert_eq!(
            (queued.worker, queued.pid, queued.state, queued.backtrace),
            (None, None, RequestPhase::Queued, None)
        );
        assert!(queued.queue_ms > 0.0 && queued.queue_ms <= queued.age_ms);
        let lost = entry(&request(Some(Sent { serial: 8, link: 1, id: 5 })), &slots, &mut traces);
        assert_eq!((lost.worker, lost.state), (None, RequestPhase::Queued));
    }
}
