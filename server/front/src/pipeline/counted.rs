//! Collects the facts about a request that has ended, for the statistics.

use handler::{Answered, Ending, Fault, PlacedRemarks, Request};
use stats::{Finished, RouteKind, RouteOf};
use std::time::Duration;

/// Returns the facts about a request. `route`: the app's name for what it is for; `remarks`: remarks about it.
#[inline]
pub(super) fn request<'a>(
    ending: &Ending<'a>,
    route: Option<&'a str>,
    remarks: Option<&'a PlacedRemarks>,
) -> Finished<'a> {
    let (trace, worker) = (ending.trace, ending.trace.worker.get() != 0);
    let cached = trace.answered.get() == Answered::Cache;
    let (queue_us, app_us) = (trace.queue_us.get(), trace.app_us.get());
    Finished {
        status: ending.status,
        body_bytes: ending.body_bytes,
        queue_us: worker.then_some(queue_us),
        app_us: worker.then_some(app_us),
        sampled: trace.measure.get(),
        cpu_us: trace.cpu_us.get(),
        gvl_us: trace.gvl_us.get(),
        total_us: micros(ending.ended.saturating_duration_since(ending.started)),
        sending_us: trace.asked.get().filter(|_| worker && !ending.hijacked).map_or(0, |asked| {
            let since = micros(ending.ended.saturating_duration_since(asked));
            let own = since.saturating_sub(u64::from(queue_us) + u64::from(app_us));
            u32::try_from(own).unwrap_or(u32::MAX)
        }),
        used: trace.used.get(),
        remarks,
        would_hit: trace.would_hit.get(),
        route: if worker || cached {
            of_app(route, ending.request)
        } else {
            RouteOf::Kind(kind(trace.answered.get()))
        },
        cached,
        failed: ending.failure.is_some_and(|failure| failure.fault != Fault::Client),
        hijacked: ending.hijacked,
    }
}

#[inline]
fn of_app<'a>(route: Option<&'a str>, request: Option<&'a Request>) -> RouteOf<'a> {
    match (route, request) {
        (Some(name), _) => RouteOf::Named(name),
        (None, Some(request)) => RouteOf::Path { method: request.method(), path: request.path() },
        (None, None) => RouteOf::Kind(RouteKind::Other),
    }
}

fn kind(answered: Answered) -> RouteKind {
    match answered {
        Answered::File => RouteKind::File,
        Answered::Handler => RouteKind::Handler,
        Answered::Proxy => RouteKind::Proxy,
        Answered::Server | Answered::Cache => RouteKind::Server,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
