//! A request in flight, as `GET /requests` returns it.

use serde::{Deserialize, Serialize};

/// A request for the app that its worker has not finished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// The index of its worker; `None` while it is in the queue.
    pub worker: Option<u32>,
    /// The process id of that worker.
    pub pid: Option<u32>,
    /// The worker's thread that serves it, from 0; `None` before a thread has taken it up.
    pub thread: Option<u32>,
    pub method: String,
    /// The path as sent, without the query. Bytes that are not ASCII text are escaped.
    pub path: String,
    /// The time since it was queued for a worker, in milliseconds.
    pub age_ms: f64,
    /// The part of that time before a thread took it up, in milliseconds.
    pub queue_ms: f64,
    pub state: Phase,
    /// The backtrace of its thread in the app, innermost call first: `file:line:in 'method'`. `None` if it
    /// was not requested, or if the worker did not report in time.
    #[serde(default)]
    pub backtrace: Option<Vec<String>>,
}

/// The phase of a request in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No thread has taken it up.
    #[default]
    Queued,
    /// The app has it and has not begun its response.
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
