//! The processes of a coordinator: starts them, reads their frames, and ends them when it is dropped.

use std::io::{self, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use load::Progress;
use load::scenario::Part;

use super::frame::{self, Order, Report};
use super::{PART, shown};

/// A process has closed its output a moment before it has a status.
const ENDING: Duration = Duration::from_millis(500);

/// A started process.
pub(super) struct Member {
    /// Such as `worker 2 of 4 (process 4711)`.
    pub name: String,
    /// The last state that it reported.
    pub progress: Progress,
    /// When it reported last.
    pub heard: Instant,
    child: Child,
    orders: ChildStdin,
}

/// What a process did.
pub(super) enum Event {
    /// It sent a frame.
    Report(Report),
    /// Its output has ended, or makes no sense.
    Ended(Option<io::Error>),
}

/// All processes, and what they do.
pub(super) struct Fleet {
    pub members: Vec<Member>,
    events: Receiver<(usize, Event)>,
}

impl Fleet {
    /// Starts `count` processes with the command line of this one.
    ///
    /// # Errors
    /// If one cannot be started. Those that were are ended.
    pub fn start(count: usize) -> Result<Fleet, String> {
        let (sender, events) = channel();
        let mut fleet = Fleet { members: Vec::new(), events };
        for part in (0..count).filter_map(|number| Part::new(number, count)) {
            let member = Member::start(part, sender.clone());
            fleet.members.push(member.map_err(|why| {
                format!("--workers {count}: cannot start process {} of {count}: {why}", part.number() + 1)
            })?);
        }
        Ok(fleet)
    }

    /// The next event and whose it is; `None` if nothing happened within `within`.
    pub fn next(&self, within: Duration) -> Option<(usize, Event)> {
        match self.events.recv_timeout(within) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // No reader is left. Each reported the end before.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(within);
                None
            }
        }
    }

    /// Gives an order to all. One that is gone is noticed by the end of its output.
    pub fn order(&mut self, order: Order) {
        for member in &mut self.members {
            let _ = frame::write(&mut member.orders, &order);
        }
    }

    /// The state of all.
    pub fn progress(&self) -> Progress {
        Progress::sum(self.members.iter().map(|member| &member.progress))
    }
}

impl Member {
    fn start(part: Part, events: Sender<(usize, Event)>) -> io::Result<Member> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).env(PART, shown(part));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C on the terminal is for the coordinator alone, which collects the results.
        command.process_group(0);
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, output) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        let name = format!("worker {} of {} (process {})", part.number() + 1, part.of(), child.id());
        let member = Member { name, progress: Progress::default(), heard: Instant::now(), child, orders };
        let number = part.number();
        std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let mut output = BufReader::new(output);
            loop {
                let (event, last) = match frame::read(&mut output) {
                    Ok(Some(report)) => (Event::Report(report), false),
                    Ok(None) => (Event::Ended(None), true),
                    Err(why) => (Event::Ended(Some(why)), true),
                };
                if events.send((number, event)).is_err() || last {
                    return;
                }
            }
        })?;
        Ok(member)
    }

    /// Waits for the end of the process, which has closed its output, and says how it was. Kills it if it goes on.
    pub fn ending(&mut self) -> String {
        let since = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && since.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(5));
        }
        match self.end() {
            Ok(status) => how(status),
            Err(why) => format!("ended: {why}"),
        }
    }

    /// Kills the process if it has not ended.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If it cannot be killed, the end of its orders ends it.
        let _ = self.end();
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("exited with status {}", code.unwrap_or_default()),
    }
}
