//! The state that all front threads and the supervisor share: the pools, a mailbox for each thread, the
//! scoreboard.

use crate::clients::Clients;
use crate::deaths::Deaths;
use crate::in_flight::InFlight;
use crate::messages::{Mailbox, SupervisorMessage, ThreadMessage};
use crate::pause::Pause;
use crate::scoreboard::Scoreboard;
use crate::shadow::Shadow;
use crate::trial::ReleaseComparison;
use net::memory;
use queue::{Assignment, Dispatch, PassReason, PoolIndex, Pools, Serial};
use settings::{Settings, ShapeRule};
use stats::ShadowReport;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use wire::Seats;
use wire::heap::HeapOrder;
use wire::scoreboard::{Layout, Slot};

/// Front threads never wait, so a thread that has not replied by then has ended.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// The state of the workers that all threads share.
#[derive(Debug)]
pub struct Shared {
    pools: Pools,
    pause: Pause,
    /// The seats of a worker, by pool.
    seats: Vec<Seats>,
    mailboxes: Vec<Mailbox>,
    reports: mpsc::UnboundedSender<SupervisorMessage>,
    scoreboard: Arc<Scoreboard>,
    deaths: Deaths,
    clients: Clients,
    comparison: ReleaseComparison,
    shadow: Shadow,
    wanted: AtomicUsize,
    /// Whether response times are compared with an objective.
    objective: AtomicBool,
    /// The longest wait of a request of the default pool under overload, in microseconds; 0: not limited.
    wait_limit_us: AtomicU64,
    /// Blocking calls in workers that have ended: their number and their total duration in microseconds.
    blocked: [AtomicU64; 2],
}

impl Shared {
    /// Creates the state of these pools, each with its queue and the seats of a worker, for `slots` workers
    /// in total and the given number of front threads.
    ///
    /// # Errors
    /// Memory for the scoreboard is not available.
    pub(crate) fn new(
        pools: Vec<(Dispatch, Seats)>,
        slots: usize,
        fronts: usize,
        reports: mpsc::UnboundedSender<SupervisorMessage>,
    ) -> io::Result<Shared> {
        let (queues, seats): (Vec<Dispatch>, Vec<Seats>) = pools.into_iter().unzip();
        // An objective may come with a reload, and lets workers have that many threads.
        let threads = seats.iter().map(|seats| seats.threads as usize).max().unwrap_or_default();
        let threads = threads.max(ShapeRule::THREADS.into());
        // A worker has one link for each front thread.
        let layout = Layout { threads, links: fronts };
        Ok(Shared {
            pause: Pause::new(queues.len()),
            pools: Pools::new(queues),
            seats,
            mailboxes: (0..fronts).map(|_| Mailbox::default()).collect(),
            reports,
            scoreboard: Arc::new(Scoreboard::new(slots, layout)?),
            deaths: Deaths::default(),
            clients: Clients::default(),
            comparison: ReleaseComparison::default(),
            shadow: Shadow::default(),
            wanted: AtomicUsize::new(0),
            objective: AtomicBool::new(false),
            wait_limit_us: AtomicU64::new(0),
            blocked: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Returns the pause of the app, which may be off.
    pub fn pause(&self) -> &Pause {
        &self.pause
    }

    /// Returns the queue of this pool; see [`Pools::of`]. While memory is full, it holds requests back:
    /// their responses would have no room. [`Shared::resume`] ends that.
    #[inline]
    pub fn dispatch(&self, pool: PoolIndex) -> MutexGuard<'_, Dispatch> {
        // This may measure the process, and tell others.
        memory::level();
        let mut queue = self.pools.of(pool);
        // Under the lock: who asks now is in the queue before [`Shared::resume`] looks into it.
        queue.hold_back(memory::holds_requests_back());
        queue
    }

    /// Gives free seats to requests that were held back, unless they still are.
    pub(crate) fn resume(&self) {
        for pool in self.pools.indexes() {
            let mut assigned = Vec::new();
            self.dispatch(pool).resume(Instant::now(), &mut assigned);
            self.deliver(&assigned);
        }
    }

    /// Calls `of` for the queue of each pool, one after the other, and returns the results; see [`Shared::dispatch`].
    pub fn each<R>(&self, mut of: impl FnMut(&mut Dispatch) -> R) -> impl Iterator<Item = R> {
        self.pools.indexes().map(move |pool| of(&mut self.dispatch(pool)))
    }

    /// Returns the pool for a request with this path, which is the app's PATH_INFO.
    #[inline]
    pub(crate) fn pool_of(&self, path: &[u8], settings: &Settings) -> PoolIndex {
        self.pools.choose(path, settings.pools.iter().map(|pool| pool.paths.as_slice()))
    }

    /// Returns the seats of a worker of this pool.
    #[inline]
    pub fn seats(&self, pool: PoolIndex) -> Seats {
        self.seats[usize::from(pool.0)]
    }

    /// Returns whether fibers serve any pool.
    pub(crate) fn has_fibers(&self) -> bool {
        self.seats.iter().any(|seats| seats.has_fibers())
    }

    /// Sends requests again to a worker that was passed over for this reason; see [`Dispatch::restore`].
    pub(crate) fn restore(&self, pool: PoolIndex, serial: Serial, reason: PassReason, now: Instant) {
        let mut assigned = Vec::new();
        self.dispatch(pool).restore(serial, reason, now, &mut assigned);
        self.deliver(&assigned);
    }

    /// Returns the part that identifies the clients of waiting requests.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Returns what is known of the releases while one is on trial.
    pub(crate) fn comparison(&self) -> &ReleaseComparison {
        &self.comparison
    }

    /// Returns the comparison of a new release in copies of requests.
    pub(crate) fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// Returns what the shadow of the last reload has found.
    pub fn differences(&self) -> Option<ShadowReport> {
        self.shadow.last()
    }

    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// Returns the blocking calls in workers that have ended: their number and their total duration in
    /// microseconds.
    pub fn blocked_before(&self) -> (u64, u64) {
        let [calls, us] = &self.blocked;
        (calls.load(Relaxed), us.load(Relaxed))
    }

    /// Adds the blocking calls of a worker that has ended.
    pub(crate) fn add_blocked(&self, slot: &Slot) {
        let [calls, us] = &self.blocked;
        calls.fetch_add(slot.blocking_calls, Relaxed);
        us.fetch_add(slot.blocked_us, Relaxed);
    }

    /// Compares the response times of the default pool with an objective from now on.
    pub(crate) fn set_objective(&self, objective: Option<Duration>) {
        self.dispatch(PoolIndex::DEFAULT).set_objective(objective);
        self.objective.store(objective.is_some(), Relaxed);
    }

    /// Returns whether response times are compared with an objective.
    #[inline]
    pub(crate) fn has_objective(&self) -> bool {
        self.objective.load(Relaxed)
    }

    /// Limits the requests that a worker of the default pool may hold; `None`: as many as it was started for.
    pub(crate) fn limit_seats(&self, seats: Option<u32>, now: Instant) {
        let mut assigned = Vec::new();
        self.dispatch(PoolIndex::DEFAULT).limit_seats(seats, now, &mut assigned);
        self.deliver(&assigned);
    }

    /// Limits the wait of requests of the default pool: those that have waited for longer do not begin.
    pub(crate) fn limit_wait(&self, limit: Option<Duration>) {
        let us = limit.map_or(0, |limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1));
        self.wait_limit_us.store(us, Relaxed);
    }

    /// Returns the longest wait of a request of this pool under overload.
    pub(crate) fn wait_limit(&self, pool: PoolIndex) -> Option<Duration> {
        let us = self.wait_limit_us.load(Relaxed);
        (us > 0 && pool == PoolIndex::DEFAULT).then(|| Duration::from_micros(us))
    }

    /// Returns the wanted number of workers; 0 before the first is started.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Relaxed)
    }

