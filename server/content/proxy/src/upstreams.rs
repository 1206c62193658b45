//! Tracks the origins of a reverse proxy and their health, for all front threads.
//!
//! Contract:
//! 1. An origin that has failed [`FAILURES`] times in a row gets no requests for [`OUT`], then one as a
//!    probe. This is a preference: if all have failed, they are used anyway.
//! 2. An origin that closes a connection without a complete response may do so because of the request. So
//!    this counts once per client address: one client alone cannot take an origin out.
//! 3. An origin whose health checks fail gets no requests.

use crate::resolve::Addresses;
use crate::via::Pseudonym;
use crate::{Balance, Origin, ProxyConfig, tls};
use handler::Peer;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row after which an origin gets no requests for a while.
const FAILURES: u32 = 3;
/// How long a failed origin gets no requests.
const OUT: Duration = Duration::from_secs(10);

/// The origins of a reverse proxy with their configuration, health and counters.
pub struct Upstreams {
    pub(crate) config: ProxyConfig,
    pub(crate) origins: Vec<OriginState>,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) via: Pseudonym,
    turn: AtomicUsize,
    started: Instant,
}

pub(crate) struct OriginState {
    pub(crate) origin: Origin,
    pub(crate) addresses: Addresses,
    active: AtomicUsize,
    failed_in_a_row: AtomicU32,
    /// The clients whose requests count in `failed_in_a_row` because the origin closed the connection.
    closed_for: Mutex<Vec<Option<IpAddr>>>,
    /// Milliseconds since `started` until which it gets no requests; 0 if it may.
    out_until: AtomicU64,
    /// The result of active health checks.
    sick: AtomicBool,
    requests: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginCounts {
    /// The origin as written.
    pub origin: String,
    /// Requests in progress, tunnels included.
    pub active: usize,
    /// Requests sent to the origin.
    pub requests: u64,
    /// Failed requests.
    pub failures: u64,
    /// The origin gets requests now.
    pub available: bool,
}

/// Why there is no origin for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoOrigin {
    /// The health checks of all origins fail.
    AllSick,
    /// All have been tried.
    AllTried,
}

impl Upstreams {
    /// Creates the shared state of the origins.
    ///
    /// # Errors
    /// There is no origin, or certificates for TLS cannot be read. The text begins with the configuration's name.
    pub fn new(config: ProxyConfig) -> Result<Arc<Upstreams>, String> {
        if config.origins.is_empty() {
            return Err(format!("{}: no origin is given; name at least one", config.name));
        }
        let tls = match config.origins.iter().any(Origin::is_tls) {
            true => Some(tls::client_config(&config).map_err(|why| format!("{}: {why}", config.name))?),
            false => None,
        };
        Ok(Arc::new(Upstreams::prepared(config, tls, Pseudonym::of_proxy())))
    }

    /// Like `new`, with a given TLS configuration and name.
    pub(crate) fn prepared(
        config: ProxyConfig,
        tls: Option<Arc<rustls::ClientConfig>>,
        via: Pseudonym,
    ) -> Upstreams {
        let origins = config.origins.iter().cloned().map(OriginState::new).collect();
        Upstreams { config, origins, tls, via, turn: AtomicUsize::new(0), started: Instant::now() }
    }

    pub fn config(&self) -> &ProxyConfig {
        &self.config
    }

    /// Returns the counters, in the order of the configuration.
    pub fn counts(&self) -> Vec<OriginCounts> {
        let now = self.now();
        let count = |state: &OriginState| OriginCounts {
            origin: state.origin.to_string(),
            active: state.active.load(Relaxed),
            requests: state.requests.load(Relaxed),
            failures: state.failures.load(Relaxed),
            available: !state.sick.load(Relaxed) && !state.is_out(now),
        };
        self.origins.iter().map(count).collect()
    }

