//! `POST /heap`: orders a worker to describe its heap, and reads the description.
//!
//! Contract:
//! 1. One dump is taken at a time, because each holds a copy of the pages that its worker changes meanwhile.
//! 2. The dump goes through a pipe to a thread of its own, and is never stored, neither in memory nor in a file.
//! 3. Every wait has a limit, and ends when the client is gone. When this side gives up, the writing process gets an error at its next write and ends.

use super::snapshot::Snapshotter;
use control::heap::{HeapLine, HeapReader, HeapSnapshot, HeapWish};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stats::WorkerState;
use std::io::{PipeReader, Read, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use wire::heap::HeapOrder;
use workers::reconciler::Row;

/// How long a worker may take to begin. It reads the order when one of its threads is free, or waits.
const ANSWER: Duration = Duration::from_secs(30);
/// The longest life of the process that writes a dump.
const LIMIT: Duration = Duration::from_secs(180);
/// The time after which the worker itself has ended that process.
const SPARE: Duration = Duration::from_secs(10);
/// The interval of looking whether the client is still there.
const LOOK: Duration = Duration::from_millis(200);
/// The bytes read at a time: as many as a pipe holds.
const PIECE: usize = 64 << 10;

/// Held while a dump is taken.
pub(super) type Turn = Arc<Mutex<()>>;

/// Takes a snapshot. Returns the channel for the text of a [`HeapLine`]. `snapshotter`: `None` before the app is loaded.
pub(super) fn describe(
    snapshotter: Option<&Snapshotter>,
    turn: &Turn,
    wish: HeapWish,
) -> oneshot::Receiver<String> {
    let (mut line, receiver) = oneshot::channel();
    let (snapshotter, turn) = (snapshotter.cloned(), turn.clone());
    net::task::spawn_local(async move {
        let result = match (snapshotter, turn.try_lock_owned()) {
            (None, _) => Err("the app is still loading: there are no workers yet".to_owned()),
            (Some(snapshotter), Ok(turn)) => tokio::select! {
                result = snapshot(&snapshotter, &wish, turn) => result,
                () = line.closed() => return,
            },
            (_, Err(_)) => Err("another dump is being taken: try again when it is done".to_owned()),
        };
        let result = result.map_or_else(HeapLine::Failed, |heap| HeapLine::Heap(Box::new(heap)));
        // The client may be gone.
        let _ = line.send(serde_json::to_string(&result).unwrap_or_default());
    });
    receiver
}

/// Ends the reading thread when it is dropped, with the client.
#[derive(Default)]
struct Asker(Arc<AtomicBool>);

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

async fn snapshot(
    snapshotter: &Snapshotter,
    wish: &HeapWish,
    turn: OwnedMutexGuard<()>,
) -> Result<HeapSnapshot, String> {
    let shared = snapshotter.shared().ok_or("this server has no app, and no workers")?;
    let rows = snapshotter.processes().await.workers;
    let row = chosen(&rows, wish, sys::process::rss_bytes)?;
    let (reader, writer) = pipe().map_err(|error| format!("there is no pipe for the dump: {error}"))?;
    let order = HeapOrder {
        dump: !wish.without_dump,
        trace_s: wish.trace_s,
        limit_ms: u32::try_from(LIMIT.as_millis()).unwrap_or(u32::MAX),
    };
    if !shared.describe_heap(row.serial, order, writer.into()).await {
        return Err(format!(
            "worker {} cannot describe its heap: that needs CRuby, which can fork and has ObjectSpace.dump_all",
            row.index
        ));
    }
    let (pid, index, examples) = (row.pid, row.index, wish.examples);
    let (first, began) = oneshot::channel();
    let asker = Asker::default();
    let gone = asker.0.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        read(reader, (pid, index), examples, first, &gone)
    });
    // The figures of the moment at which the worker was forked.
    let requests = match began.await {
        Ok(()) => shared.scoreboard().slot(index as usize).requests,
        Err(_) => 0,
    };
    let read = reading.await.map_err(|error| error.to_string())??;
    Ok(HeapSnapshot { worker: index, pid, requests, ..read })
}

/// Returns the worker that is meant.
fn chosen<'a>(rows: &'a [Row], wish: &HeapWish, rss: impl Fn(u32) -> u64) -> Result<&'a Row, String> {
    let row = match (wish.worker, wish.pid) {
        (None, None) => {
            let ready = rows.iter().filter(|row| row.state == WorkerState::Ready);
            ready.max_by_key(|row| rss(row.pid)).ok_or("no worker is ready")?
        }
        (Some(worker), Some(pid)) => rows.iter().find(|row| row.pid == pid).ok_or_else(|| {
            let now = rows.iter().find(|row| row.index == worker);
            let by = now.map(|row| format!(" by process {}", row.pid)).unwrap_or_default();
            format!("worker {worker} (pid {pid}) has been replaced{by} meanwhile: `firebrick deaths` tells why; begin again")
        })?,
        (Some(worker), None) => {
            let all = rows.iter().filter(|row| row.index == worker);
            all.min_by_key(|row| row.state != WorkerState::Ready)
                .ok_or_else(|| format!("there is no worker {worker}: {}", listed(rows)))?
        }
        (None, Some(pid)) => rows
            .iter()
            .find(|row| row.pid == pid)
            .ok_or_else(|| format!("no worker has the process id {pid}: {}", listed(rows)))?,
    };
    match row.state {
        WorkerState::Booting => Err(format!("worker {} is still starting: try again", row.index)),
        _ => Ok(row),
    }
}

