//! Writes failed requests to the error log.
//!
//! Contract: a flood of failures does not fill the disk. Of each kind (same status and reason), a thread
//! writes [`AT_ONCE`] lines, then one per [`PAUSE`] with the number of omitted lines. The last omitted lines
//! are counted when the flood is over. The length of a line is limited.

use handler::{Failure, Fault, Request};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Lines of one kind that are written without a pause.
const AT_ONCE: u32 = 20;
/// The minimum interval between further lines of that kind.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest target shown, in bytes.
const TARGET: usize = 512;
/// The longest method shown, in bytes.
const METHOD: usize = 32;
/// The longest reason shown, in bytes. The message of an exception can be long.
const REASON: usize = 4096;
/// The largest number of kinds at a time.
const KINDS: usize = 64;

/// Writes a line, with the id of its request.
type Write = dyn Fn(&str, Option<&[u8]>);

/// Writes failures to the error log, for one thread.
pub(crate) struct FailureLog {
    write: Rc<Write>,
    /// The header field with the request id.
    id: Option<String>,
    kinds: Rc<RefCell<Vec<FailureKind>>>,
}

/// Failures with the same status and reason.
struct FailureKind {
    status: u16,
    reason: Box<str>,
    /// Whether there was a request.
    is_request: bool,
    /// Lines written since the last pause, and the time of the last one.
    lines: u32,
    last: Instant,
    left_out: u64,
    /// The reason of the first omitted line, as it is.
    example: Box<str>,
}

impl FailureKind {
    /// Counts a line that is not written, and keeps its reason if it is the first.
    fn leave_out(&mut self, reason: &str) {
        if self.left_out == 0 {
            self.example = bounded(reason, REASON).into();
        }
        self.left_out += 1;
    }
}

impl FailureLog {
    /// Creates a log that passes its lines to `write`. `id`: the header field with the request id.
    pub(crate) fn new(write: Box<Write>, id: Option<&str>) -> FailureLog {
        FailureLog { write: write.into(), id: id.map(str::to_owned), kinds: Rc::default() }
    }

    /// Reports omitted lines from time to time. Never returns.
    pub(crate) fn follow(&self) -> impl Future<Output = ()> + use<> {
        let (write, kinds) = (self.write.clone(), self.kinds.clone());
        async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                settle(&mut kinds.borrow_mut(), Instant::now(), &*write);
            }
        }
    }

    /// Writes a line unless the client is at fault: the access log shows the client's errors by their status.
    pub(crate) fn write(&self, failure: &Failure, request: Option<&Request>) {
        if failure.fault == Fault::Client {
            return;
        }
        self.write_at(failure, request, Instant::now());
    }

    fn write_at(&self, failure: &Failure, request: Option<&Request>, now: Instant) {
        let (status, reason) = (failure.status, &*failure.reason);
        let Some(left_out) = self.admit(status, reason, request.is_some(), now) else { return };
        let reason = bounded(reason, REASON);
        let before = match left_out {
            0 => String::new(),
            1 => " (and 1 more like this, not shown)".to_owned(),
            n => format!(" (and {n} more like this, not shown)"),
        };
        let id = request.zip(self.id.as_deref()).and_then(|(request, name)| request.fields.get(name));
        let line = match request {
            None => format!("{status} for a connection without a request: {reason}{before}"),
            Some(request) => {
                let (method, target) = (shown(request.method(), METHOD), shown(request.target(), TARGET));
                format!("{status} for {method} {target}: {reason}{before}")
            }
        };
        (self.write)(&line, id);
    }

    /// Returns the number of lines omitted before this one, or `None` if this line must be omitted as well.
    fn admit(&self, status: u16, reason: &str, is_request: bool, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.borrow_mut();
        let key = kind_of(reason);
        let same = |kind: &FailureKind| {
            kind.status == status && kind.is_request == is_request && *kind.reason == *key
        };
        let Some(kind) = kinds.iter_mut().find(|kind| same(kind)) else {
            if kinds.len() >= KINDS {
                settle(&mut kinds, now, &*self.write);
            }
            if kinds.len() >= KINDS {
                // So many kinds at a time are a flood themselves. The others share the last entry.
                let rest = kinds.last_mut()?;
                rest.leave_out(reason);
                return None;
            }
            kinds.push(FailureKind {
                status,
                reason: key.into(),
                is_request,
                lines: 1,
                last: now,
                left_out: 0,
                example: Box::default(),
            });
            return Some(0);
        };
        let quiet = now.saturating_duration_since(kind.last);
        if quiet >= PAUSE {
            // Either a new failure after a pause, or the next line of a flood.
            kind.lines = if kind.left_out == 0 { 1 } else { AT_ONCE };
        } else if kind.lines < AT_ONCE && (is_request || kind.lines == 0) {
            kind.lines += 1;
        } else {
            kind.leave_out(reason);
            return None;
        }
        kind.last = now;
        Some(std::mem::take(&mut kind.left_out))
    }
}

