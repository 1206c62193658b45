//! A request in flight, as `GET /requests` returns it.

use crate::figures::figures;
use serde::{Deserialize, Serialize};

figures! {
    /// A request for the app that its worker has not finished.
    #[derive(Default)]
    pub struct InFlight {
        /// The number of the worker that has the request; null while it is in the queue.
        worker: Option<u32>,
        /// The process id of that worker, or null.
        pid: Option<u32>,
        /// The worker's thread that serves the request, from 0; null while none has started it.
        thread: Option<u32>,
        /// As sent.
        method: String,
        /// As sent, without the query. Bytes that are not ASCII text are escaped.
        path: String,
        /// Time since the request was ready for a worker.
        age_ms: f64,
        /// Part of that until a thread started it.
        queue_ms: f64,
        /// `queued` (no thread has started it), `app` (in the app), `sending` (the response has begun).
        state: RequestPhase,
        /// With `backtraces`: the backtrace of its thread, innermost call first, as Ruby prints it, files
        /// relative to the app's folder; else null. Also null if the worker did not respond within a second,
        /// because native code holds the GVL.
        #[serde(default)]
        backtrace: Option<Vec<String>>,
    }
}

/// The phase of a request in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestPhase {
    /// No thread has started it.
    #[default]
    Queued,
    /// The app has started it and has not begun its response.
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
        assert_eq!((read.worker, read.thread, read.state), (Some(0), None, RequestPhase::Queued));
        let again = serde_json::to_value(&InFlight { state: RequestPhase::Sending, ..read }).unwrap();
        assert_eq!((&again["state"], &again["backtrace"]), (&"sending".into(), &serde_json::Value::Null));
    }
}
