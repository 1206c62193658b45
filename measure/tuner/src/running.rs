//! One server, from start to stop: in its own process group, with its output in a file, watched by the guard.
//!
//! Contract:
//! 1. A server is ready when it has responded to a request and, for Firebrick, all its workers are ready.
//! 2. If it does not become ready, the error gives the reason (it exited, its workers die repeatedly, or the
//!    time-out passed), with the last lines of its log.
//! 3. When the value is dropped, no process and no file of the server is left.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use planner::Shape;

use crate::counters::Counters;
use crate::cpus::Cpus;
use crate::guard::{Guard, Guarded};
use crate::libraries::Library;
use crate::options::Options;
use crate::processes::{MARK, ServerProcesses};
use crate::server::{Launch, ServerKind, control_socket};
use crate::stop::Stop;

/// Environment variables that would change a server's shape or address.
const UNSET: [&str; 14] = [
    "PORT",
    "PIDFILE",
    "WEB_CONCURRENCY",
    "RAILS_MIN_THREADS",
    "PUMA_MIN_THREADS",
    "PUMA_MAX_THREADS",
    "MIN_THREADS",
    "MAX_THREADS",
    "THREADS",
    "WORKERS",
    "APP_ENV",
    "RACK_ENV",
    "RAILS_ENV",
    "RAILS_MAX_THREADS",
];
/// The number of restarts after which a server that is not ready counts as broken.
const MOST_RESTARTS: u64 = 3;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 12;

/// The reason why a server has no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The reason with the last lines of the server's log.
    Crashed(String),
    Stopped,
}

/// The state shared by all servers of a run.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    pub(crate) stop: &'a Stop,
    pub(crate) guard: &'a Guard,
    /// The Firebrick program, which is this one.
    pub(crate) program: &'a Path,
    /// The folder for all servers' files.
    pub(crate) temp: &'a Path,
    pub(crate) cpus: &'a Cpus,
    /// The behaviour of the app's libraries with fibers, once a server has reported it.
    pub(crate) libraries: OnceCell<Vec<Library>>,
}

#[derive(Debug)]
pub(crate) struct RunningServer {
    child: Child,
    guarded: Guarded,
    status: Option<ExitStatus>,
    pub(crate) kind: ServerKind,
    pub(crate) port: u16,
    folder: PathBuf,
    log: PathBuf,
}

impl RunningServer {
    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// The reason why the server is not ready.
    pub(crate) fn start(
        context: &Context<'_>,
        kind: ServerKind,
        shape: Shape,
    ) -> Result<RunningServer, Failure> {
        let mut running = RunningServer::spawn(context, kind, shape)
            .map_err(|error| Failure::Crashed(format!("cannot start: {error}")))?;
        running.wait_until_ready(context, shape)?;
        Ok(running)
    }

