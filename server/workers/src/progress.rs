//! Decides whether a worker makes progress with the requests that it was sent. Pure: takes observations and
//! the time, and returns decisions.
//!
//! A worker that does not take up its requests is busy with others, keeps the GVL, or is stopped. From
//! outside these look the same for a while, so the first decision costs nothing: the worker gets no more
//! requests, and those that it has not started go to other workers. The next decision depends on whether the
//! process can run at all.
//!
//! Contract:
//! 1. A worker is suspended if it has taken up nothing for [`SUSPEND_AFTER`], while requests wait in it or
//!    while it has returned requests and not resumed.
//! 2. It resumes as soon as it takes up or finishes a request, or when it turns out that no request waited in
//!    it.
//! 3. A suspended worker is killed if its process is stopped and it last made progress [`FROZEN_AFTER`] ago.
//!    If the process runs but does not use an idle thread, it is killed after `worker_timeout`, because
//!    native code that keeps the GVL may take that long.
//! 4. A worker that is stopped while it serves all of its requests is killed in the same way, because those
//!    requests would otherwise wait for their time-out.

use std::time::{Duration, Instant};

/// The time without progress after which the requests of a worker go to others.
pub const SUSPEND_AFTER: Duration = Duration::from_secs(1);
/// The time without progress after which a stopped process is killed.
pub const FROZEN_AFTER: Duration = Duration::from_secs(5);

/// The state of a worker as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Requests that it was sent and has not finished.
    pub handed: u32,
    /// Whether it has returned requests and not resumed (`RETURNED`, `RESUMED`).
    pub stalled: bool,
    /// The number of threads that serve a request.
    pub busy: u32,
    /// The largest number of threads that it may have.
    pub threads: u32,
    /// The number of requests ever taken up plus those finished; changes with each of them.
    pub work: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    None,
    /// Give the worker no more requests, and withdraw its unstarted ones.
    Suspend {
        /// Whether one of its threads was idle.
        idle_thread: bool,
    },
    /// Let the worker get requests again.
    Resume,
    /// Kill the worker.
    Freeze,
}

#[derive(Debug, Clone, Copy)]
pub struct Progress {
    work: u64,
    /// When it last made progress, or had no request to take up.
    since: Instant,
    /// When it last made progress, or had no request.
    worked: Instant,
    suspended: Option<Suspension>,
}

#[derive(Debug, Clone, Copy)]
struct Suspension {
    idle_thread: bool,
    /// Front threads that have not withdrawn their requests yet.
    outstanding: usize,
    withdrawn: usize,
}

impl Suspension {
    /// Returns whether no request waited in the worker.
    fn is_needless(self) -> bool {
        self.outstanding == 0 && self.withdrawn == 0
    }
}

impl Progress {
    /// Starts with a worker that becomes ready at `now`.
    pub fn new(now: Instant) -> Progress {
        Progress { work: 0, since: now, worked: now, suspended: None }
    }

    /// Judges an observation at `now`. `stopped` returns whether the process is stopped; it is called only
    /// for a worker that has had requests for a while without progress.
    pub fn observe(
        &mut self,
        seen: Observation,
        now: Instant,
        front_threads: usize,
        worker_timeout: Option<Duration>,
        stopped: impl FnOnce() -> bool,
    ) -> Decision {
        let worked = seen.work != self.work;
        self.work = seen.work;
        if worked {
            self.since = now;
        }
        if worked || seen.handed == 0 {
            self.worked = now;
        }
        let age = now.saturating_duration_since(self.since);
        match self.suspended {
            None if worked || (seen.handed <= seen.busy && !seen.stalled) => {
                self.since = now;
                let long = now.saturating_duration_since(self.worked) >= FROZEN_AFTER;
                if long && stopped() { Decision::Freeze } else { Decision::None }
            }
            None if age >= SUSPEND_AFTER => {
                let idle_thread = seen.busy < seen.threads;
                self.suspended = Some(Suspension { idle_thread, outstanding: front_threads, withdrawn: 0 });
                Decision::Suspend { idle_thread }
            }
            None => Decision::None,
            Some(suspension) if worked || (suspension.is_needless() && !seen.stalled) => {
                (self.suspended, self.since) = (None, now);
                Decision::Resume
            }
            Some(_) if age >= FROZEN_AFTER && stopped() => Decision::Freeze,
            Some(suspension)
                if suspension.idle_thread
                    && worker_timeout.is_some_and(|limit| age >= limit.max(FROZEN_AFTER)) =>
            {
                Decision::Freeze
            }
            Some(_) => Decision::None,
        }
    }

