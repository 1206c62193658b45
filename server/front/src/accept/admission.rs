//! Counts the open connections of all front threads and of each address, and enforces the limits.
//!
//! Contract:
//! 1. Up to `max_connections` are admitted. Beyond that, each new connection displaces one of its own thread
//!    or of another (`room`). It is refused only if no thread has a connection to displace.
//! 2. Displaced connections count until they are closed. For a moment more than `max_connections` can be
//!    open, but never more than a quarter plus [`SLACK`] per thread above it.
//! 3. Below the limit, admitting costs one atomic addition.
//! 4. A connection counts for at most one address. An address never has more connections than the limit in
//!    force at that time.

use http::Rank;
use net::Subnet;
use net::descriptors::CountedDescriptor;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How many displaced connections of a thread can be closing at a time. More than a thread accepts in a turn.
const SLACK: usize = 256;
/// How long a thread without a connection of a rank is not asked again for one.
const RETRY: Duration = Duration::from_millis(10);
/// Time-out for another thread's reply.
const REPLY: Duration = Duration::from_secs(1);

/// Asks a thread to close a connection of this rank. The thread replies when it closes one, and drops this
/// message if it has none.
pub(crate) struct MakeRoom {
    pub(crate) rank: Rank,
    pub(crate) reply: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Admission {
    open: AtomicUsize,
    slack: AtomicUsize,
    threads: Mutex<Vec<Thread>>,
    addresses: Mutex<HashMap<Subnet, usize>>,
}

#[derive(Debug)]
struct Thread {
    index: u16,
    requests: mpsc::UnboundedSender<MakeRoom>,
    /// When the thread last had no connection of each rank.
    without: [Option<Instant>; Rank::ALL.len()],
}

/// The counters of a connection: the total, and that of its address.
#[derive(Debug)]
pub(crate) struct Tally {
    admission: Arc<Admission>,
    address: Option<Subnet>,
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(address) = self.address
            && let Entry::Occupied(mut count) = self.admission.addresses().entry(address)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Counts a connection as open until dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Tally>, CountedDescriptor);

impl Admitted {
    /// Counts the connection with the others of its client's address. Returns `false` if there are already
    /// `most` of them.
    pub(crate) fn count_address(&mut self, address: Subnet, most: usize) -> bool {
        if self.0.address.is_some() {
            return true;
        }
        let admission = self.0.admission.clone();
        {
            let mut addresses = admission.addresses();
            let count = addresses.entry(address).or_default();
            if *count >= most {
                if *count == 0 {
                    addresses.remove(&address);
                }
                return false;
            }
            *count += 1;
        }
        self.0 = Arc::new(Tally { admission, address: Some(address) });
        true
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.admission.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there is room for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Only if another connection is closed.
    Full,
    /// Too many connections are closing already.
    Overfull,
    /// The address has too many connections.
    OfAddress,
}

impl Admission {
    /// Adds a front thread. The thread must serve the requests that it receives.
    pub(crate) fn join(&self, index: u16) -> mpsc::UnboundedReceiver<MakeRoom> {
        let (requests, received) = mpsc::unbounded_channel();
        self.threads().push(Thread { index, requests, without: [None; Rank::ALL.len()] });
        self.slack.fetch_add(SLACK, Ordering::Relaxed);
        received
    }

    /// Returns the counters for a new connection of a thread.
    pub(crate) fn tally(self: &Arc<Self>) -> Arc<Tally> {
        Arc::new(Tally { admission: self.clone(), address: None })
    }

    /// Whether at most `max` connections are open.
    pub(crate) fn is_within(&self, max: usize) -> bool {
        self.open.load(Ordering::Relaxed) <= max
    }

