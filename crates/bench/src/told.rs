//! What was asked of a run, as it is told to people and to those who read the JSON.

use load::plan::{Place, Protocol, Request, Transport};
use serde::{Deserialize, Serialize};

/// As many URLs are told.
const URLS: usize = 20;

/// What was asked of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// The first URLs.
    pub urls: Vec<String>,
    /// How many there were.
    pub url_count: usize,
    /// Method of the first request.
    pub method: String,
    /// Host of the first request.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its path and query.
    pub path: String,
    /// Length of its body.
    pub body_bytes: u64,
    /// When requests were sent.
    pub traffic: Traffic,
    /// Users in a closed model, else connections at most.
    pub connections: usize,
    /// Threads of the load generator.
    pub threads: usize,
    /// What the run was to end after, as far as it was said.
    pub duration_s: Option<f64>,
    /// The same in requests.
    pub requests: Option<u64>,
    /// The same in requests of each user.
    pub rounds: Option<u64>,
    /// Not counted before.
    pub warm_up_s: f64,
    /// How long an answer might take.
    pub timeout_ms: f64,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// Whether connections were kept.
    pub keep_alive: bool,
    /// Requests under way on each connection.
    pub depth: usize,
    /// Where connections went to, if not where the URL says.
    pub connect_to: Option<String>,
}

/// When requests were sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "lowercase")]
pub(crate) enum Traffic {
    /// Users who wait for answers.
    Closed {
        /// As it was given.
        think: Option<String>,
    },
    /// A rate.
    Open {
        /// As it was given.
        rate: String,
        /// Poisson instead of even.
        random: bool,
    },
    /// A log.
    Replay {
        /// As it was given.
        speed: String,
        /// From the first request to the last.
        lasting_s: f64,
    },
}

impl Traffic {
    /// Takes in what another run sent at the same time: rates add up. `runs` and `others` say of how many runs each is.
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

/// The rate of each of some runs that were alike: `3 x 500/s` is three of `500/s`.
fn single(rate: &str, runs: usize) -> String {
    rate.strip_prefix(&format!("{runs} x ")).unwrap_or(rate).to_owned()
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic::Closed { think: None }
    }
}

impl Told {
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

    pub fn describe_transport(&mut self, transport: &Transport) {
        (self.protocol, self.keep_alive, self.depth) = match transport.protocol {
            Protocol::Http1 { keep_alive, pipeline } => ("HTTP/1.1".to_owned(), keep_alive, pipeline),
            Protocol::Http2 { streams } => ("HTTP/2".to_owned(), true, streams),
        };
        self.connect_to = transport.to.as_ref().map(|place| match place {
            Place::Tcp(address) => address.to_string(),
            Place::Unix(path) => format!("unix:{}", path.display()),
        });
    }

    /// Whether users waited for each answer.
    pub fn is_closed(&self) -> bool {
        matches!(self.traffic, Traffic::Closed { .. })
    }

    /// Whom it was about, in one line.
    pub fn whom(&self) -> String {
        let first = self.urls.first().cloned().unwrap_or_default();
        match self.url_count {
            0 | 1 => first,
            count => format!("{first} and {} more", count - 1),
        }
    }

    /// What was done, in a sentence without its end.
    pub fn sentence(&self) -> String {
        let connections = self.connections;
        let how = match &self.traffic {
            Traffic::Closed { think: None } if connections == 1 => {
                "one user who asks again as soon as there is an answer".to_owned()
            }
            Traffic::Closed { think: None } => {
                format!("{connections} users, each of whom asks again as soon as there is an answer")
            }
            Traffic::Closed { think: Some(think) } => {
                format!("{connections} users, each of whom pauses ({think}) before asking again")
            }
            Traffic::Open { rate, random } => {
                let how = if *random { "at random distances" } else { "at even distances" };
                format!("{rate}, {how}, whether or not answers come; at most {connections} connections")
            }
            Traffic::Replay { speed, .. } => {
                format!("an access log with its gaps, at {speed} speed; at most {connections} connections")
            }
        };
        let travel = match (self.protocol.as_str(), self.keep_alive, self.depth) {
            (protocol, false, _) => format!("{protocol}, a new connection for each request"),
            (protocol, true, 1) => protocol.to_owned(),
            (protocol, true, depth) => format!("{protocol}, {depth} requests at once on each connection"),
        };
        format!("{how}; {travel}")
    }

    /// Name of the model, for those who know it.
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
    fn rates_of_joined_runs() {
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