fn listed(rows: &[Row]) -> String {
    let all: Vec<String> = rows.iter().map(|row| format!("{} (pid {})", row.index, row.pid)).collect();
    if all.is_empty() { "there are none now".to_owned() } else { format!("there are {}", all.join(", ")) }
}

/// Reads the pipe to its end. `first` is sent when the first bytes have come.
fn read(
    mut pipe: PipeReader,
    (pid, index): (u32, u32),
    examples: bool,
    first: oneshot::Sender<()>,
    gone: &AtomicBool,
) -> Result<HeapSnapshot, String> {
    let (asked, mut first, mut begun) = (Instant::now(), Some(first), None);
    let mut reader = HeapReader::new(examples);
    let mut piece = vec![0; PIECE];
    let mut rss = 0;
    loop {
        let limit = if begun.is_none() { ANSWER } else { ANSWER + LIMIT + SPARE };
        let left = limit.saturating_sub(asked.elapsed());
        if gone.load(Relaxed) {
            return Err("the client is gone".to_owned());
        }
        let timeout = Timespec::try_from(left.min(LOOK)).map_err(|error| error.to_string())?;
        let ready = match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready.map_err(|error| format!("the dump cannot be read: {error}"))?,
        };
        if ready == 0 && !left.is_zero() {
            continue;
        }
        if ready == 0 && begun.is_none() {
            let seconds = ANSWER.as_secs();
            return Err(format!(
                "worker {index} (pid {pid}) has not begun a dump within {seconds} s: its threads are busy, or Ruby's lock is held; \
                 `firebrick top` shows its requests"
            ));
        }
        if ready == 0 {
            return Err(format!("the dump of worker {index} was not complete after {} s", limit.as_secs()));
        }
        let count = match pipe.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            count => count.map_err(|error| format!("the dump cannot be read: {error}"))?,
        };
        if count == 0 {
            break;
        }
        if begun.is_none() {
            begun = Some(Instant::now());
            rss = sys::process::rss_bytes(pid);
            // The asking side waits for it.
            let _ = first.take().map(|first| first.send(()));
        }
        reader.read(&piece[..count]);
    }
    let dump_ms = begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64() * 1e3);
    let read = reader.finish().map_err(|why| format!("worker {index} (pid {pid}): {why}"))?;
    Ok(HeapSnapshot { rss_bytes: rss, dump_ms, ..read })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use workers::PoolIndex;

    fn row(index: u32, pid: u32, state: WorkerState) -> Row {
        let (serial, generation) = (index, 1);
        Row {
            index,
            serial,
            pool: PoolIndex::default(),
            generation,
            pid,
            state,
            forked: Instant::now(),
            restarts: 0,
        }
    }

    #[test]
    fn the_worker_that_is_meant() {
        let rows = [
            row(0, 10, WorkerState::Ready),
            row(1, 11, WorkerState::Booting),
            row(2, 12, WorkerState::Ready),
        ];
        let choose = |worker, pid| {
            let wish = HeapWish { worker, pid, ..HeapWish::default() };
            chosen(&rows, &wish, u64::from).map(|row| row.pid)
        };
        assert_eq!(choose(None, None), Ok(12), "the one with the most memory");
        assert_eq!((choose(Some(0), None), choose(None, Some(10))), (Ok(10), Ok(10)));
        for (worker, pid, why) in [
            (Some(1), None, "worker 1 is still starting"),
            (Some(7), None, "there is no worker 7: there are 0 (pid 10), 1 (pid 11), 2 (pid 12)"),
            (None, Some(99), "no worker has the process id 99"),
            (Some(0), Some(9), "worker 0 (pid 9) has been replaced by process 10 meanwhile"),
        ] {
            let error = choose(worker, pid).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        assert_eq!(chosen(&[], &HeapWish::default(), |_| 0).unwrap_err(), "no worker is ready");
    }

    #[test]
    fn a_pipe_that_ends_early_is_an_error() {
        for (text, why) in [
            ("", "worker 3 (pid 0): the worker ended before its dump was complete"),
            (
                "{\"stopped_us\":1}\n{\"addr",
                "worker 3 (pid 0): the worker ended before its dump was complete",
            ),
            ("{\"error\":\"no memory\"}\n", "worker 3 (pid 0): no memory"),
        ] {
            let (reader, mut writer) = pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            let (first, _began) = oneshot::channel();
            assert_eq!(read(reader, (0, 3), false, first, &AtomicBool::new(false)).unwrap_err(), why);
        }
    }
}