    /// Asks the other threads to close a connection of this rank. Returns whether one does.
    pub(crate) async fn displace_elsewhere(&self, own: u16, rank: Rank) -> bool {
        let (now, place) = (Instant::now(), rank as usize);
        let others: Vec<_> = self
            .threads()
            .iter()
            .filter(|thread| thread.index != own)
            .filter(|thread| {
                thread.without[place].is_none_or(|at| now.saturating_duration_since(at) >= RETRY)
            })
            .map(|thread| (thread.index, thread.requests.clone()))
            .collect();
        for (index, requests) in others {
            let (reply, replied) = oneshot::channel();
            if requests.send(MakeRoom { rank, reply }).is_ok()
                && matches!(tokio::time::timeout(REPLY, replied).await, Ok(Ok(())))
            {
                return true;
            }
            let mut threads = self.threads();
            if let Some(thread) = threads.iter_mut().find(|thread| thread.index == index) {
                thread.without[place] = Some(Instant::now());
            }
        }
        false
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<Subnet, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    /// Counts a connection as open. Returns whether there was room for it.
    pub(crate) fn count(self: &Arc<Self>, max: usize) -> (Admitted, Room) {
        let before = self.admission.open.fetch_add(1, Ordering::Relaxed);
        let room = if before < max {
            Room::Free
        } else if before < max + max / 4 + self.admission.slack.load(Ordering::Relaxed) {
            Room::Full
        } else {
            Room::Overfull
        };
        (Admitted(self.clone(), CountedDescriptor::begin()), room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn connections_count_until_they_are_dropped() {
        let tally = Arc::new(Admission::default()).tally();
        let (first, room) = tally.count(2);
        let (_second, also_room) = tally.count(2);
        let (third, no_room) = tally.count(2);
        assert_eq!([room, also_room, no_room], [Room::Free, Room::Free, Room::Overfull]);
        drop((first, third));
        assert_eq!(tally.count(2).1, Room::Free);
    }

    #[test]
    fn what_leaves_has_a_ceiling() {
        let admission = Arc::new(Admission::default());
        let (_thread, tally) = (admission.join(0), admission.tally());
        let mut held: Vec<_> = (0..8).map(|_| tally.count(8)).collect();
        held.extend((0..2 + SLACK).map(|_| tally.count(8)));
        assert!(held.iter().skip(8).all(|(_, room)| *room == Room::Full) && !admission.is_within(8));
        assert_eq!(tally.count(8).1, Room::Overfull);
        held.truncate(8);
        assert!(admission.is_within(8));
    }

    #[test]
    fn an_address_has_a_ceiling_of_its_own() {
        let admission = Arc::new(Admission::default());
        let tally = admission.tally();
        let address = |last| Subnet::of(Some(Ipv4Addr::new(192, 0, 2, last).into()));
        let mut connections: Vec<_> = (0..4).map(|_| tally.count(9).0).collect();
        assert!(connections[0].count_address(address(1), 2) && connections[0].count_address(address(1), 2));
        assert!(connections[1].count_address(address(1), 2) && !connections[2].count_address(address(1), 2));
        assert!(connections[2].count_address(address(2), 2) && !connections[3].count_address(address(3), 0));
        assert_eq!(admission.addresses().len(), 2);
        connections.truncate(1);
        assert_eq!(admission.addresses().get(&address(1)), Some(&1));
        drop(connections);
        assert!(admission.addresses().is_empty() && admission.is_within(0));
    }

    #[test]
    fn other_threads_are_asked_once_in_a_while() {
        let admission = Arc::new(Admission::default());
        let (own, mut other) = (admission.join(0), admission.join(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let serve = async {
                other.recv().await.unwrap().reply.send(()).unwrap();
                drop(other.recv().await.unwrap());
                assert_eq!(other.recv().await.unwrap().rank, Rank::Stalled);
                other
            };
            let ask = async {
                assert!(admission.displace_elsewhere(0, Rank::Idle).await);
                assert!(!admission.displace_elsewhere(0, Rank::Idle).await, "it has no idle connection");
                assert!(!admission.displace_elsewhere(0, Rank::Idle).await, "it is not asked again at once");
                assert!(
                    !admission.displace_elsewhere(0, Rank::Stalled).await,
                    "it has none of that rank, either"
                );
            };
            let (mut other, ()) = tokio::join!(serve, ask);
            assert!(other.try_recv().is_err());
        });
        drop(own);
    }
}
