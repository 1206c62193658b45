//! Which settings of a new release take effect without a restart.

use settings::{Mruby, Pool, Route, Settings, Sites};

/// Returns warnings of changes of pools that need a restart.
pub(super) fn takes_restart(now: &Settings, fresh: &Settings) -> Vec<String> {
    let is_in = |pools: &[Pool], name: &str| pools.iter().any(|pool| pool.name == name);
    let added = fresh.pools.iter().filter(|pool| !is_in(&now.pools, &pool.name)).map(|pool| {
        let (what, paths) = (called(pool), pool.paths_text());
        format!(
            "{what} ({paths}) takes effect only after a restart, because the running server has no such pool"
        )
    });
    let removed = now.pools.iter().filter(|pool| !is_in(&fresh.pools, &pool.name)).map(|pool| {
        let (what, paths) = (called(pool), pool.paths_text());
        let still = if pool.fibers > 0 { "fibers still serve" } else { "its workers still serve" };
        format!("without {what} a restart is needed: {still} {paths}")
    });
    let changed = now.pools.iter().filter_map(|pool| {
        let other = fresh.pools.iter().find(|other| other.name == pool.name)?;
        let what = match other {
            other if (other.fibers > 0) != (pool.fibers > 0) => "threads or fibers",
            other if other.threads != pool.threads => "threads",
            other if other.fibers != pool.fibers => "fibers",
            other if other.max_queue != pool.max_queue => "limits.max_queue",
            _ => return None,
        };
        Some(format!("{what} of the pool {} takes effect only after a restart", pool.name))
    });
    added.chain(removed).chain(changed).collect()
}

/// Returns the users' name of the setting that creates a pool.
fn called(pool: &Pool) -> String {
    if pool.name == Pool::FIBERS { "fiber_paths".to_owned() } else { format!("pools.{}", pool.name) }
}

/// Merges the pools: which there are, their threads, fibers and the lengths of their queues stay.
fn pools(now: &[Pool], fresh: &[Pool]) -> Vec<Pool> {
    let merged = |pool: &Pool| match fresh.iter().find(|other| other.name == pool.name) {
        None => pool.clone(),
        Some(other) => {
            Pool { threads: pool.threads, fibers: pool.fibers, max_queue: pool.max_queue, ..other.clone() }
        }
    };
    now.iter().map(merged).collect()
}

/// Merges the settings in force with those of `fresh` that can change at run time: the options that the table marks as `reloadable`.
/// Whole sections follow the mark automatically.
pub(super) fn merge(now: &Settings, fresh: Settings) -> Settings {
    Settings {
        pools: pools(&now.pools, &fresh.pools),
        dir: fresh.dir,
        typed_dir: fresh.typed_dir,
        app: fresh.app,
        puma_rb: fresh.puma_rb,
        // The machine decides, with the pools in force: the supervisor follows it.
        workers: match fresh.workers_auto {
            Some(_) if fresh.workers_auto == now.workers_auto => now.workers,
            _ => fresh.workers,
        },
        workers_auto: fresh.workers_auto,
        shape: fresh.shape,
        // These sections merge each option by its mark in the table.
        process: fresh.process.reloaded(&now.process),
        https: fresh.https.reloaded(&now.https),
        limits: fresh.limits.reloaded(&now.limits),
        timeouts: fresh.timeouts.reloaded(&now.timeouts),
        rack: fresh.rack.reloaded(&now.rack),
        reload: fresh.reload.reloaded(&now.reload),
        compression: fresh.compression.reloaded(&now.compression),
        cache: fresh.cache.reloaded(&now.cache),
        maintenance: fresh.maintenance.reloaded(&now.maintenance),
        logs: fresh.logs.reloaded(&now.logs),
        stats: fresh.stats.reloaded(&now.stats),
        traces: fresh.traces.reloaded(&now.traces),
        health: fresh.health.reloaded(&now.health),
        shared: fresh.shared.reloaded(&now.shared),
        // In these sections options depend on each other; the tests compare them with the table.
        files: fresh.files,
        sites: Sites {
            pages: fresh.sites.pages.reloaded(&now.sites.pages),
            cache: fresh.sites.cache.reloaded(&now.sites.cache),
            ..fresh.sites
        },
        mruby: Mruby { routes: routes(&now.mruby, fresh.mruby), ..now.mruby.clone() },
        queue: fresh.queue,
        sendfile: fresh.sendfile,
        services: fresh.services,
        rate_limits: fresh.rate_limits,
        ..now.clone()
    }
}

/// Merges the settings in force with those of `fresh` that a running server changes at once (`firebrick set`). Everything
/// that belongs to the files of a release, or to its workers, stays.
pub(super) fn at_once(now: &Settings, fresh: Settings) -> Settings {
    let merged = merge(now, fresh);
    let now = now.clone();
    // With an objective, `workers` is only the beginning: in development it may be a range then.
    let (workers, workers_auto) = match now.shape.is_some() == merged.shape.is_some() {
        true => (now.workers, now.workers_auto),
        false => (merged.workers, merged.workers_auto),
    };
    // Pools take their times and turns from the settings of all, unless the file has others for them.
    let timed = |pool: Pool| match merged.pools.iter().find(|other| other.name == pool.name) {
        Some(other) => Pool { queue: other.queue, worker: other.worker, fair: other.fair.clone(), ..pool },
        None => pool,
    };
    Settings {
        dir: now.dir,
        typed_dir: now.typed_dir,
        app: now.app,
        puma_rb: now.puma_rb,
        workers,
        workers_auto,
        files: now.files,
        sites: now.sites,
        mruby: now.mruby,
        sendfile: now.sendfile,
        services: now.services,
        rate_limits: now.rate_limits,
        pools: now.pools.into_iter().map(timed).collect(),
        // In these sections there are options that only a reload applies.
        limits: merged.limits.changed_at_once(&now.limits),
        timeouts: merged.timeouts.changed_at_once(&now.timeouts),
        rack: merged.rack.changed_at_once(&now.rack),
        compression: merged.compression.changed_at_once(&now.compression),
        ..merged
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
