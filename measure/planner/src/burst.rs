//! The effect of a burst of simultaneous requests.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Simultaneous requests.
    pub requests: u64,
    /// Requests answered in time.
    pub answered: u64,
    /// Queueing time of the last request that is answered or cut off.
    pub last_wait_ms: f64,
    /// Response time of that request.
    pub last_answer_ms: f64,
    /// Time until the queue is back to normal, while other requests keep arriving; `None`: never.
    pub drained_ms: Option<f64>,
    /// Requests that find the backlog full, on a server that does not accept connections while it is busy.
    pub refused_by_backlog: u64,
    /// Requests that the router gives up on, if none are refused.
    pub cut_off_by_router: u64,
}

/// The instance that receives a burst.
#[derive(Debug, Clone, Copy)]
pub struct Instance {
    /// Requests in service at once.
    pub in_hand: u64,
    /// Highest throughput in requests per second.
    pub capacity_per_s: f64,
    /// Requests per second that arrive besides the burst.
    pub rate_per_s: f64,
    /// Mean time in the app.
    pub response_ms: f64,
    /// Length of the accept backlog.
    pub backlog: u64,
    pub router_timeout_ms: f64,
}

impl Burst {
    /// Returns the effect of `requests` simultaneous requests on an instance under its usual load. The values
    /// are means, not bounds: the queue advances by one request every 1/capacity.
    pub fn of(requests: u64, at: &Instance) -> Burst {
        let each_ms = 1_000.0 / at.capacity_per_s;
        let spare = at.capacity_per_s - at.rate_per_s;
        let waiting = requests.saturating_sub(at.in_hand);
        let last_wait_ms = waiting as f64 * each_ms;
        // Requests that start early enough for their responses to arrive before the router's time-out.
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

    const INSTANCE: Instance = Instance {
        in_hand: 1,
        capacity_per_s: 100.0,
        rate_per_s: 20.0,
        response_ms: 10.0,
        backlog: 1_024,
        router_timeout_ms: 30_000.0,
    };

    #[test]
    fn a_small_burst_is_served() {
        let burst = Burst::of(501, &INSTANCE);
        assert_eq!(
            (burst.last_wait_ms, burst.last_answer_ms, burst.drained_ms),
            (5_000.0, 5_010.0, Some(6_262.5))
        );
        assert_eq!((burst.refused_by_backlog, burst.cut_off_by_router, burst.answered), (0, 0, 501));
    }

    #[test]
    fn a_large_burst_is_refused_or_cut_off() {
        let burst = Burst::of(5_000, &INSTANCE);
        assert_eq!(burst.refused_by_backlog, 5_000 - 1 - 1_024);
        assert_eq!(burst.cut_off_by_router, 5_000 - 3_000);
        let slow = Instance { response_ms: 31_000.0, ..INSTANCE };
        assert_eq!(Burst::of(10, &slow).answered, 0);
        assert_eq!(Burst::of(10, &Instance { rate_per_s: 100.0, ..INSTANCE }).drained_ms, None);
        assert_eq!(Burst::of(0, &INSTANCE).answered, 0);
    }
}
