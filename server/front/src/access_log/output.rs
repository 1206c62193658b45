//! The output of the access log: the file, the thread that writes it, and the buffers in between.

use super::AccessLog;
use crate::log_file::{self, piece, write_all};
use settings::AccessLog as Target;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long lines are collected before they are written.
const BATCH: Duration = Duration::from_millis(20);
/// A buffer of this size is written at once. In bytes.
const BUFFER_FULL: usize = 256 << 10;
/// The largest buffer while the output is blocked, in bytes. Further lines are lost.
const BUFFER_LIMIT: usize = 8 << 20;
/// How long [`LogOutput`] waits for its last lines when it is dropped.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The access log of the process: owns the file and the thread that writes to it.
pub struct LogOutput {
    path: Option<PathBuf>,
    shared: Arc<LogBuffers>,
    ended: Receiver<()>,
    writer: Option<JoinHandle<()>>,
}

/// One thread's lines for the writer.
#[derive(Debug)]
pub(super) struct Buffer {
    lines: Arc<Mutex<Lines>>,
    shared: Arc<LogBuffers>,
}

#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    lost: u64,
}

#[derive(Debug, Default)]
struct LogBuffers {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A buffer has lines.
    filled: bool,
    /// Write without waiting for more.
    urgent: bool,
    closing: bool,
    /// The file to write to from now on.
    reopened: Option<File>,
    buffers: Vec<Arc<Mutex<Lines>>>,
}

/// Locks, ignoring poison: the data is consistent between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogOutput {
    /// Opens the log; `None` if it is off. `report` is called on another thread when lines begin to be lost,
    /// and when they are written again.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread not be started. The text names the file.
    pub fn open(target: &Target, report: impl Fn(&str) + Send + 'static) -> io::Result<Option<LogOutput>> {
        let (path, file) = match target {
            Target::Off => return Ok(None),
            Target::Stdout => (None, log_file::standard(io::stdout())?),
            Target::File(path) => (Some(path.clone()), append_to(path)?),
        };
        let shared = Arc::new(LogBuffers::default());
        let (end, ended) = mpsc::channel();
        let writer = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
                // Dropped after the last line, which lets `close` return.
                let _end = end;
                Writer::new(file, report).run(&shared);
            })?
        };
        Ok(Some(LogOutput { path, shared, ended, writer: Some(writer) }))
    }

    /// Returns the log of one front thread. `request_id_header` names the field with the request id (JSON only).
    pub fn log(&self, format: settings::LogFormat, request_id_header: Option<&str>) -> AccessLog {
        let buffer = Buffer { lines: Arc::default(), shared: Arc::clone(&self.shared) };
        lock(&self.shared.state).buffers.push(Arc::clone(&buffer.lines));
        AccessLog::new(format, request_id_header.map(Arc::from), buffer)
    }

    /// Opens the file again after a log rotation has moved it. Standard output is not affected.
    ///
    /// # Errors
    /// The file cannot be opened; the old one stays in use. The text names the file.
    pub fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let file = append_to(path)?;
            let mut state = lock(&self.shared.state);
            state.reopened = Some(file);
            state.filled = true;
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// Writes the remaining lines and ends the thread. Returns whether all were written: the output may block
    /// for up to `timeout`.
    pub fn close(mut self, timeout: Duration) -> bool {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> bool {
        let Some(writer) = self.writer.take() else { return true };
        lock(&self.shared.state).closing = true;
        self.shared.wake.notify_one();
        // The sender is never used: the channel closes with the thread.
        let ended = self.ended.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Disconnected);
        ended && writer.join().is_ok()
    }
}

impl Drop for LogOutput {
    fn drop(&mut self) {
        self.end(LAST_LINES);
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    log_file::append("access log", path)
}

impl Buffer {
    /// Appends one line, formatted by `write`.
    pub(super) fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut lines = lock(&self.lines);
        if lines.text.len() >= BUFFER_LIMIT {
            lines.lost += 1;
            return;
        }
        let before = lines.text.len();
        write(&mut lines.text);
        let after = lines.text.len();
        drop(lines);
        let urgent = before < BUFFER_FULL && after >= BUFFER_FULL;
        if before == 0 || urgent {
            let mut state = lock(&self.shared.state);
            state.filled = true;
            state.urgent |= urgent;
            self.shared.wake.notify_one();
        }
    }
}

