//! The figures of `/metrics` that `/stats` does not have: sums, and the load of the last seconds.

use crate::figures::{Figures, Page, figures};
use crate::load::{Load, RecentLoad};
use crate::puma::PumaStatus;
use crate::server::{ServerSnapshot, WorkerState};

figures! {
    pub struct Scrape {
        /// Versions.
        build: Build = part,
        /// 1 while [`/ready`](health.md) returns 200.
        ready: bool = gauge("firebrick_ready"; "Whether the server wants requests, as /ready says"),
        /// Memory of all workers. PSS can be added up. The template counts towards the front.
        pss_bytes: u64 = gauge("firebrick_memory_pss_bytes", process = "workers"),
        /// Resident memory of all workers.
        rss_bytes: u64 = gauge("firebrick_memory_rss_bytes", process = "workers"),
        /// Workers that are starting.
        workers_booting: usize = gauge("firebrick_workers", state = "booting"; "Worker processes by what they are at"),
        /// Workers that take requests.
        workers_ready: usize = gauge("firebrick_workers", state = "ready"),
        /// Workers that finish their last requests.
        workers_draining: usize = gauge("firebrick_workers", state = "draining"),
        /// The load now.
        load: Load = part,
        /// `firebrick_requests_in_flight` divided by `firebrick_seats`, averaged over the last 15 s; with
        /// `fiber_paths` that of threads or of fibers, whichever is greater.
        saturation: f64 = gauge(
            "firebrick_saturation";
            "Requests for the app, waiting ones included, divided by seats, in the last 15 seconds; above 1 they wait"
        ),
        /// Puma's figures; null without workers.
        puma: Option<PumaSums> = part,
    }

    pub struct Build [version = |it| it.version.clone(), ruby = |it| it.ruby.clone(), rack = |it| it.rack.clone()] {
        version: String,
        ruby: String,
        rack: String,
        /// Always 1.
        value: u32 = gauge("firebrick_build_info"; "What runs; always 1"),
    }

    /// The metrics of the gems that read Puma's stats, so that existing dashboards and alerts keep working.
    pub struct PumaSums {
        workers: usize = gauge("puma_workers"; "As Puma's: workers"),
        booted: usize = gauge("puma_booted_workers"; "As Puma's: workers that have booted"),
        old: usize = gauge("puma_old_workers"; "As Puma's: workers of an earlier phase"),
        sum: PumaStatus = part,
    }
}

impl Scrape {
    /// Returns the figures of a server. `recent`: the load of the last seconds.
    pub fn of(server: &ServerSnapshot, recent: &RecentLoad, ready: bool) -> Scrape {
        let (load, workers) = (Load::of(server), &server.workers);
        let count = |state| workers.iter().filter(|worker| worker.state == state).count();
        Scrape {
            build: Build {
                version: server.version.clone(),
                ruby: format!("{} {}", server.ruby.engine, server.ruby.version).trim().to_owned(),
                rack: server.rack.clone(),
                value: 1,
            },
            ready,
            pss_bytes: server.total_pss_bytes().saturating_sub(server.pss_bytes),
            rss_bytes: server.total_rss_bytes().saturating_sub(server.rss_bytes),
            workers_booting: count(WorkerState::Booting),
            workers_ready: count(WorkerState::Ready),
            workers_draining: count(WorkerState::Draining),
            saturation: recent.saturation().unwrap_or_else(|| load.saturation()),
            load,
            puma: (!workers.is_empty()).then(|| PumaSums {
                workers: workers.len(),
                booted: workers.iter().filter(|worker| worker.is_booted()).count(),
                old: workers.iter().filter(|worker| worker.phase != server.phase).count(),
                sum: server.puma_sum(),
            }),
        }
    }
}

/// Writes all metrics of a server.
pub fn metrics(server: &ServerSnapshot, recent: &RecentLoad, ready: bool, page: &mut dyn Page) {
    server.metrics(&[], page);
    Scrape::of(server, recent, ready).metrics(&[], page);
}