    fn spawn(context: &Context<'_>, kind: ServerKind, shape: Shape) -> io::Result<RunningServer> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let options = context.options;
        let folder = context.temp.join(number.to_string());
        fs::create_dir(&folder)?;
        let port = free_port()?;
        let launch = Launch {
            dir: &options.dir,
            temp: &folder,
            port,
            environment: &options.environment,
            boot_seconds: options.boot_timeout.as_secs().max(1),
        };
        let words = kind.command(context.program, shape, &launch)?;
        let (program, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mark = format!("{}.{number}", std::process::id());
        let log = folder.join("server.log");
        let output = File::create(&log)?;
        let mut command = Command::new(program);
        command.args(rest).current_dir(&options.dir).process_group(0);
        for name in UNSET {
            command.env_remove(name);
        }
        command.env("RACK_ENV", &options.environment).env("RAILS_ENV", &options.environment);
        // Apps use the variable to size their pools (config/database.yml).
        command.env("RAILS_MAX_THREADS", shape.seats().to_string()).env(MARK, &mark);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = context.cpus.for_server(|| command.spawn())?;
        let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
        let guarded = context.guard.watch(ServerProcesses::of(leader, mark));
        Ok(RunningServer { child, guarded, status: None, kind, port, folder, log })
    }

    fn wait_until_ready(&mut self, context: &Context<'_>, shape: Shape) -> Result<(), Failure> {
        let options = context.options;
        let began = Instant::now();
        let target = options.load.requests.first().map_or("/", |request| &request.target);
        let mut answered = false;
        loop {
            if context.stop.requested() {
                return Err(Failure::Stopped);
            }
            if let Some(how) = self.ended() {
                return Err(self.crashed(&format!("exited before it was ready ({how})")));
            }
            let left = options.boot_timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                let seconds = options.boot_timeout.as_secs_f64();
                let what = if answered { "not all its workers were ready" } else { "no response" };
                return Err(self.crashed(&format!("{what} after {seconds} s (--boot-timeout)")));
            }
            answered = answered || answers(self.port, target, left.min(Duration::from_secs(5)));
            let counters = if answered { self.counters() } else { None };
            if let Some(why) = counters.as_ref().and_then(dying) {
                return Err(self.crashed(&why));
            }
            if let Some(counters) = &counters {
                context.libraries.get_or_init(|| counters.libraries.clone());
            }
            // Other servers do not report how many of their processes are ready.
            if answered && counters.is_none_or(|counters| counters.ready >= u64::from(shape.processes)) {
                return Ok(());
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Returns the counters of a Firebrick server.
    pub(crate) fn counters(&self) -> Option<Counters> {
        if self.kind != ServerKind::Firebrick {
            return None;
        }
        Counters::read(&control::client::get(&control_socket(&self.folder), "/stats").ok()?)
    }

    pub(crate) fn processes(&self) -> &ServerProcesses {
        &self.guarded.processes
    }

    /// Returns how the server exited, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.map(how)
    }

    /// Returns a failure with the last lines of the log; the app's own error is in the first line.
    pub(crate) fn crashed(&self, what: &str) -> Failure {
        let text = fs::read(&self.log).unwrap_or_default();
        let lines = clean(&String::from_utf8_lossy(&text), &self.folder);
        if lines.is_empty() {
            return Failure::Crashed(format!("{what}; its log is empty"));
        }
        let reason = reason(&lines).map(|reason| format!(": {reason}")).unwrap_or_default();
        Failure::Crashed(format!("{what}{reason}\nEnd of its log:\n{}", last(&lines).join("\n")))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let RunningServer { child, guarded, status, .. } = self;
        guarded.end(|| {
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
            }
        });
        // Anything left is in a temporary folder that is removed as a whole.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Detects workers of a Firebrick server that die right after starting.
fn dying(counters: &Counters) -> Option<String> {
    (counters.restarts >= MOST_RESTARTS).then(|| {
        format!(
            "its workers die: {} of {} ready, {} restarts",
            counters.ready, counters.workers, counters.restarts
        )
    })
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "killed, possibly by the kernel for lack of memory".to_owned(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}

/// Returns the nonempty lines of a log, without the server's own folder.
fn clean(log: &str, folder: &Path) -> Vec<String> {
    let folder = format!("{}/", folder.display());
    let clean = |line: &str| -> String {
        let line = line.replace(&folder, "");
        line.chars().filter(|c| !c.is_control() || *c == '\t').take(400).collect()
    };
    log.lines().map(clean).filter(|line| !line.trim().is_empty()).collect()
}

/// Returns the last lines of the log.
fn last(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(LOG_LINES)..]
}

/// Returns the most informative line: an exception, else the last line that is neither a server message nor
/// part of a backtrace.
fn reason(lines: &[String]) -> Option<&str> {
    let informative = |line: &&String| !line.starts_with(['[', ' ', '\t', '*', '-']);
    let exception = lines.iter().rfind(|line| informative(line) && line.contains("Error"));
    exception.or_else(|| lines.iter().rfind(informative)).map(String::as_str)
}

/// Returns a free port. Not every server can use port 0 and report the port that it got.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns whether the server responds in time, with any status.
fn answers(port: u16, target: &str, within: Duration) -> bool {
    let ask = || -> io::Result<[u8; 5]> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, within)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut begin = [0; 5];
        stream.read_exact(&mut begin)?;
        // Reads to the end, so that the server does not see an aborted connection.
        io::copy(&mut stream.take(16 << 20), &mut io::sink())?;
        Ok(begin)
    };
    ask().is_ok_and(|begin| &begin == b"HTTP/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_log_is_shown() {
        let log: String = (0..30).map(|n| format!("line {n} of /tmp/x/7/server.rb\n\n")).collect();
        let all = clean(&log, Path::new("/tmp/x/7"));
        assert_eq!((all.len(), last(&all).len()), (30, LOG_LINES));
        assert_eq!(last(&all).last().unwrap(), "line 29 of server.rb");
        assert!(last(&clean("\n\x1b\n", Path::new("/x"))).is_empty());
    }

    #[test]
    fn the_error_of_the_app_is_found() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let log = lines(
            "[now] firebrick: starting\nconfig.ru:3:in `x': no database (RuntimeError)\n\tfrom a.rb:1\nbye",
        );
        assert_eq!(reason(&log), Some("config.ru:3:in `x': no database (RuntimeError)"));
        assert_eq!(
            reason(&lines("one licence only\n[now] firebrick[1]: worker 1 died")),
            Some("one licence only")
        );
        assert_eq!(reason(&lines("[now] x")), None);
    }

    #[test]
    fn only_http_counts_as_a_response() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for response in [&b"SSH-2.0\r\n"[..], b"HTTP/1.1 500 Oh\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 512]).unwrap();
                stream.write_all(response).unwrap();
            }
        });
        let timeout = Duration::from_secs(10);
        assert!(!answers(port, "/", timeout));
        assert!(answers(port, "/", timeout), "an error is a response");
        server.join().unwrap();
        assert!(!answers(port, "/", timeout));
    }
}
