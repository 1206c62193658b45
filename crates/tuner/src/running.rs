//! One server, from its start to its end: in a process group of its own, its output in a file, watched by the guard.
//!
//! Contract:
//! 1. It counts as ready when it has answered a request, and a Firebrick when all its workers have come up too.
//! 2. What keeps it from that is told with the last lines of its log: it ended, its workers die again and again, or the
//!    time is up.
//! 3. When this is dropped nothing of it is left: no process, no file.

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
use crate::options::Options;
use crate::processes::{Family, MARK};
use crate::server::{Kind, Place, control_socket};
use crate::stop::Stop;

/// Settings that servers read from the environment and that would change a shape, or a place where they listen.
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
/// A worker that was replaced so often before the server was ready will not come up.
const DEATHS: u64 = 3;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 12;

/// Why a server gives no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// What happened, and the last lines of its log.
    Crashed(String),
    /// Somebody wants us to end.
    Stopped,
}

/// What all servers of a run need.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) options: &'a Options,
    pub(crate) stop: &'a Stop,
    pub(crate) guard: &'a Guard,
    /// The program that serves: ourselves.
    pub(crate) program: &'a Path,
    /// Where all servers have their folders.
    pub(crate) temp: &'a Path,
    pub(crate) cpus: &'a Cpus,
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    guarded: Guarded,
    status: Option<ExitStatus>,
    pub(crate) kind: Kind,
    pub(crate) port: u16,
    folder: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn start(ground: &Ground<'_>, kind: Kind, shape: Shape) -> Result<Running, Failed> {
        let mut running = Running::spawn(ground, kind, shape)
            .map_err(|error| Failed::Crashed(format!("cannot be started: {error}")))?;
        running.wait_until_ready(ground, shape)?;
        Ok(running)
    }

    fn spawn(ground: &Ground<'_>, kind: Kind, shape: Shape) -> io::Result<Running> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let options = ground.options;
        let folder = ground.temp.join(number.to_string());
        fs::create_dir(&folder)?;
        let port = free_port()?;
        let place = Place {
            dir: &options.dir,
            temp: &folder,
            port,
            environment: &options.environment,
            boot_seconds: options.boot_timeout.as_secs().max(1),
        };
        let words = kind.command(ground.program, shape, &place)?;
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
        // What an app sizes by its threads (config/database.yml) follows the shape.
        command.env("RAILS_MAX_THREADS", shape.threads.to_string()).env(MARK, &mark);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = ground.cpus.for_server(|| command.spawn())?;
        let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
        let guarded = ground.guard.watch(Family::of(leader, mark));
        Ok(Running { child, guarded, status: None, kind, port, folder, log })
    }

    fn wait_until_ready(&mut self, ground: &Ground<'_>, shape: Shape) -> Result<(), Failed> {
        let options = ground.options;
        let began = Instant::now();
        let target = options.asking.requests.first().map_or("/", |request| &request.target);
        let mut answered = false;
        loop {
            if ground.stop.wanted() {
                return Err(Failed::Stopped);
            }
            if let Some(how) = self.ended() {
                return Err(self.crashed(&format!("it ended before it was ready ({how})")));
            }
            let left = options.boot_timeout.saturating_sub(began.elapsed());
            if left.is_zero() {
                let seconds = options.boot_timeout.as_secs_f64();
                let what = if answered { "not all its processes had come up" } else { "it had not answered" };
                return Err(self.crashed(&format!("{what} after {seconds} s (--boot-timeout)")));
            }
            answered = answered || answers(self.port, target, left.min(Duration::from_secs(5)));
            let counters = if answered { self.counters() } else { None };
            if let Some(why) = counters.as_ref().and_then(dying) {
                return Err(self.crashed(&why));
            }
            // Others do not tell how many of them have come up.
            if answered && counters.is_none_or(|counters| counters.ready >= u64::from(shape.processes)) {
                return Ok(());
            }
            sleep(LOOK_EVERY);
        }
    }

    /// What a Firebrick says about itself now.
    pub(crate) fn counters(&self) -> Option<Counters> {
        if self.kind != Kind::Firebrick {
            return None;
        }
        Counters::read(&control::client::get(&control_socket(&self.folder), "/stats").ok()?)
    }

    /// Its processes.
    pub(crate) fn family(&self) -> &Family {
        &self.guarded.family
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.map(how)
    }

    /// A failure with the last lines of the log; what the app itself said stands in the first line.
    pub(crate) fn crashed(&self, what: &str) -> Failed {
        let text = fs::read(&self.log).unwrap_or_default();
        let lines = clean(&String::from_utf8_lossy(&text), &self.folder);
        if lines.is_empty() {
            return Failed::Crashed(format!("{what}; it wrote nothing into its log"));
        }
        let reason = reason(&lines).map(|reason| format!(": {reason}")).unwrap_or_default();
        Failed::Crashed(format!("{what}{reason}\nIts log ends:\n{}", last(&lines).join("\n")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Running { child, guarded, status, .. } = self;
        guarded.end(|| {
            if status.is_none() {
                *status = child.try_wait().ok().flatten();
            }
        });
        // What cannot be removed lies in a temporary folder that is removed as a whole.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Workers of a Firebrick that end as soon as they have begun.
fn dying(counters: &Counters) -> Option<String> {
    (counters.restarts >= DEATHS).then(|| {
        format!(
            "its workers die: {} of {} were up, and {} had been replaced",
            counters.ready, counters.workers, counters.restarts
        )
    })
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "killed; by the kernel when memory runs out".to_owned(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it is not known how".to_owned(),
    }
}

/// Lines of a log that hold something, the server's own folder left out of them.
fn clean(log: &str, folder: &Path) -> Vec<String> {
    let folder = format!("{}/", folder.display());
    let clean = |line: &str| -> String {
        let line = line.replace(&folder, "");
        line.chars().filter(|c| !c.is_control() || *c == '\t').take(400).collect()
    };
    log.lines().map(clean).filter(|line| !line.trim().is_empty()).collect()
}

/// The last lines.
fn last(lines: &[String]) -> &[String] {
    &lines[lines.len().saturating_sub(LOG_LINES)..]
}

/// The line that says most: an exception, else the last one that is neither a server's remark nor part of a backtrace.
fn reason(lines: &[String]) -> Option<&str> {
    let said = |line: &&String| !line.starts_with(['[', ' ', '\t', '*', '-']);
    let exception = lines.iter().rfind(|line| said(line) && line.contains("Error"));
    exception.or_else(|| lines.iter().rfind(said)).map(String::as_str)
}

/// A port that nobody listens on now. Not every server can be given port 0 and asked which one it became.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether a request is answered in time, with whatever status.
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
        // Read to the end, so that the server does not take us for a client that went away.
        io::copy(&mut stream.take(16 << 20), &mut io::sink())?;
        Ok(begin)
    };
    ask().is_ok_and(|begin| &begin == b"HTTP/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_what_is_shown() {
        let log: String = (0..30).map(|n| format!("line {n} of /tmp/x/7/server.rb\n\n")).collect();
        let all = clean(&log, Path::new("/tmp/x/7"));
        assert_eq!((all.len(), last(&all).len()), (30, LOG_LINES));
        assert_eq!(last(&all).last().unwrap(), "line 29 of server.rb");
        assert!(last(&clean("\n\x1b\n", Path::new("/x"))).is_empty());
    }

    #[test]
    fn the_app_has_the_word() {
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
    fn only_http_is_an_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for answer in [&b"SSH-2.0\r\n"[..], b"HTTP/1.1 500 Oh\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 512]).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        let patience = Duration::from_secs(10);
        assert!(!answers(port, "/", patience));
        assert!(answers(port, "/", patience), "an error is an answer");
        server.join().unwrap();
        assert!(!answers(port, "/", patience));
    }
}
