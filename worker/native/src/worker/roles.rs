//! The roles of a worker's threads.
//!
//! When there is more than one thread (docs/internals/wire.md knows nothing of this):
//! 1. At most one thread is the *leader*: only it waits for the links and reads them.
//! 2. A leader that takes up a request gives up leadership. If recent requests were slow, or most of them
//!    waited off the processor (for a database, say: another thread can run meanwhile), it makes an idle
//!    thread the leader at once. Otherwise it serves the requests of the batch alone, because waking another
//!    thread costs more than a fast request. One idle thread, the *standby*, checks after
//!    [`super::place::STANDBY_AFTER`] whether a request is slow, and then becomes the leader.
//! 3. All other idle threads sleep until they are woken. An idle worker causes no wake-ups.
//!
//! A thread that serves with fibers takes several requests at a time, so leadership is decided when its loop
//! starts and stops waiting.

use super::{Worker, WorkerPhase};
use crate::link::Job;
use crate::raw::os;

/// The next action of a serving thread, or of the loop of one that serves with fibers.
pub(crate) enum Step {
    Run(Job, Help),
    /// Requests were discarded, and the front must get a report, though there is no other work.
    Send,
    Collect,
    /// Wait for the links and read them; a loop that has ready fibers only looks.
    Read,
    /// Wait without reading the links; a loop that has ready fibers does not wait.
    Sleep,
    Stop,
}

/// The action that keeps the links being read while the thread serves a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Help {
    None,
    /// Start one more thread, with this index.
    Spawn(usize),
    /// Set the standby's timer.
    SetTimer,
}

impl Worker {
    /// Decides what thread `me` does next. `can_take`: it can serve a request now, as each thread can that
    /// has no fibers.
    #[inline]
    pub(crate) fn step(&mut self, me: usize, now_us: u64, can_take: bool) -> Step {
        if self.is_finished() {
            return Step::Stop;
        }
        if can_take {
            let waiting = self.inbox.len();
            if let Some((job, help)) = self.take(me, now_us) {
                return Step::Run(job, help);
            }
            if waiting > 0 {
                return Step::Send;
            }
        } else if !self.inbox.is_empty() {
            self.appoint();
        }
        if self.phase == WorkerPhase::Drains && self.active == 0 {
            self.finish();
            return Step::Stop;
        }
        if self.active == 0 && std::mem::take(&mut self.collect) {
            return Step::Collect;
        }
        let leads = match self.leader {
            Some(leader) => leader == me,
            // The standby of a leader that is serving a request, and may be back soon.
            None => !self.place.is_standby(me),
        };
        if !leads {
            return Step::Sleep;
        }
        self.lead(me);
        Step::Read
    }

    /// Takes up the next request that has not been returned, for thread `me`.
    #[inline]
    pub(crate) fn take(&mut self, me: usize, now_us: u64) -> Option<(Job, Help)> {
        while let Some(job) = self.inbox.pop_front() {
            if !self.links[job.link as usize].take_up() {
                job.discard();
                continue;
            }
            self.active += 1;
            self.place.watchdog.begun();
            let help = self.step_down(me, now_us);
            return Some((job, help));
        }
        None
    }

    pub(crate) fn lead(&mut self, me: usize) {
        self.leader = Some(me);
        self.place.is_led();
    }

    /// Makes thread `me` give up leadership, if it has it, before the app runs.
    #[inline]
    pub(crate) fn step_down(&mut self, me: usize, now_us: u64) -> Help {
        if self.leader == Some(me) {
            self.leader = None;
        }
        if self.leader.is_some() || self.options.threads_max == 1 {
            return Help::None;
        }
        if self.pace.needs_help() {
            return if self.appoint() { Help::None } else { self.more() };
        }
        self.place.is_leaderless(now_us);
        if !self.place.has_standby() {
            let Some(&chosen) = self.idle.last() else { return self.more() };
            self.place.choose_standby(chosen);
            self.tasks[chosen].thread.wakeup.wake();
        }
        if self.place.arm() { Help::SetTimer } else { Help::None }
    }

    /// Makes an idle thread the leader. Returns whether there was one.
    pub(crate) fn appoint(&mut self) -> bool {
        let Some(chosen) = self.idle.pop() else { return false };
        self.place.dismiss_standby(chosen);
        self.lead(chosen);
        self.tasks[chosen].thread.wake();
        true
    }

    fn more(&mut self) -> Help {
        if self.tasks.len() < self.options.threads_max { Help::Spawn(self.tasks.len()) } else { Help::None }
    }

    /// Records that thread `me` is about to sleep.
    pub(crate) fn sleeps(&mut self, me: usize) {
        self.idle.push(me);
    }

    /// Records that thread `me` is awake again. `stays_standby`: its loop of fibers woke for another reason,
    /// and waits again soon.
    pub(crate) fn awake(&mut self, me: usize, stays_standby: bool) {
        self.idle.retain(|&idle| idle != me);
        if !stays_standby {
            self.place.dismiss_standby(me);
        }
    }

    /// Records that the loop of thread `me` enters ready fibers and does not read the links meanwhile.
    pub(crate) fn fiber_works(&mut self, me: usize, now_us: u64) -> Help {
        self.place.dismiss_standby(me);
        if self.leader == Some(me) { self.step_down(me, now_us) } else { Help::None }
    }

    /// Registers a thread that serves nothing and waits for the front, as `guest`. Returns whether it has to
    /// read the links meanwhile.
    pub(crate) fn guest_leads(&mut self, guest: usize) -> bool {
        let leads = self.leader.is_none() && !self.appoint();
        if leads {
            self.lead(guest);
        }
        leads
    }

    /// Ends the guest's wait, and its leadership if it had it.
    pub(crate) fn guest_leaves(&mut self, guest: usize, now_us: u64) -> Help {
        if self.leader != Some(guest) {
            return Help::None;
        }
        self.leader = None;
        if self.appoint() { Help::None } else { self.step_down(guest, now_us) }
    }

    /// Returns whether the thread that reads the links has nothing else to wait for.
    pub(crate) fn only_reads(&self) -> bool {
        self.options.threads_max == 1
    }

    /// Marks the worker as finished and wakes all its threads.
    fn finish(&mut self) {
        self.phase = WorkerPhase::Finished;
        self.tasks.iter().for_each(|task| task.thread.wake());
    }

    /// Counts a thread that is about to start.
    pub(crate) fn thread_starts(&mut self) {
        self.attached.iter_mut().for_each(|attached| attached.threads += 1);
    }

    /// Records that a thread has ended. Returns whether the caller must start another in its place. For an
    /// attached worker this is left to [`Worker::take_killed`], because Ruby may be killing all threads in
    /// order to end the process.
    pub(crate) fn thread_ends(&mut self, me: usize) -> bool {
        self.awake(me, false);
        if self.leader == Some(me) {
            self.leader = None;
        }
        let finished = self.is_finished();
        match &mut self.attached {
            // The first thread is the process's main thread.
            None => !finished && me > 0,
            Some(attached) => {
                attached.threads -= 1;
                if !finished {
                    attached.killed.push(me);
                }
                if !finished || attached.threads == 0 {
                    os::ring(attached.bell);
                }
                false
            }
        }
    }

    /// Takes the list of an attached worker's threads that must be started again.
    pub(crate) fn take_killed(&mut self) -> Vec<usize> {
        let finished = self.is_finished();
        let attached = self.attached.as_mut().filter(|_| !finished);
        attached.map(|attached| std::mem::take(&mut attached.killed)).unwrap_or_default()
    }
}
