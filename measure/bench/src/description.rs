//! The description of a run in the output and in the JSON document.

use load::scenario::{ConnectTo, Protocol, Request, Transport};
use serde::{Deserialize, Serialize};

/// The most URLs listed.
const URLS: usize = 20;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The first URLs.
    pub urls: Vec<String>,
    pub url_count: usize,
    /// Method of the first request.
    pub method: String,
    /// Host of the first request.
    pub host: String,
    /// The port of that host.
    pub port: u16,
    /// Path and query of the first request.
    pub path: String,
    /// The length of its body in bytes.
    pub body_bytes: u64,
    /// The load model.
    pub traffic: Traffic,
    /// The number of users in a closed model, else the most connections.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// Processes of the load generator; 0 means one.
    #[serde(default, skip_serializing_if = "is_single")]
    pub workers: usize,
    /// Requested duration.
    pub duration_s: Option<f64>,
    /// Requested number of requests.
    pub requests: Option<u64>,
    /// Requested number of requests per user.
    pub rounds: Option<u64>,
    pub warm_up_s: f64,
    /// Time limit for a response.
    pub timeout_ms: f64,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    pub keep_alive: bool,
    /// The most concurrent requests per connection.
    pub depth: usize,
    /// The target of connections, if it is not the URL's host.
    pub connect_to: Option<String>,
    /// The file of a journey and its number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journey: Option<(String, usize)>,
}

/// The load model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "lowercase")]
pub(crate) enum Traffic {
    /// Users who wait for responses.
    Closed {
        /// The think time as given.
        think: Option<String>,
    },
    /// Requests at a rate.
    Open {
        /// The rate as given.
        rate: String,
        /// Whether arrivals are random (Poisson) instead of even.
        random: bool,
    },
    /// Requests from a log.
    Replay {
        /// The speed as given.
        speed: String,
        /// The time from the first request to the last.
        lasting_s: f64,
    },
}

impl Traffic {
    /// Combines the traffic of two concurrent sets of runs, whose rates add up. `runs` and `others` are the
    /// numbers of runs in each set.
    pub fn join(&mut self, runs: usize, other: &Traffic, others: usize) {
        if let (Traffic::Open { rate, .. }, Traffic::Open { rate: more, .. }) = (self, other) {
            let one = single(rate, runs);
            *rate = if one == single(more, others) {
                format!("{} x {one}", runs + others)
            } else {
                format!("{rate} + {more}")
            };
        }
    }
}

/// Returns the rate of one of several equal runs: `3 x 500/s` is three of `500/s`.
fn single(rate: &str, runs: usize) -> String {
    rate.strip_prefix(&format!("{runs} x ")).unwrap_or(rate).to_owned()
}

fn is_single(workers: &usize) -> bool {
    *workers < 2
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic::Closed { think: None }
    }
}

impl Description {
    pub fn describe_requests(&mut self, shown: &[String], requests: &[Request]) {
        self.url_count = requests.len();
        self.urls = shown.iter().take(URLS).cloned().collect();
        if let Some(first) = requests.first() {
            self.method.clone_from(&first.method);
            self.host.clone_from(&first.origin.host);
            self.port = first.origin.port;
            self.path.clone_from(&first.target);
            self.body_bytes = first.body.len() as u64;
        }
    }

    /// Describes the steps of a journey as one target.
    pub fn describe_journey(&mut self, file: &str, steps: usize) {
        self.journey = Some((file.to_owned(), steps));
        self.url_count = 1;
    }

    pub fn describe_transport(&mut self, transport: &Transport) {
        (self.protocol, self.keep_alive, self.depth) = match transport.protocol {
            Protocol::Http1 { keep_alive, pipeline } => ("HTTP/1.1".to_owned(), keep_alive, pipeline),
            Protocol::Http2 { streams } => ("HTTP/2".to_owned(), true, streams),
            Protocol::Http3 { streams } => ("HTTP/3".to_owned(), true, streams),
        };
        self.connect_to = transport.to.as_ref().map(|to| match to {
            ConnectTo::Tcp(address) => address.to_string(),
            ConnectTo::Unix(path) => format!("unix:{}", path.display()),
        });
    }

