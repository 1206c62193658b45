//! Chooses requests: only their samples remain.

use profile::{Profile, ProfileSample, Request};
use regex::Regex;

#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) path: Option<Regex>,
    pub(crate) route: Option<String>,
    /// The share of the slowest requests, of those chosen by the others.
    pub(crate) slowest: Option<f64>,
}

impl Choice {
    pub(crate) fn is_everything(&self) -> bool {
        self.path.is_none() && self.route.is_none() && self.slowest.is_none()
    }

    /// Drops the samples of other requests.
    pub(crate) fn apply(&self, profile: Profile) -> Profile {
        if self.is_everything() {
            return profile;
        }
        let is_meant = |request: &Request| {
            self.path.as_ref().is_none_or(|path| path.is_match(&request.path))
                && self.route.as_ref().is_none_or(|route| request.route == *route)
        };
        let meant: Vec<bool> = profile.requests.iter().map(is_meant).collect();
        let limit_ms = self.slowest.map(|share| limit_ms(&profile, &meant, share));
        let is_slow =
            |request: &Request| limit_ms.is_none_or(|limit| request.ms.is_some_and(|ms| ms >= limit));
        let is_chosen = |sample: &ProfileSample| {
            sample.request.is_some_and(|at| {
                let at = at as usize;
                meant.get(at) == Some(&true) && profile.requests.get(at).is_some_and(is_slow)
            })
        };
        let samples = profile.samples.iter().copied().filter(is_chosen).collect();
        Profile { samples, ..profile }
    }
}

/// Returns the time from which on a request is among the slowest. Requests without samples are quick, and count.
fn limit_ms(profile: &Profile, meant: &[bool], share: f64) -> f64 {
    let pairs = profile.requests.iter().zip(meant);
    let mut times: Vec<f64> =
        pairs.filter(|(_, meant)| **meant).filter_map(|(request, _)| request.ms).collect();
    times.sort_by(|a, b| b.total_cmp(a));
    let all = if meant.iter().all(|meant| *meant) {
        profile.workers.iter().map(|worker| worker.requests as usize).sum::<usize>().max(times.len())
    } else {
        // How many requests without samples would have been chosen is unknown.
        times.len()
    };
    let count = ((all as f64 * share).ceil() as usize).max(1);
    times.get(count - 1).or(times.last()).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{State, WorkerPart};

    fn profile() -> Profile {
        let request = |ms: u32| Request {
            path: format!("/{}", ms % 2),
            route: format!("r{}", ms % 2),
            ms: Some(ms.into()),
            ..Request::default()
        };
        let sample = |at| ProfileSample { stack: None, state: State::Runs, request: Some(at), us: 1 };
        Profile {
            workers: vec![WorkerPart { requests: 1_000, ..WorkerPart::default() }],
            requests: (1..=100).map(request).collect(),
            samples: (0..100).map(sample).chain([ProfileSample { request: None, ..sample(0) }]).collect(),
            ..Profile::default()
        }
    }

    fn chosen(choice: &Choice) -> Vec<u32> {
        choice.apply(profile()).samples.iter().filter_map(|sample| sample.request).map(|at| at + 1).collect()
    }

    #[test]
    fn requests_are_chosen_by_path_route_and_time() {
        assert_eq!(Choice::default().apply(profile()).samples.len(), 101);
        let odd = Choice { path: Some(Regex::new("^/1$").unwrap()), ..Choice::default() };
        assert_eq!(chosen(&odd).len(), 50);
        let route = Choice { route: Some("r0".to_owned()), ..Choice::default() };
        assert!(chosen(&route).iter().all(|ms| ms % 2 == 0));
        // One per cent of all 1,000 requests, most of which have no samples.
        let slowest = Choice { slowest: Some(0.01), ..Choice::default() };
        assert_eq!(chosen(&slowest), (91..=100).collect::<Vec<_>>());
        let slow_and_odd = Choice { slowest: Some(0.02), ..odd };
        assert_eq!(chosen(&slow_and_odd), [99]);
    }
}
