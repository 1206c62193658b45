//! Records requests for `firebrick bench --replay`: method, target, fields and body with secrets masked ([`text::secret`]), and of the
//! response its status, its length and a digest.
//!
//! Why in the pipeline: all versions of HTTP and all contents (app, files, origins, handlers) pass it.
//!
//! Contract:
//! 1. There is one recording at a time in the process. Without one a request costs a load of an atomic at its beginning
//!    and a look at an empty cell at its end.
//! 2. A request never waits for a recording: if [`MOST_UNDER_WAY`] bytes are on their way to the client, or its channel is
//!    full, the line is dropped and counted.
//! 3. Nothing is stored here. The client of the control socket writes the file; when it has gone, the recording ends.

mod body;
mod record;

pub(crate) use record::{finished, observe};

use control::record::{RecordOrder, RecordedLine};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// The most lines and bytes that wait for the client.
const MOST_LINES: usize = 4_096;
const MOST_UNDER_WAY: usize = 16 << 20;
/// How long the end waits for requests that have begun.
const LAST: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);

static ON: AtomicBool = AtomicBool::new(false);
static CURRENT: Mutex<Option<Arc<Recording>>> = Mutex::new(None);

/// A recording under way.
pub(crate) struct Recording {
    order: RecordOrder,
    began: Instant,
    lines: mpsc::Sender<RecordedLine>,
    under_way: Arc<AtomicUsize>,
    /// Requests that came, recorded ones, bytes of these, lost ones.
    seen: AtomicU64,
    recorded: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    full: Notify,
}

/// Returns whether requests are being recorded.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Begins a recording, and returns its lines.
///
/// # Errors
/// One is under way.
pub(crate) fn begin(order: RecordOrder) -> Result<mpsc::Receiver<RecordedLine>, String> {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    if current.is_some() {
        return Err("requests are being recorded already: one recording at a time".to_owned());
    }
    let (lines, receiver) = mpsc::channel(MOST_LINES);
    let recording = Arc::new(Recording {
        order,
        began: Instant::now(),
        lines,
        under_way: Arc::default(),
        seen: AtomicU64::new(0),
        recorded: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        lost: AtomicU64::new(0),
        full: Notify::new(),
    });
    recording.send(&json!({
        "kind": "firebrick record",
        "version": 1,
        "server": crate::VERSION,
        "began": jiff::Timestamp::now().to_string(),
        "one_in": recording.order.one_in,
        "body_bytes": recording.order.body,
    }));
    *current = Some(recording.clone());
    ON.store(true, Relaxed);
    drop(current);
    net::task::spawn_local(follow(recording));
    Ok(receiver)
}

/// Ends the recording when its time is over, its file is full, or its client has gone.
async fn follow(recording: Arc<Recording>) {
    let ended = tokio::select! {
        () = tokio::time::sleep(recording.order.time) => "the time was over",
        () = recording.full.notified() => "the size was reached",
        () = recording.lines.closed() => "the client had gone",
    };
    ON.store(false, Relaxed);
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = None;
    // Requests that have begun hold it.
    let mut waited = Duration::ZERO;
    while Arc::strong_count(&recording) > 1 && waited < LAST && !recording.lines.is_closed() {
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    let done = json!({ "done": {
        "recorded": recording.recorded.load(Relaxed),
        "lost": recording.lost.load(Relaxed),
        "seen": recording.seen.load(Relaxed),
        "ended": ended,
    } });
    let line = RecordedLine::new(format!("{done}\n").into_bytes(), &recording.under_way);
    // The client may be slow; it must get the last line.
    let _ = tokio::time::timeout(LAST * 5, recording.lines.send(line)).await;
}

/// Returns the recording if the next request is to be recorded.
fn chosen() -> Option<Arc<Recording>> {
    let recording = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let number = recording.seen.fetch_add(1, Relaxed);
    (number % u64::from(recording.order.one_in) == 0).then_some(recording)
}

impl Recording {
    /// Sends a request's line, or counts it as lost.
    fn offer(&self, line: &serde_json::Value) {
        if self.bytes.load(Relaxed) >= self.order.most || self.lines.is_closed() {
            return;
        }
        match self.send(line) {
            Some(bytes) => {
                self.recorded.fetch_add(1, Relaxed);
                if self.bytes.fetch_add(bytes, Relaxed) + bytes >= self.order.most {
                    self.full.notify_one();
                }
            }
            None => {
                self.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Returns the length of the line; `None` if the client is too slow for it.
    fn send(&self, line: &serde_json::Value) -> Option<u64> {
        if self.under_way.load(Relaxed) > MOST_UNDER_WAY {
            return None;
        }
        let text = format!("{line}\n").into_bytes();
        let bytes = text.len() as u64;
        self.lines.try_send(RecordedLine::new(text, &self.under_way)).is_ok().then_some(bytes)
    }
}