    /// Chooses an origin for a request that has failed at `tried`.
    pub(crate) fn pick(&self, tried: &[usize]) -> Result<usize, NoOrigin> {
        let count = self.origins.len();
        if count == 1 {
            return match self.origins[0].sick.load(Relaxed) {
                true => Err(NoOrigin::AllSick),
                false if tried.is_empty() => Ok(0),
                false => Err(NoOrigin::AllTried),
            };
        }
        let now = self.now();
        let first = self.turn.fetch_add(1, Relaxed);
        let in_turn = (0..count).map(|i| (first.wrapping_add(i)) % count);
        let healthy = in_turn.filter(|&i| !tried.contains(&i) && !self.origins[i].sick.load(Relaxed));
        let mut candidates: Vec<usize> = healthy.collect();
        if self.config.balance == Balance::LeastConnections {
            candidates.sort_by_key(|&i| self.origins[i].active.load(Relaxed));
        }
        let chosen =
            candidates.iter().find(|&&i| self.origins[i].is_in_or_claimed(now)).or(candidates.first());
        match chosen {
            Some(&chosen) => Ok(chosen),
            None if tried.is_empty() => Err(NoOrigin::AllSick),
            None => Err(NoOrigin::AllTried),
        }
    }

    /// Counts a request at an origin until the guard is dropped.
    pub(crate) fn count(self: &Arc<Upstreams>, origin: usize) -> Active {
        self.origins[origin].active.fetch_add(1, Relaxed);
        self.origins[origin].requests.fetch_add(1, Relaxed);
        Active { upstreams: self.clone(), origin }
    }

    /// Records a response of the origin.
    pub(crate) fn succeeded(&self, origin: usize) {
        let state = &self.origins[origin];
        if state.failed_in_a_row.load(Relaxed) != 0 {
            state.failed_in_a_row.store(0, Relaxed);
            state.closed_for.lock().unwrap_or_else(PoisonError::into_inner).clear();
            state.out_until.store(0, Relaxed);
        }
    }

    /// Records that the origin could not be reached, or has not responded properly.
    pub(crate) fn failed(&self, origin: usize) {
        let state = &self.origins[origin];
        state.failures.fetch_add(1, Relaxed);
        self.count_in_a_row(origin);
    }

    /// Records that the origin has closed a connection before the response to a request of `peer` was complete.
    pub(crate) fn closed(&self, origin: usize, peer: &Peer) {
        let state = &self.origins[origin];
        state.failures.fetch_add(1, Relaxed);
        let client = peer.remote.ip();
        let mut closed_for = state.closed_for.lock().unwrap_or_else(PoisonError::into_inner);
        if closed_for.len() < FAILURES as usize && !closed_for.contains(&client) {
            closed_for.push(client);
            self.count_in_a_row(origin);
        }
    }

    fn count_in_a_row(&self, origin: usize) {
        let state = &self.origins[origin];
        if state.failed_in_a_row.fetch_add(1, Relaxed) + 1 >= FAILURES {
            state.out_until.store(self.now() + OUT.as_millis() as u64, Relaxed);
        }
    }

    /// Sets the result of health checks.
    pub(crate) fn checked(&self, origin: usize, healthy: bool) {
        self.origins[origin].sick.store(!healthy, Relaxed);
    }

    /// Returns milliseconds since `started`; at least 1.
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }
}

