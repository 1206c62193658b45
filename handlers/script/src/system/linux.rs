//! The Linux part.

use std::time::{Duration, Instant};

pub(crate) struct ThreadClock {
    /// The path of the thread's scheduler statistics (proc(5)).
    schedstat: String,
    begun: Instant,
}

impl ThreadClock {
    pub(crate) fn of_this_thread() -> ThreadClock {
        let schedstat = format!("/proc/self/task/{}/schedstat", rustix::thread::gettid().as_raw_nonzero());
        ThreadClock { schedstat, begun: Instant::now() }
    }

    pub(crate) fn read(&self) -> Duration {
        let text = std::fs::read_to_string(&self.schedstat).ok();
        // proc(5): nanoseconds on a CPU, nanoseconds waiting for one, number of time slices. A kernel may lack them.
        let computed = text.and_then(|text| text.split(' ').next()?.parse().ok());
        computed.map_or_else(|| self.begun.elapsed(), Duration::from_nanos)
    }
}