/// Reports the omitted lines of floods that are over, and forgets the kinds without recent failures.
fn settle(kinds: &mut Vec<FailureKind>, now: Instant, write: &Write) {
    kinds.retain_mut(|kind| {
        if now.saturating_duration_since(kind.last) < PAUSE {
            return true;
        }
        if kind.left_out == 0 {
            return false;
        }
        let (status, reason) = (kind.status, &kind.example);
        write(&format!("{status}: {} more, not shown: {reason}", std::mem::take(&mut kind.left_out)), None);
        (kind.lines, kind.last) = (AT_ONCE, now);
        true
    });
}

/// Returns the kind of a failure: the beginning of the first line of its reason, with every number replaced by `0`.
fn kind_of(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    let mut letters: Vec<char> =
        line.chars().take(160).map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    letters.dedup_by(|next, before| *next == '0' && *before == '0');
    letters.into_iter().collect()
}

fn shown(bytes: &[u8], most: usize) -> String {
    match bytes.get(..most) {
        Some(beginning) if bytes.len() > most => {
            format!("{}... ({} bytes)", beginning.escape_ascii(), bytes.len())
        }
        _ => bytes.escape_ascii().to_string(),
    }
}

fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}... ({} bytes)", &text[..end], text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn log() -> (FailureLog, Rc<RefCell<Vec<String>>>) {
        let lines: Rc<RefCell<Vec<String>>> = Rc::default();
        let written = lines.clone();
        (FailureLog::new(Box::new(move |line, _| written.borrow_mut().push(line.to_owned())), None), lines)
    }

    #[test]
    fn a_flood_of_one_kind_is_counted() {
        let (log, lines) = log();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let failure = |n: usize| Failure::busy(format!("{n} requests wait"));
        let mut total = 0;
        for second in 0..60 {
            for n in 0..1000 {
                total += u64::from(log.admit(503, &failure(n).reason, true, at(second)).is_some());
            }
        }
        assert!((20..30).contains(&total), "{total}");
        log.write_at(&Failure::server(500, "another kind"), None, at(60));
        assert_eq!(lines.borrow().len(), 1);
        settle(&mut log.kinds.borrow_mut(), at(90), &*log.write);
        assert!(
            lines.borrow()[1].starts_with("503: ")
                && lines.borrow()[1].contains("more, not shown: 1 requests wait")
        );
        settle(&mut log.kinds.borrow_mut(), at(120), &*log.write);
        assert!(log.kinds.borrow().is_empty(), "it is forgotten");
    }

    #[test]
    fn omitted_lines_keep_their_figures() {
        let (log, lines) = log();
        let now = Instant::now();
        let failure = Failure::busy("the memory for clients is used up (limits.memory is 256 MiB)");
        for _ in 0..=AT_ONCE {
            log.admit(503, &failure.reason, true, now);
        }
        settle(&mut log.kinds.borrow_mut(), now + PAUSE, &*log.write);
        let line = "503: 1 more, not shown: the memory for clients is used up (limits.memory is 256 MiB)";
        assert_eq!(*lines.borrow(), [line]);
    }

    #[test]
    fn connections_without_a_request_are_one_line() {
        let (log, lines) = log();
        let now = Instant::now();
        (0..100).for_each(|_| log.write_at(&Failure::busy("full"), None, now));
        log.write_at(&Failure::busy("full"), None, now + PAUSE);
        let lines = lines.borrow();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            "503 for a connection without a request: full (and 99 more like this, not shown)"
        );
    }

    proptest! {
        /// Any number of any failures results in few lines, none of them long.
        #[test]
        fn the_log_is_bounded(reasons in prop::collection::vec("\\PC{0,40}", 1..20), count in 0usize..400) {
            let (log, lines) = log();
            let now = Instant::now();
            for n in 0..count {
                let reason = reasons[n % reasons.len()].repeat(1 + n);
                log.write_at(&Failure::server(500, reason), None, now);
            }
            prop_assert!(lines.borrow().len() <= KINDS + 1);
            prop_assert!(lines.borrow().iter().all(|line| line.len() < REASON + 200));
        }

        #[test]
        fn any_bytes_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(shown(&bytes, TARGET).len() <= 4 * TARGET + 20);
            let text = String::from_utf8_lossy(&bytes);
            prop_assert!(bounded(&text, 100).len() <= 120);
        }
    }
}