    /// Adds the processes of another run.
    pub fn join_workers(&mut self, others: usize) {
        if self.workers.max(others) > 1 {
            self.workers = self.workers.max(1) + others.max(1);
        }
    }

    /// Returns the base of `Outcome::busy`, such as `its one thread`.
    pub fn generator(&self) -> String {
        match (self.workers, self.threads) {
            (2.., _) => format!("the busiest of its {} processes", self.workers),
            (_, 1) => "its one thread".to_owned(),
            (_, threads) => format!("its {threads} threads"),
        }
    }

    /// Returns whether users wait for each response.
    pub fn is_closed(&self) -> bool {
        matches!(self.traffic, Traffic::Closed { .. })
    }

    /// Returns the target in one line.
    pub fn target(&self) -> String {
        let first = self.urls.first().cloned().unwrap_or_default();
        match self.url_count {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }

    /// Returns the load as a sentence without the final period.
    pub fn sentence(&self) -> String {
        let connections = self.connections;
        let how = match &self.traffic {
            Traffic::Open { rate, random } if self.journey.is_some() => {
                let how = if *random { "with Poisson arrivals" } else { "evenly spaced" };
                format!("{rate} journeys begun, {how}; at most {connections} users at once")
            }
            Traffic::Closed { .. } if self.journey.is_some() => {
                let users =
                    if connections == 1 { "one user".to_owned() } else { format!("{connections} users") };
                format!("{users}, one journey after the other")
            }
            Traffic::Closed { think: None } if connections == 1 => {
                "one user, sending the next request after the previous response".to_owned()
            }
            Traffic::Closed { think: None } => {
                format!("{connections} users, each sending the next request after the previous response")
            }
            Traffic::Closed { think: Some(think) } => {
                format!("{connections} users, each pausing ({think}) between response and next request")
            }
            Traffic::Open { rate, random } => {
                let how = if *random { "with Poisson arrivals" } else { "evenly spaced" };
                format!("{rate}, {how}, regardless of responses; at most {connections} connections")
            }
            Traffic::Replay { speed, .. } => {
                format!(
                    "recorded requests with their gaps, at {speed} speed; at most {connections} connections"
                )
            }
        };
        let travel = match (self.protocol.as_str(), self.keep_alive, self.depth) {
            (protocol, false, _) => format!("{protocol}, a new connection per request"),
            (protocol, true, 1) => protocol.to_owned(),
            (protocol, true, depth) => format!("{protocol}, {depth} concurrent requests per connection"),
        };
        let from = match self.workers {
            0 | 1 => String::new(),
            workers => format!("; from {workers} processes"),
        };
        let journey = match &self.journey {
            Some((file, steps)) => format!("; journey {file} of {steps} steps"),
            None => String::new(),
        };
        format!("{how}; {travel}{journey}{from}")
    }

    /// Returns the name of the load model.
    pub fn model(&self) -> &'static str {
        match self.traffic {
            Traffic::Closed { .. } => "closed model",
            Traffic::Open { .. } => "open model",
            Traffic::Replay { .. } => "replay, an open model",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_and_added_up() {
        let mut one = crate::samples::description();
        let alone = one.sentence();
        one.join_workers(0);
        assert_eq!((one.workers, one.generator().as_str()), (0, "its one thread"));
        one.workers = 4;
        one.join_workers(0);
        assert_eq!(one.sentence(), format!("{alone}; from 5 processes"));
        assert_eq!(one.generator(), "the busiest of its 5 processes");
    }

    #[test]
    fn rates_of_merged_runs() {
        let open = |rate: &str| Traffic::Open { rate: rate.to_owned(), random: false };
        let mut all = open("500/s");
        all.join(1, &open("500/s"), 1);
        assert_eq!(all, open("2 x 500/s"));
        all.join(2, &open("3 x 500/s"), 3);
        assert_eq!(all, open("5 x 500/s"));
        all.join(5, &open("10/s"), 1);
        assert_eq!(all, open("5 x 500/s + 10/s"));
    }
}
