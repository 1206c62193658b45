//! Tells what the cache would answer if it was on, from the requests that are looked at closely: one of 16, at random.
//!
//! Contract:
//! 1. The same rules as those of the cache ([`crate::storable`]) decide whether a response could be kept.
//! 2. A request counts as a hit only if an equal one among those looked at had such a response that is still fresh. So there would be at least as
//!    many hits in all: equal requests that were not looked at do not count.
//! 3. At most [`MOST`] URLs are remembered, and nothing else of a request. A response that varies by anything but the coding is no hit.

use crate::key;
use crate::policy::Policy;
use crate::storable::judge;
use handler::{Request, Response};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// The most URLs that are remembered.
const MOST: usize = 1_024;

/// The URLs of one front thread.
pub struct Forecast {
    policy: Policy,
    state: RandomState,
    /// Until when a response would be fresh, by the hash of its key.
    fresh: RefCell<HashMap<u64, Instant>>,
}

impl Forecast {
    pub fn new(policy: Policy) -> Forecast {
        Forecast { policy, state: RandomState::new(), fresh: RefCell::default() }
    }

    /// Returns whether the cache would have answered the request; `None`: it could not keep the response.
    pub fn would_hit(&self, request: &Request, response: &Response) -> Option<bool> {
        self.would_hit_at(request, response, Instant::now())
    }

    fn would_hit_at(&self, request: &Request, response: &Response, now: Instant) -> Option<bool> {
        if request.method() != b"GET" {
            return None;
        }
        let plan = judge(request, response, &self.policy, SystemTime::now()).ok()?;
        let lifetime = if plan.directives.no_cache { Duration::ZERO } else { plan.lifetime.duration() };
        let varies = plan.vary.iter().any(|name| !name.eq_ignore_ascii_case(b"accept-encoding"));
        if lifetime.is_zero() || varies {
            return None;
        }
        let mut key = Vec::new();
        key::write(request, self.policy.sort_query, &mut key);
        let key = self.state.hash_one(&key);
        let mut fresh = self.fresh.borrow_mut();
        if fresh.get(&key).is_some_and(|until| *until > now) {
            return Some(true);
        }
        if fresh.len() >= MOST {
            fresh.retain(|_, until| *until > now);
        }
        if fresh.len() < MOST {
            let until = now.checked_add(lifetime).unwrap_or(now);
            fresh.insert(key, until);
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::request;
    use handler::{Body, Fields};

    fn response(fields: &[(&str, &str)]) -> Response {
        let mut all = Fields::default();
        fields.iter().for_each(|(name, value)| all.push(name.as_bytes(), value.as_bytes()));
        Response::new(200, all, Body::Bytes("page".into()))
    }

    #[test]
    fn an_equal_request_within_the_lifetime_would_be_a_hit() {
        let (forecast, now) = (Forecast::new(Policy::default()), Instant::now());
        let kept = response(&[("cache-control", "public, max-age=60"), ("vary", "Accept-Encoding")]);
        let at = |path: &str, seconds| {
            forecast.would_hit_at(&request("GET", path, &[]), &kept, now + Duration::from_secs(seconds))
        };
        assert_eq!(
            [at("/a", 0), at("/a", 59), at("/b", 59), at("/a?x", 59)],
            [Some(false), Some(true), Some(false), Some(false)]
        );
        assert_eq!([at("/a", 61), at("/a", 100)], [Some(false), Some(true)], "stale, and fresh again");
        (0..2 * MOST).for_each(|n| assert_eq!(at(&format!("/n{n}"), 101), Some(false)));
        assert!(forecast.fresh.borrow().len() <= MOST);
    }

    #[test]
    fn what_may_not_be_kept_is_no_hit() {
        let forecast = Forecast::new(Policy::default());
        for fields in [
            &[][..],
            &[("cache-control", "private, max-age=60")],
            &[("cache-control", "public, no-cache"), ("etag", "\"1\"")],
            &[("cache-control", "public, max-age=60"), ("set-cookie", "a=b")],
            &[("cache-control", "public, max-age=60"), ("vary", "Accept-Language")],
        ] {
            for _ in 0..2 {
                let (request, response) = (request("GET", "/", &[]), response(fields));
                assert_eq!(forecast.would_hit(&request, &response), None, "{fields:?}");
            }
        }
    }
}
