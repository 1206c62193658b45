//! Which settings of a new release take effect without a restart.

use settings::{Limits, Mruby, Rack, Route, Settings, Sites, Timeouts};

/// Returns a warning if the change of `fiber_paths` needs a restart.
pub(super) fn takes_restart(now: &Settings, fresh: &Settings) -> Option<String> {
    let text = |settings: &Settings| settings.fiber_paths_text().filter(|_| settings.fibers > 0);
    match (text(now), text(fresh)) {
        (None, Some(paths)) => Some(format!(
            "fiber_paths ({paths}) takes effect only after a restart, because the running workers do not have both threads and fibers"
        )),
        (Some(paths), None) => Some(format!(
            "without fiber_paths a restart is needed: fibers still serve {paths}, and threads all others"
        )),
        (None, None) | (Some(_), Some(_)) => None,
    }
}

/// Merges the settings in force with those of `fresh` that can change at run time: the options that the table marks as `reloadable`.
///
/// Whether workers have fibers beside threads (`fiber_paths`) determines their numbers of links and threads, which a reload cannot change.
pub(super) fn merge(now: &Settings, fresh: Settings) -> Settings {
    let stays = now.fiber_paths.is_empty() || fresh.fiber_paths.is_empty();
    Settings {
        fiber_paths: if stays { now.fiber_paths.clone() } else { fresh.fiber_paths },
        dir: fresh.dir,
        typed_dir: fresh.typed_dir,
        app: fresh.app,
        puma_rb: fresh.puma_rb,
        workers: fresh.workers,
        workers_auto: fresh.workers_auto,
        limits: Limits { max_queue: now.limits.max_queue, ..fresh.limits },
        timeouts: Timeouts {
            worker_boot: now.timeouts.worker_boot,
            shutdown: now.timeouts.shutdown,
            // A property of the listening sockets.
            tcp_keepalive: now.timeouts.tcp_keepalive,
            ..fresh.timeouts
        },
        rack: Rack {
            ruby: fresh.rack.ruby,
            yjit: fresh.rack.yjit,
            allocator: fresh.rack.allocator,
            warmup: fresh.rack.warmup,
            compact: fresh.rack.compact,
            out_of_band_gc: fresh.rack.out_of_band_gc,
            refork_after: fresh.rack.refork_after,
            fiber_slice: fresh.rack.fiber_slice,
            fiber_stack: fresh.rack.fiber_stack,
            blocking_call: fresh.rack.blocking_call,
            ..now.rack.clone()
        },
        reload: fresh.reload,
        files: fresh.files,
        sites: Sites { cache: now.sites.cache.clone(), ..fresh.sites },
        mruby: Mruby { routes: routes(&now.mruby, fresh.mruby), ..now.mruby.clone() },
        sendfile: fresh.sendfile,
        services: fresh.services,
        rate_limits: fresh.rate_limits,
        ..now.clone()
    }
}

/// Returns the handlers that `fresh` names, with the limits in force.
fn routes(now: &Mruby, fresh: Mruby) -> Vec<Route> {
    let limited = |route: Route| match now.routes.iter().find(|one| one.path == route.path) {
        Some(one) => Route { limits: one.limits.clone(), ..route },
        None => route,
    };
    fresh.routes.into_iter().map(limited).collect()
}

#[cfg(test)]
mod tests;