    /// Records that a front thread has withdrawn `count` of its requests.
    pub fn withdrawn(&mut self, count: usize) {
        if let Some(suspension) = &mut self.suspended {
            suspension.outstanding = suspension.outstanding.saturating_sub(1);
            suspension.withdrawn += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

    struct Scene {
        progress: Progress,
        now: Instant,
        stopped: bool,
        stalled: bool,
    }

    impl Scene {
        fn new() -> Scene {
            let now = Instant::now();
            Scene { progress: Progress::new(now), now, stopped: false, stalled: false }
        }

        /// Returns the decision `ms` later.
        fn after(&mut self, ms: u64, handed: u32, busy: u32, work: u64) -> Decision {
            self.now += Duration::from_millis(ms);
            let seen = Observation { handed, stalled: self.stalled, busy, threads: 5, work };
            self.progress.observe(seen, self.now, 1, TIMEOUT, || self.stopped)
        }

        fn suspended_with(withdrawn: usize) -> Scene {
            let mut scene = Scene::new();
            assert_eq!(scene.after(0, 1, 0, 0), Decision::None);
            assert_eq!(scene.after(1000, 1, 0, 0), Decision::Suspend { idle_thread: true });
            scene.progress.withdrawn(withdrawn);
            scene
        }
    }

    #[test]
    fn idle_and_busy_workers_are_left_alone() {
        let mut scene = Scene::new();
        for _ in 0..100 {
            assert_eq!(scene.after(1000, 0, 0, 0), Decision::None, "idle");
            assert_eq!(scene.after(1000, 5, 5, 0), Decision::None, "slow requests, none behind them");
        }
        for work in 1..100 {
            assert_eq!(scene.after(900, 9, 5, work), Decision::None, "slow requests follow each other");
        }
    }

    #[test]
    fn time_counts_from_the_request_that_is_not_taken_up() {
        let mut scene = Scene::new();
        assert_eq!(scene.after(60_000, 0, 0, 7), Decision::None);
        assert_eq!(scene.after(200, 1, 0, 7), Decision::None);
        assert_eq!(scene.after(600, 1, 0, 7), Decision::None);
        assert_eq!(scene.after(300, 1, 0, 7), Decision::Suspend { idle_thread: true });
    }

    #[test]
    fn it_resumes_when_it_works_again() {
        let mut scene = Scene::suspended_with(1);
        assert_eq!(scene.after(200, 0, 0, 0), Decision::None, "its requests are elsewhere");
        assert_eq!(scene.after(200, 0, 0, 1), Decision::Resume);
        assert_eq!(scene.after(200, 1, 0, 1), Decision::None);
    }

    #[test]
    fn it_resumes_when_nothing_waited_in_it() {
        let mut scene = Scene::suspended_with(0);
        assert_eq!(scene.after(200, 1, 0, 0), Decision::Resume);
    }

    #[test]
    fn a_worker_that_returned_requests_has_to_resume() {
        let mut scene = Scene::new();
        scene.stalled = true;
        scene.after(0, 1, 1, 0);
        assert_eq!(scene.after(1000, 1, 1, 0), Decision::Suspend { idle_thread: true });
        scene.progress.withdrawn(0);
        assert_eq!(scene.after(1000, 1, 1, 0), Decision::None);
        scene.stalled = false;
        assert_eq!(scene.after(200, 1, 1, 0), Decision::Resume);
    }

    #[test]
    fn a_stopped_process_is_frozen_soon() {
        let mut scene = Scene::suspended_with(1);
        scene.stopped = true;
        assert_eq!(scene.after(3900, 0, 0, 0), Decision::None);
        assert_eq!(scene.after(100, 0, 0, 0), Decision::Freeze);
    }

    #[test]
    fn a_process_that_is_stopped_while_it_serves_is_frozen_soon() {
        let mut scene = Scene::new();
        scene.stopped = true;
        assert_eq!(scene.after(60_000, 0, 0, 0), Decision::None, "it has nothing to do");
        assert_eq!(scene.after(1000, 2, 2, 1), Decision::None);
        assert_eq!(scene.after(4900, 2, 2, 1), Decision::None);
        assert_eq!(scene.after(100, 2, 2, 1), Decision::Freeze);
        // Slow, but not stopped.
        scene.stopped = false;
        assert_eq!(scene.after(60_000, 2, 2, 1), Decision::None);
    }

    #[test]
    fn a_process_that_runs_has_until_worker_timeout() {
        let mut scene = Scene::suspended_with(1);
        assert_eq!(scene.after(58_900, 0, 0, 0), Decision::None);
        assert_eq!(scene.after(100, 0, 0, 0), Decision::Freeze);
    }

    #[test]
    fn a_process_whose_threads_are_all_busy_is_not_frozen() {
        let mut scene = Scene::new();
        scene.after(0, 6, 5, 0);
        assert_eq!(scene.after(1000, 6, 5, 0), Decision::Suspend { idle_thread: false });
        scene.progress.withdrawn(1);
        assert_eq!(scene.after(600_000, 5, 5, 0), Decision::None, "that is for the time-out of its requests");
        assert_eq!(scene.after(200, 4, 4, 1), Decision::Resume);
    }
}
