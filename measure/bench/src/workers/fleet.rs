//! The processes of a coordinator: starts them, reads their frames, and ends them when it is dropped.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use load::Progress;
use load::scenario::Part;

use super::frame::{self, CoordinatorMessage, WorkerMessage};
use super::join::{Answer, Joined};
use super::worker::now;
use super::{PART, shown};

/// How long to wait for the status of a process after it has closed its output.
const ENDING: Duration = Duration::from_millis(500);

/// A started process.
pub(super) struct Member {
    /// A name such as `worker 2 of 4 (process 4711)`.
    pub name: String,
    /// The last state that it reported.
    pub progress: Progress,
    /// The time of its last report.
    pub heard: Instant,
    orders: Orders,
}

/// The channel on which a process gets orders.
enum Orders {
    Process(Child, ChildStdin),
    Machine(TcpStream),
}

/// An event of a process.
pub(super) enum Event {
    /// The process sent a frame.
    Report(WorkerMessage),
    /// The output has ended, or makes no sense.
    Ended(Option<io::Error>),
}

/// All processes and their events.
pub(super) struct Fleet {
    pub members: Vec<Member>,
    events: Receiver<(usize, Event)>,
}

impl Fleet {
    /// Starts `count` processes with the command line of this one.
    ///
    /// # Errors
    /// A process cannot be started. The processes started so far are ended.
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

    /// Assigns a part to each worker that has joined.
    ///
    /// # Errors
    /// A worker is gone.
    pub fn welcome(joined: Vec<Joined>) -> Result<Fleet, String> {
        let (sender, events) = channel();
        let mut fleet = Fleet { members: Vec::new(), events };
        let of = joined.len();
        for (number, one) in joined.into_iter().enumerate() {
            let name = format!("worker {} of {of} ({})", number + 1, one.from);
            let input = frame::write(&one.stream, &Answer::Welcome { number, of });
            let input = input.and_then(|()| one.stream.try_clone());
            let member = input.and_then(|input| {
                Member::listen(name.clone(), number, Orders::Machine(one.stream), input, sender.clone())
            });
            fleet.members.push(member.map_err(|why| format!("{name} is gone: {why}"))?);
        }
        Ok(fleet)
    }

    /// Returns the next event and the number of its process; `None` if nothing happened within `within`.
    pub fn next(&self, within: Duration) -> Option<(usize, Event)> {
        match self.events.recv_timeout(within) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // All readers have ended, and each has reported it before.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(within);
                None
            }
        }
    }

    /// Makes all processes begin after `ahead`.
    pub fn begin(&mut self, ahead: Duration) {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or_default();
        let at = now().saturating_add(ahead);
        for member in &mut self.members {
            let order = match member.orders {
                Orders::Process(..) => CoordinatorMessage::Start(at),
                // The time since `at` was fixed is subtracted.
                Orders::Machine(_) => CoordinatorMessage::StartIn(at.saturating_sub(now())),
            };
            member.order(order);
        }
    }

    /// Gives an order to all processes. A missing one is noticed by the end of its output.
    pub fn order(&mut self, order: CoordinatorMessage) {
        for member in &mut self.members {
            member.order(order);
        }
    }

    /// Returns the state of all processes together.
    pub fn progress(&self) -> Progress {
        Progress::sum(self.members.iter().map(|member| &member.progress))
    }
}

impl Member {
    fn start(part: Part, events: Sender<(usize, Event)>) -> io::Result<Member> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).env(PART, shown(part));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C on the terminal must reach only the coordinator, which collects the results.
        command.process_group(0);
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, output) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        let name = format!("worker {} of {} (process {})", part.number() + 1, part.of(), child.id());
        Member::listen(name, part.number(), Orders::Process(child, orders), output, events)
    }

    /// Reads the frames of a process on a thread.
    fn listen(
        name: String,
        number: usize,
        orders: Orders,
        output: impl Read + Send + 'static,
        events: Sender<(usize, Event)>,
    ) -> io::Result<Member> {
        let member = Member { name, progress: Progress::default(), heard: Instant::now(), orders };
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

    /// Waits for the end of a process that has closed its output, and describes it. Kills the process if it continues.
    pub fn ending(&mut self) -> String {
        let since = Instant::now();
        if let Orders::Process(child, _) = &mut self.orders {
            while matches!(child.try_wait(), Ok(None)) && since.elapsed() < ENDING {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        match self.end() {
            Ok(Some(status)) => how(status),
            Ok(None) => "closed its connection".to_owned(),
            Err(why) => format!("ended: {why}"),
        }
    }

    /// Kills the process if it has not ended; one on another machine ends with its connection.
    pub fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        let child = match &mut self.orders {
            Orders::Process(child, _) => child,
            Orders::Machine(stream) => {
                // The stream may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
                return Ok(None);
            }
        };
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        child.kill()?;
        child.wait().map(Some)
    }

    fn order(&mut self, order: CoordinatorMessage) {
        let _ = match &mut self.orders {
            Orders::Process(_, orders) => frame::write(orders, &order),
            Orders::Machine(stream) => frame::write(stream, &order),
        };
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A process that cannot be killed ends when its orders end.
        let _ = self.end();
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("exited with status {}", code.unwrap_or_default()),
    }
}
