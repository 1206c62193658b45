//! The processes of a coordinator: starts them, reads their frames, and ends them when it is dropped.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use load::Progress;
use load::scenario::Part;

use super::frame::{self, Order, Report};
use super::join::{Answer, Joined};
use super::worker::now;
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
    orders: Orders,
}

/// The way to a process; orders are written to it.
enum Orders {
    Process(Child, ChildStdin),
    Machine(TcpStream),
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

    /// Gives each of the workers that have joined its part.
    ///
    /// # Errors
    /// If one is gone.
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

    /// Lets all begin after `ahead`.
    pub fn begin(&mut self, ahead: Duration) {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or_default();
        let at = now().saturating_add(ahead);
        for member in &mut self.members {
            let order = match member.orders {
                Orders::Process(..) => Order::Start(at),
                // What has passed since `at` was fixed is not lost.
                Orders::Machine(_) => Order::StartIn(at.saturating_sub(now())),
            };
            member.order(order);
        }
    }

    /// Gives an order to all. One that is gone is noticed by the end of its output.
    pub fn order(&mut self, order: Order) {
        for member in &mut self.members {
            member.order(order);
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
        Member::listen(name, part.number(), Orders::Process(child, orders), output, events)
    }

    /// Reads a process' frames on a thread.
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

    /// Waits for the end of the process, which has closed its output, and says how it was. Kills it if it goes on.
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
                // It may be closed already.
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

    fn order(&mut self, order: Order) {
        let _ = match &mut self.orders {
            Orders::Process(_, orders) => frame::write(orders, &order),
            Orders::Machine(stream) => frame::write(stream, &order),
        };
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