impl OriginState {
    fn new(origin: Origin) -> OriginState {
        OriginState {
            addresses: Addresses::new(&origin),
            origin,
            active: AtomicUsize::new(0),
            failed_in_a_row: AtomicU32::new(0),
            closed_for: Mutex::default(),
            out_until: AtomicU64::new(0),
            sick: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    fn is_out(&self, now: u64) -> bool {
        self.out_until.load(Relaxed) > now
    }

    /// Returns whether the origin may get a request. If its pause has just ended, it may get one, which this
    /// call claims.
    fn is_in_or_claimed(&self, now: u64) -> bool {
        let until = self.out_until.load(Relaxed);
        until == 0
            || (until <= now
                && self
                    .out_until
                    .compare_exchange(until, now + OUT.as_millis() as u64, Relaxed, Relaxed)
                    .is_ok())
    }
}

/// A guard: a request counts as in progress until it is dropped.
pub(crate) struct Active {
    upstreams: Arc<Upstreams>,
    origin: usize,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.upstreams.origins[self.origin].active.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_from;

    fn upstreams(count: usize, balance: Balance) -> Arc<Upstreams> {
        let origins = (0..count).map(|i| Origin::parse(&format!("http://127.0.0.1:{}", 1000 + i)).unwrap());
        Upstreams::new(ProxyConfig { balance, ..ProxyConfig::new("test", origins.collect()) }).unwrap()
    }

    #[test]
    fn origins_take_turns() {
        let three = upstreams(3, Balance::RoundRobin);
        let picked: Vec<_> = (0..6).map(|_| three.pick(&[]).unwrap()).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        assert_eq!(three.pick(&[0, 1]), Ok(2));
        assert_eq!(three.pick(&[0, 1, 2]), Err(NoOrigin::AllTried));
        let one = upstreams(1, Balance::RoundRobin);
        assert_eq!((one.pick(&[]), one.pick(&[0])), (Ok(0), Err(NoOrigin::AllTried)));
    }

    #[test]
    fn the_least_busy_is_preferred() {
        let three = upstreams(3, Balance::LeastConnections);
        let busy = [three.count(0), three.count(0), three.count(1)];
        assert!((0..5).all(|_| three.pick(&[]) == Ok(2)));
        drop(busy);
        three.turn.store(1, Relaxed);
        assert_eq!(three.pick(&[]), Ok(1), "equals take turns");
        assert_eq!(
            three.counts()[0],
            OriginCounts {
                origin: "http://127.0.0.1:1000".into(),
                active: 0,
                requests: 2,
                failures: 0,
                available: true
            }
        );
    }

    #[test]
    fn who_fails_is_left_out_for_a_while_and_then_tried_once() {
        let two = upstreams(2, Balance::RoundRobin);
        for _ in 0..FAILURES {
            two.failed(0);
        }
        assert!((0..4).all(|_| two.pick(&[]) == Ok(1)) && !two.counts()[0].available);
        assert_eq!(two.pick(&[1]), Ok(0), "better than none");
        two.origins[0].out_until.store(1, Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        let picked: Vec<_> = (0..4).map(|_| two.pick(&[]).unwrap()).collect();
        assert_eq!(picked.iter().filter(|&&i| i == 0).count(), 1, "one request to see whether it is back");
        two.succeeded(0);
        assert!((0..2).any(|_| two.pick(&[]) == Ok(0)));
        let one = upstreams(1, Balance::RoundRobin);
        (0..9).for_each(|_| one.failed(0));
        assert_eq!(one.pick(&[]), Ok(0), "there is no other");
    }

    #[test]
    fn one_client_alone_does_not_take_an_origin_out() {
        let two = upstreams(2, Balance::RoundRobin);
        let peer = |last: u8| request_from(Some(&format!("192.0.2.{last}:5")), "GET", "/", &[]).peer;
        (0..20).for_each(|_| two.closed(0, &peer(1)));
        assert!(two.counts()[0].available && two.counts()[0].failures == 20);
        two.closed(0, &peer(2));
        two.succeeded(0);
        two.closed(0, &peer(3));
        two.closed(0, &peer(4));
        assert!(two.counts()[0].available, "not in a row");
        two.closed(0, &peer(5));
        assert!(!two.counts()[0].available);
        two.succeeded(0);
        two.closed(0, &peer(1));
        (0..FAILURES - 1).for_each(|_| two.failed(0));
        assert!(!two.counts()[0].available, "what is the origin's own fault counts");
    }

    #[test]
    fn the_sick_get_nothing() {
        let two = upstreams(2, Balance::RoundRobin);
        two.checked(0, false);
        assert!((0..4).all(|_| two.pick(&[]) == Ok(1)));
        assert_eq!(two.pick(&[1]), Err(NoOrigin::AllTried));
        two.checked(1, false);
        assert_eq!(two.pick(&[]), Err(NoOrigin::AllSick));
        two.checked(0, true);
        assert_eq!(two.pick(&[]), Ok(0));
    }

    #[test]
    fn mistakes_name_the_configuration() {
        let none = Upstreams::new(ProxyConfig::new("proxies \"/api\"", vec![]));
        assert!(none.err().unwrap().starts_with("proxies \"/api\": no origin"));
        let origin = Origin::parse("https://localhost").unwrap();
        let mut config = ProxyConfig::new("proxies \"/\"", vec![origin]);
        config.tls_ca = Some("/nonexistent.pem".into());
        assert!(Upstreams::new(config).err().unwrap().contains("/nonexistent.pem"));
    }
}
