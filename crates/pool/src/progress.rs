//! Whether a worker makes progress with the requests that it was handed. Pure: observations and the time go in, decisions come out.
//!
//! A worker that was handed requests and takes none up is busy with others, keeps the GVL, or is stopped. From outside that looks the
//! same for a while, so the first decision costs nothing: it gets no more requests, and those it has not started go to
//! other workers. What follows depends on whether the process can run at all.
//!
//! Contract:
//! 1. A worker that has taken nothing up for [`SUSPEND_AFTER`], while requests wait in it or it does not resume after it has returned
//!    some, is suspended.
//! 2. It resumes as soon as it takes a request up or finishes one, or when it turns out that none waited in it.
//! 3. One whose process is stopped is frozen [`FROZEN_AFTER`] after it last made progress; one that runs, but does not use an idle
//!    thread, after `worker_timeout`: native code that keeps the GVL may take that long.
//! 4. So is one that is stopped while it serves all that it was handed: those requests would otherwise wait for their time-out.

use std::time::{Duration, Instant};

/// Time without progress after which the requests of a worker go to others.
pub const SUSPEND_AFTER: Duration = Duration::from_secs(1);
/// Time without progress after which a stopped process is killed.
pub const FROZEN_AFTER: Duration = Duration::from_secs(5);

/// What can be seen of a worker from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Requests that it was handed and has not finished.
    pub handed: u32,
    /// It has returned requests and not resumed (`RETURNED`, `RESUMED`).
    pub stalled: bool,
    /// Threads that serve a request.
    pub busy: u32,
    /// Most threads that it may have.
    pub threads: u32,
    /// Requests that it has ever taken up, and finished: a number that changes with each.
    pub work: u64,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing new.
    None,
    /// Give it no more requests, and withdraw those that it has not started.
    Suspend {
        /// A thread of it was idle.
        idle_thread: bool,
    },
    /// Give it requests again.
    Resume,
    /// Kill it.
    Freeze,
}

/// One worker's progress.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    work: u64,
    /// When it last made progress, or had nothing to make progress with.
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
    /// No request waited in the worker.
    fn is_needless(self) -> bool {
        self.outstanding == 0 && self.withdrawn == 0
    }
}

impl Progress {
    /// A worker that gets ready at `now`.
    pub fn new(now: Instant) -> Progress {
        Progress { work: 0, since: now, worked: now, suspended: None }
    }

    /// Whether it is suspended.
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Judges what is seen at `now`. `stopped`: whether its process is stopped; it is asked only about a worker that has had requests
    /// for a while and has made no progress.
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

    /// A front thread has withdrawn so many of its requests.
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

        /// What is decided `ms` later.
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
        // Slow, and not stopped.
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
