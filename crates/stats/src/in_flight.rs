//! One request that is under way: what `GET /requests` returns.

use serde::{Deserialize, Serialize};

/// A request that went to the app and is not over for its worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Index of the worker that it was given to; `None` while it is in the queue.
    pub worker: Option<u32>,
    /// That worker's process id.
    pub pid: Option<u32>,
    /// The worker's thread that serves it, from 0; `None` while no thread has taken it up.
    pub thread: Option<u32>,
    /// Request method.
    pub method: String,
    /// Path as sent, without the query; bytes that are not ASCII text are escaped.
    pub path: String,
    /// Time since it was queued for a worker, in milliseconds.
    pub age_ms: f64,
    /// What it waited of that until a thread took it up, in milliseconds.
    pub queue_ms: f64,
    /// How far it is.
    pub state: Phase,
    /// Where its thread is in the app, innermost call first: `file:line:in 'method'`. `None` when that was not requested, or the
    /// worker did not report in time.
    #[serde(default)]
    pub backtrace: Option<Vec<String>>,
}

/// How far a request is that is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No thread has taken it up.
    #[default]
    Queued,
    /// In the app, which has not begun its response.
    App,
    /// The response has begun.
    Sending,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_documented_and_a_backtrace_may_be_missing() {
        let text = r#"{"worker":0,"pid":7,"thread":null,"method":"GET","path":"/","age_ms":1.5,"queue_ms":1.5,"state":"queued"}"#;
        let read: InFlight = serde_json::from_str(text).unwrap();
        assert_eq!((read.worker, read.thread, read.state), (Some(0), None, Phase::Queued));
        let again = serde_json::to_value(&InFlight { state: Phase::Sending, ..read }).unwrap();
        assert_eq!((&again["state"], &again["backtrace"]), (&"sending".into(), &serde_json::Value::Null));
    }
}
