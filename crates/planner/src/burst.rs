//! What happens when many requests come at once.

use serde::{Deserialize, Serialize};

/// A burst at one instance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Requests that come at once.
    pub requests: u64,
    /// Of them answered in time.
    pub answered: u64,
    /// Wait of the last that is answered or cut off, until it is taken up.
    pub last_wait_ms: f64,
    /// And until its answer.
    pub last_answer_ms: f64,
    /// Until the queue is as it was before, with the usual requests coming in meanwhile; `None`: never.
    pub drained_ms: Option<f64>,
    /// What finds the backlog full where a server does not accept connections while it is busy.
    pub refused_by_backlog: u64,
    /// What a router gives up on, when nothing is refused.
    pub cut_off_by_router: u64,
}

/// What one instance is to a burst.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    /// Requests that are in hand at once.
    pub in_hand: u64,
    /// Requests per second that it can take.
    pub capacity_per_s: f64,
    /// Those that come anyway.
    pub rate_per_s: f64,
    /// Mean time in the app.
    pub response_ms: f64,
    /// Connections that wait outside.
    pub backlog: u64,
    /// Patience of the router.
    pub router_timeout_ms: f64,
}

impl Burst {
    /// `requests` at once at an instance that is at its usual work. Means, not bounds: the queue moves one place each
    /// 1/capacity.
    pub fn of(requests: u64, at: &Front) -> Burst {
        let each_ms = 1_000.0 / at.capacity_per_s;
        let spare = at.capacity_per_s - at.rate_per_s;
        let waiting = requests.saturating_sub(at.in_hand);
        let last_wait_ms = waiting as f64 * each_ms;
        // Taken up before the router gives up, and with time enough for the answer.
        let in_time = ((at.router_timeout_ms - at.response_ms) / each_ms).floor();
        let in_time = if in_time >= 0.0 { (in_time as u64).saturating_add(at.in_hand) } else { 0 };
        let answered = requests.min(in_time);
        Burst {
            requests,
            answered,
            last_wait_ms,
            last_answer_ms: last_wait_ms + at.response_ms,
            drained_ms: (spare > 0.0).then(|| requests as f64 * 1_000.0 / spare),
            refused_by_backlog: waiting.saturating_sub(at.backlog),
            cut_off_by_router: requests - answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: Front = Front {
        in_hand: 1,
        capacity_per_s: 100.0,
        rate_per_s: 20.0,
        response_ms: 10.0,
        backlog: 1_024,
        router_timeout_ms: 30_000.0,
    };

    #[test]
    fn a_small_burst_is_served() {
        let burst = Burst::of(501, &FRONT);
        assert_eq!(
            (burst.last_wait_ms, burst.last_answer_ms, burst.drained_ms),
            (5_000.0, 5_010.0, Some(6_262.5))
        );
        assert_eq!((burst.refused_by_backlog, burst.cut_off_by_router, burst.answered), (0, 0, 501));
    }

    #[test]
    fn a_large_one_is_refused_or_cut_off() {
        let burst = Burst::of(5_000, &FRONT);
        assert_eq!(burst.refused_by_backlog, 5_000 - 1 - 1_024);
        assert_eq!(burst.cut_off_by_router, 5_000 - 3_000);
        let slow = Front { response_ms: 31_000.0, ..FRONT };
        assert_eq!(Burst::of(10, &slow).answered, 0);
        assert_eq!(Burst::of(10, &Front { rate_per_s: 100.0, ..FRONT }).drained_ms, None);
        assert_eq!(Burst::of(0, &FRONT).answered, 0);
    }
}
