//! Limits the number of stream encoders per thread and per connection.
//!
//! Why: an encoder takes 0.4 to 3.6 MiB for as long as its client reads, and a client may leave a hundred
//! streams unread. When all permits are taken, a response gets another coding or is sent uncompressed, which
//! costs nothing. When memory is scarce, no encoder begins.

use super::Coding;
use handler::Peer;
use net::memory::{self, Level, MemoryClass, Reserved};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Places by coding, as in [`Coding::ALL`].
type Counts = [usize; 3];

/// Places per thread.
const OF_THREAD: Counts = [16, 32, 128];
/// The memory of an encoder, in bytes.
const COST: [u64; 3] = [3_600 << 10, 1_400 << 10, 400 << 10];
/// Places per connection.
const OF_CONNECTION: Counts = [2, 4, 16];

thread_local! {
    static TAKEN: RefCell<EncoderCounts> = RefCell::default();
}

#[derive(Default)]
struct EncoderCounts {
    all: Counts,
    /// By the address of the connection's `Peer`, which a permit keeps alive.
    by_connection: HashMap<*const Peer, Counts>,
}

/// The right to have an encoder until this is dropped.
pub struct EncoderPermit {
    coding: usize,
    connection: Rc<Peer>,
    _memory: Reserved,
}

impl EncoderPermit {
    /// Takes a permit for a response on the connection, if one is left. Identity needs none and gets none.
    pub fn take(coding: Coding, connection: &Rc<Peer>) -> Option<EncoderPermit> {
        let index = coding as usize;
        TAKEN.with_borrow_mut(|taken| {
            let all = taken.all.get_mut(index)?;
            if *all >= OF_THREAD[index] || memory::level() >= Level::Files {
                return None;
            }
            let own = &mut taken.by_connection.entry(Rc::as_ptr(connection)).or_default()[index];
            if *own >= OF_CONNECTION[index] {
                return None;
            }
            (*all, *own) = (*all + 1, *own + 1);
            Some(EncoderPermit {
                coding: index,
                connection: connection.clone(),
                _memory: Reserved::new(MemoryClass::Encoders, COST[index]),
            })
        })
    }
}

impl Drop for EncoderPermit {
    fn drop(&mut self) {
        let key = Rc::as_ptr(&self.connection);
        TAKEN.with_borrow_mut(|taken| {
            taken.all[self.coding] -= 1;
            if let Some(own) = taken.by_connection.get_mut(&key) {
                own[self.coding] -= 1;
                if *own == Counts::default() {
                    taken.by_connection.remove(&key);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connection;

    fn take(coding: Coding, connection: &Rc<Peer>, count: usize) -> Vec<EncoderPermit> {
        (0..count).map_while(|_| EncoderPermit::take(coding, connection)).collect()
    }

    #[test]
    fn a_connection_has_few_places_and_gets_them_back() {
        let (one, other) = (connection(), connection());
        for (coding, most) in Coding::ALL.into_iter().zip(OF_CONNECTION) {
            let permits = take(coding, &one, 200);
            assert_eq!(permits.len(), most);
            assert!(EncoderPermit::take(coding, &other).is_some());
            drop(permits);
            assert_eq!(take(coding, &one, 200).len(), most);
        }
        assert!(EncoderPermit::take(Coding::Identity, &one).is_none());
        assert!(TAKEN.with_borrow(|taken| taken.by_connection.is_empty() && taken.all == Counts::default()));
    }

    #[test]
    fn many_connections_share_the_places_of_their_thread() {
        let connections: Vec<_> = (0..100).map(|_| connection()).collect();
        for (coding, most) in Coding::ALL.into_iter().zip(OF_THREAD) {
            let permits: Vec<_> = connections.iter().flat_map(|one| take(coding, one, 200)).collect();
            assert_eq!(permits.len(), most);
        }
    }
}
