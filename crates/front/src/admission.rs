//! How many connections are open in all front threads, and what happens when there are too many.
//!
//! Contract:
//! 1. Up to `max_connections` are admitted. Beyond that each new one replaces the connection that has been idle for the
//!    longest time on its own thread, else on another. It is refused only if no thread has an idle one.
//! 2. While the replaced connection closes, both count: for a moment more than `max_connections` may be open.
//! 3. Below the limit, admitting costs one atomic addition.

use net::descriptors::Held;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// For how long a thread that had no idle connection is not asked again.
const RETRY: Duration = Duration::from_millis(10);
/// How long another thread may take to reply.
const REPLY: Duration = Duration::from_secs(1);

/// Asks a thread to close an idle connection; it replies when it does, and drops this if it has none.
pub(crate) type CloseIdle = oneshot::Sender<()>;

/// The connections of all front threads.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    open: AtomicUsize,
    threads: Mutex<Vec<Thread>>,
}

#[derive(Debug)]
struct Thread {
    index: u16,
    requests: mpsc::UnboundedSender<CloseIdle>,
    /// When it last had no idle connection.
    without: Option<Instant>,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Admission>, Held);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    /// Adds a front thread; it must serve the requests it receives.
    pub(crate) fn join(&self, index: u16) -> mpsc::UnboundedReceiver<CloseIdle> {
        let (requests, received) = mpsc::unbounded_channel();
        self.threads().push(Thread { index, requests, without: None });
        received
    }

    /// Counts a connection as open; whether there was room for it.
    pub(crate) fn count(self: &Arc<Self>, max: usize) -> (Admitted, bool) {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        (Admitted(self.clone(), Held::begin()), before < max)
    }

    /// Asks the other threads to close an idle connection; whether one does.
    pub(crate) async fn close_elsewhere(&self, own: u16) -> bool {
        let now = Instant::now();
        let others: Vec<_> = self
            .threads()
            .iter()
            .filter(|thread| thread.index != own)
            .filter(|thread| thread.without.is_none_or(|at| now.saturating_duration_since(at) >= RETRY))
            .map(|thread| (thread.index, thread.requests.clone()))
            .collect();
        for (index, requests) in others {
            let (reply, replied) = oneshot::channel();
            if requests.send(reply).is_ok()
                && matches!(tokio::time::timeout(REPLY, replied).await, Ok(Ok(())))
            {
                return true;
            }
            let mut threads = self.threads();
            if let Some(thread) = threads.iter_mut().find(|thread| thread.index == index) {
                thread.without = Some(Instant::now());
            }
        }
        false
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_until_they_are_dropped() {
        let admission = Arc::new(Admission::default());
        let (first, room) = admission.count(2);
        let (_second, also_room) = admission.count(2);
        let (third, no_room) = admission.count(2);
        assert!(room && also_room && !no_room);
        drop((first, third));
        assert!(admission.count(2).1);
    }

    #[test]
    fn other_threads_are_asked_once_in_a_while() {
        let admission = Arc::new(Admission::default());
        let (own, mut other) = (admission.join(0), admission.join(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let serve = async {
                other.recv().await.unwrap().send(()).unwrap();
                drop(other.recv().await.unwrap());
                other
            };
            let ask = async {
                assert!(admission.close_elsewhere(0).await);
                assert!(!admission.close_elsewhere(0).await, "it has no idle connection");
                assert!(!admission.close_elsewhere(0).await, "it is not asked again at once");
            };
            let (mut other, ()) = tokio::join!(serve, ask);
            assert!(other.try_recv().is_err());
        });
        drop(own);
    }
}