/// The writing thread's state.
struct Writer<R> {
    file: File,
    /// The largest write, in bytes.
    piece: usize,
    report: R,
    /// Lines lost since the last report.
    losing: u64,
    spare: Vec<u8>,
}

impl<R: Fn(&str)> Writer<R> {
    fn new(file: File, report: R) -> Writer<R> {
        Writer { piece: piece(&file), file, report, losing: 0, spare: Vec::new() }
    }

    fn run(mut self, shared: &LogBuffers) {
        loop {
            let (buffers, closing) = self.next(shared);
            for buffer in &buffers {
                self.write_out(buffer);
            }
            if closing {
                return;
            }
        }
    }

    /// Waits for lines, and a little longer for more of them.
    fn next(&mut self, shared: &LogBuffers) -> (Vec<Arc<Mutex<Lines>>>, bool) {
        let asleep = |state: &mut State| !state.filled && !state.closing;
        let state =
            shared.wake.wait_while(lock(&shared.state), asleep).unwrap_or_else(PoisonError::into_inner);
        let collecting =
            shared.wake.wait_timeout_while(state, BATCH, |state| !state.closing && !state.urgent);
        let (mut state, _) = collecting.unwrap_or_else(PoisonError::into_inner);
        (state.filled, state.urgent) = (false, false);
        if let Some(file) = state.reopened.take() {
            self.piece = piece(&file);
            self.file = file;
        }
        // If this is the last reference, the front thread has ended, but its last lines must still be written.
        let closing = state.closing;
        let buffers = state.buffers.clone();
        state.buffers.retain(|buffer| Arc::strong_count(buffer) > 2);
        (buffers, closing)
    }