    pub(crate) fn set_wanted(&self, number: usize) {
        self.wanted.store(number, Relaxed);
    }

    pub(crate) fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[thread as usize]
    }

    /// Returns the number of front threads.
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn to_all(&self, message: impl Fn() -> ThreadMessage) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(message()));
    }

    /// Sends each thread its assignments.
    pub(crate) fn deliver(&self, assigned: &[Assignment]) {
        for assignment in assigned {
            self.mailbox(assignment.ticket.thread).post(ThreadMessage::Assigned(*assignment));
        }
    }

    pub(crate) fn report(&self, report: SupervisorMessage) {
        // Front threads end before the supervisor, except during the final shutdown, when reports no longer
        // matter.
        let _ = self.reports.send(report);
    }

    /// Returns up to `limit` requests in flight, the oldest first.
    pub async fn in_flight(&self, limit: usize) -> Vec<InFlight> {
        let (to, mut replies) = mpsc::unbounded_channel();
        self.to_all(|| ThreadMessage::List { limit, to: to.clone() });
        drop(to);
        let deadline = tokio::time::Instant::now() + REPLY_TIMEOUT;
        let mut all = Vec::new();
        while let Ok(Some(some)) = tokio::time::timeout_at(deadline, replies.recv()).await {
            all.extend(some);
        }
        all.sort_by_key(|one: &InFlight| one.asked_us);
        all.truncate(limit);
        all
    }

    /// Makes a worker describe its heap to the reader of `pipe`. Returns false if the worker is gone, or cannot fork.
    pub async fn describe_heap(&self, serial: Serial, order: HeapOrder, pipe: OwnedFd) -> bool {
        let (reply, sent) = oneshot::channel();
        self.mailbox(0).post(ThreadMessage::Heap { serial, order, pipe, reply });
        sent.await.unwrap_or(false)
    }

    pub fn scoreboard(&self) -> &Arc<Scoreboard> {
        &self.scoreboard
    }
}