    fn write_out(&mut self, buffer: &Mutex<Lines>) {
        let (text, mut lost) = {
            let mut lines = lock(buffer);
            let text = std::mem::replace(&mut lines.text, std::mem::take(&mut self.spare));
            (text, std::mem::take(&mut lines.lost))
        };
        let outcome = write_lines(&mut self.file, &text, self.piece);
        if let Err((_, left)) = &outcome {
            lost += text[text.len() - left..].iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
        self.account(lost, outcome.err().map(|(error, _)| error), !text.is_empty());
        self.spare = text;
        self.spare.clear();
        self.spare.shrink_to(BUFFER_FULL);
    }

    /// Reports the beginning and the end of a loss, not every line of it.
    fn account(&mut self, lost: u64, error: Option<io::Error>, wrote: bool) {
        if lost > 0 && self.losing == 0 {
            let why = error.map_or("it takes lines too slowly".to_owned(), |error| error.to_string());
            (self.report)(&format!("warning: access log: lines are being lost: {why}"));
        } else if lost == 0 && self.losing > 0 && wrote {
            (self.report)(&format!("access log: written again; {} lines were lost", self.losing));
            self.losing = 0;
        }
        self.losing += lost;
    }
}

/// Writes whole lines, as many together as fit into `piece` bytes. On failure, returns the number of bytes left.
fn write_lines(file: &mut File, mut text: &[u8], piece: usize) -> Result<(), (io::Error, usize)> {
    while !text.is_empty() {
        let (now, later) = text.split_at(whole_lines(text, piece));
        write_all(file, now).map_err(|error| (error, text.len()))?;
        text = later;
    }
    Ok(())
}

/// Returns the length of the lines that fit into `piece` bytes; of the first line if it does not fit.
fn whole_lines(text: &[u8], piece: usize) -> usize {
    if text.len() <= piece {
        return text.len();
    }
    let fitting = text[..piece].iter().rposition(|&byte| byte == b'\n');
    let end = fitting.or_else(|| text.iter().position(|&byte| byte == b'\n'));
    end.map_or(text.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_file::PIPE_ATOMIC;
    use handler::testing::{peer, request};
    use handler::{Ending, Trace};
    use proptest::prelude::*;
    use settings::LogFormat;
    use std::io::Read;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    fn record(log: &AccessLog, target: &str) {
        let (request, peer, trace) = (request("GET", target, &[]), peer(), Trace::default());
        log.record(&Ending {
            request: Some(&request),
            failure: None,
            peer: &peer,
            trace: &trace,
            status: 200,
            body_bytes: 1,
            started: Instant::now(),
            ended: Instant::now(),
            broken: false,
            hijacked: false,
        });
    }

    fn to_file(path: &std::path::Path) -> LogOutput {
        let report = |text: &str| panic!("{text}");
        LogOutput::open(&Target::File(path.to_owned()), report).unwrap().unwrap()
    }

    fn wait_for_lines(path: &std::path::Path, count: usize) {
        while std::fs::read_to_string(path).unwrap_or_default().lines().count() < count {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn all_lines_of_all_threads_are_there_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        std::fs::write(&path, "from before\n").unwrap();
        let output = to_file(&path);
        let threads = (0..3).map(|thread| {
            let log = output.log(LogFormat::Common, None);
            std::thread::spawn(move || (0..500).for_each(|n| record(&log, &format!("/{thread}/{n}"))))
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert!(output.close(LONG));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1_501);
        assert!(text.starts_with("from before\n") && text.ends_with('\n'));
        let third: Vec<&str> = text.lines().filter(|line| line.contains("GET /2/")).collect();
        assert!(third.iter().enumerate().all(|(n, line)| line.contains(&format!("GET /2/{n} "))));
    }

    #[test]
    fn lines_arrive_without_being_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let output = to_file(&path);
        let log = output.log(LogFormat::Json, None);
        for count in 1..=3 {
            record(&log, "/");
            wait_for_lines(&path, count);
        }
    }

    #[test]
    fn reopening_follows_a_moved_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let output = to_file(&path);
        let log = output.log(LogFormat::Common, None);
        record(&log, "/before");
        wait_for_lines(&path, 1);
        std::fs::rename(&path, &moved).unwrap();
        output.reopen().unwrap();
        record(&log, "/after");
        assert!(output.close(LONG));
        assert!(std::fs::read_to_string(&path).unwrap().contains("/after"));
        assert!(!std::fs::read_to_string(&moved).unwrap().contains("/after"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let missing = Target::File("/nonexistent/access.log".into());
        let error = LogOutput::open(&missing, |_| {}).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("access log /nonexistent/access.log: "), "{error}");
        assert!(LogOutput::open(&Target::Off, |_| {}).unwrap().is_none());
    }

    #[test]
    fn a_full_disk_is_reported_once() {
        let (sender, reports) = mpsc::channel();
        let full = Target::File("/dev/full".into());
        if !std::path::Path::new("/dev/full").exists() {
            return;
        }
        let output =
            LogOutput::open(&full, move |text| sender.send(text.to_owned()).unwrap()).unwrap().unwrap();
        let log = output.log(LogFormat::Common, None);
        (0..100).for_each(|_| record(&log, "/"));
        assert!(output.close(LONG));
        let reports: Vec<String> = reports.iter().collect();
        assert_eq!(reports.len(), 1);
        assert!(reports[0].contains("lines are being lost: No space left"), "{reports:?}");
    }

    #[test]
    fn a_pipe_gets_everything_however_slow_its_reader() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let (sender, reports) = mpsc::channel();
        let buffer = Mutex::new(Lines { text: b"line\n".repeat(100_000), lost: 0 });
        let file = File::from(std::os::fd::OwnedFd::from(pipe));
        let writer = std::thread::spawn(move || {
            let mut writer = Writer::new(file, move |text: &str| sender.send(text.to_owned()).unwrap());
            assert_eq!(writer.piece, PIPE_ATOMIC);
            writer.write_out(&buffer);
        });
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert_eq!(text, b"line\n".repeat(100_000));
        writer.join().unwrap();
        assert_eq!(reports.iter().count(), 0);
    }

    #[test]
    fn a_buffer_that_is_full_loses_lines_and_counts_them() {
        let shared = Arc::new(LogBuffers::default());
        let buffer = Buffer { lines: Arc::default(), shared };
        buffer.append(|text| text.resize(BUFFER_LIMIT, b'\n'));
        buffer.append(|text| text.push(b'\n'));
        let lines = lock(&buffer.lines);
        assert_eq!((lines.text.len(), lines.lost), (BUFFER_LIMIT, 1));
    }

    proptest! {
        #[test]
        fn pieces_are_whole_lines(lines in prop::collection::vec("[a-z]{0,12}", 1..40), piece in 1_usize..40) {
            let text = lines.join("\n") + "\n";
            let mut rest = text.as_bytes();
            while !rest.is_empty() {
                let length = whole_lines(rest, piece);
                let (now, later) = rest.split_at(length);
                prop_assert_eq!(now.last(), Some(&b'\n'));
                prop_assert!(now.len() <= piece || now.iter().filter(|&&byte| byte == b'\n').count() == 1);
                rest = later;
            }
        }
    }
}
