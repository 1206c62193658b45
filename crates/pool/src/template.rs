//! The front's end of the control socket to the template (`docs/processes.md`): messages, and starting the process.

use crate::os;
use rustix::io::{FdFlags, fcntl_setfd};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// What glibc's malloc is told, unless the user has told it something. It gives every thread an arena of its own, and
/// learns to keep large blocks for the next time: with ten workers of ten threads that sort large arrays, 690 MiB
/// instead of 190, for 4 % less CPU.
const MALLOC: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "524288")];

/// Longest message that is believed: an exception text with its backtrace fits.
const LONGEST: usize = 4 << 20;

/// How the template is started and what it is told first.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The user's Ruby.
    pub ruby: PathBuf,
    /// The folder with `firebrick/template.rb`.
    pub lib: PathBuf,
    /// The app's folder.
    pub dir: PathBuf,
    /// The rackup file.
    pub app: PathBuf,
    /// `RACK_ENV`.
    pub environment: String,
    /// Fewest threads of a worker.
    pub threads_min: u32,
    /// Most threads of a worker.
    pub threads_max: u32,
    /// Paths that the template requests from the app before it forks.
    pub warmup: Vec<String>,
    /// Whether to compact the heap before forking.
    pub compact: bool,
    /// Whether `rack.early_hints` is offered.
    pub early_hints: bool,
    /// Where temporary files go.
    pub temp_dir: PathBuf,
    /// Shown in process titles.
    pub tag: String,
    /// Largest response head in bytes.
    pub max_response_head: usize,
    /// Removed by the template should the front die.
    pub unlink: Vec<PathBuf>,
}

/// A message from the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The app is loaded.
    Booted {
        /// Engine and version.
        ruby: String,
        /// Rack's release.
        rack: String,
        /// How long loading took, milliseconds.
        ms: u64,
    },
    /// The app cannot be loaded, and why.
    Failed(String),
    /// A worker has been forked.
    Forked {
        /// Its scoreboard slot.
        index: u32,
        /// Its process id.
        pid: u32,
    },
    /// A worker could not be forked, and why.
    ForkFailed {
        /// The scoreboard slot meant for it.
        index: u32,
        /// The reason.
        text: String,
    },
    /// A worker ended.
    Exited {
        /// Its process id.
        pid: u32,
        /// How.
        end: End,
        /// Most resident memory it ever had, KiB.
        peak_kib: u64,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(code) => write!(f, "exit code {code}"),
            End::Signal(9) => write!(f, "signal 9 (KILL; by hand, or the kernel ran out of memory)"),
            End::Signal(11) => write!(f, "signal 11 (SEGV)"),
            End::Signal(6) => write!(f, "signal 6 (ABRT)"),
            End::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// A running template.
#[derive(Debug)]
pub struct Template {
    child: Child,
    socket: UnixStream,
    received: Vec<u8>,
}

impl Template {
    /// Starts the process and tells it to boot the app. `scoreboard` has `slots` slots of `slot_len` bytes; each worker will get
    /// `links` links.
    ///
    /// # Errors
    /// `ruby` cannot be started, or the first message does not go out.
    pub async fn start(
        plan: &Plan,
        links: usize,
        scoreboard: BorrowedFd<'_>,
        slots: usize,
        slot_len: usize,
    ) -> io::Result<Template> {
        let (ours, theirs) = os::pair()?;
        theirs.set_nonblocking(false)?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut load_path = OsString::from("-I");
        load_path.push(&plan.lib);
        let child = Command::new(&plan.ruby)
            .arg(load_path)
            .args(["-rfirebrick/template", "-e", "Firebrick::Template.run"])
            .current_dir(&plan.dir)
            .env("FIREBRICK_CONTROL_FD", theirs.as_raw_fd().to_string())
            .envs(MALLOC.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied())
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start {}: {e}", plan.ruby.display())))?;
        drop(theirs);
        let template = Template { child, socket: UnixStream::from_std(ours)?, received: Vec::new() };
        let boot = boot_message(plan, links, slots, slot_len);
        template.say(&boot, &[scoreboard]).await?;
        Ok(template)
    }

    /// The template's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Orders a worker in scoreboard slot `index`, with its ends of the links.
    ///
    /// # Errors
    /// The template is gone.
    pub async fn fork(&self, index: u32, links: &[std::os::unix::net::UnixStream]) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = links.iter().map(AsFd::as_fd).collect();
        self.say(&[b"fork".to_vec(), index.to_string().into_bytes()], &fds).await
    }

    /// Signals a worker.
    ///
    /// # Errors
    /// The template is gone.
    pub async fn kill(&self, pid: u32, signal: &str) -> io::Result<()> {
        self.say(&[b"kill".to_vec(), pid.to_string().into_bytes(), signal.as_bytes().to_vec()], &[]).await
    }

    /// Tells the template to exit.
    ///
    /// # Errors
    /// The template is gone already.
    pub async fn exit(&self) -> io::Result<()> {
        self.say(&[b"exit".to_vec()], &[]).await
    }

    async fn say(&self, parts: &[Vec<u8>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let message = encode(parts);
        let mut sent = 0;
        while sent < message.len() {
            let with = if sent == 0 { fds } else { &[] };
            let some = self
                .socket
                .async_io(Interest::WRITABLE, || os::send(&self.socket, [&message[sent..], &[]], with))
                .await?;
            sent += some;
        }
        Ok(())
    }

    /// The next message; `None` when the template has gone. Safe to drop and call again.
    ///
    /// # Errors
    /// What came makes no sense.
    pub async fn listen(&mut self) -> io::Result<Option<Said>> {
        loop {
            if let Some((parts, used)) = decode(&self.received)? {
                let said = interpret(&parts);
                self.received.drain(..used);
                return said.map(Some);
            }
            let mut buffer = [0; 4096];
            let mut strays = VecDeque::new();
            let got = self
                .socket
                .async_io(Interest::READABLE, || os::receive(&self.socket, &mut buffer, &mut strays))
                .await;
            match got {
                Ok(0) => return Ok(None),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Ends the process if it still runs, and collects it.
    pub fn put_down(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the process, which was told to exit or has closed its socket.
    ///
    /// # Errors
    /// It is still there after a while.
    pub async fn gone(&mut self) -> io::Result<Option<i32>> {
        for _ in 0..200 {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        self.child.kill()?;
        Ok(self.child.wait()?.code())
    }
}

fn boot_message(plan: &Plan, links: usize, slots: usize, slot_len: usize) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let number = |number: usize| number.to_string().into_bytes();
    let switch = |on: bool| number(on.into());
    let mut parts: Vec<Vec<u8>> = vec![b"boot".to_vec()];
    let mut put = |key: &str, value: Vec<u8>| parts.extend([key.as_bytes().to_vec(), value]);
    put("wire", number(wire::VERSION.into()));
    put("app", path(&plan.app));
    put("environment", plan.environment.clone().into_bytes());
    put("threads_min", number(plan.threads_min as usize));
    put("threads_max", number(plan.threads_max as usize));
    put("links", number(links));
    put("slots", number(slots));
    put("slot_len", number(slot_len));
    put("compact", switch(plan.compact));
    put("early_hints", switch(plan.early_hints));
    put("temp_dir", path(&plan.temp_dir));
    put("tag", plan.tag.clone().into_bytes());
    put("max_head", number(plan.max_response_head));
    plan.warmup.iter().for_each(|warm| put("warmup", warm.clone().into_bytes()));
    plan.unlink.iter().for_each(|gone| put("unlink", path(gone)));
    parts
}

fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.join(&0);
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.extend(body);
    message
}

/// The first message in `bytes` and the bytes it took.
fn decode(bytes: &[u8]) -> io::Result<Option<(Vec<String>, usize)>> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if len > LONGEST {
        return Err(nonsense(format!("a message of {len} bytes")));
    }
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    Ok(rest.get(..len).map(|body| (body.split(|&byte| byte == 0).map(text).collect(), 4 + len)))
}

fn interpret(parts: &[String]) -> io::Result<Said> {
    fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
        text.parse().map_err(|_| nonsense(format!("{text:?} where a number belongs")))
    }
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(match *words.as_slice() {
        ["booted", ref pairs @ ..] => {
            let value = |key| pairs.chunks_exact(2).find(|pair| pair[0] == key).map_or("", |pair| pair[1]);
            Said::Booted {
                ruby: value("ruby").into(),
                rack: value("rack").into(),
                ms: number(value("ms")).unwrap_or(0),
            }
        }
        ["failed", text] => Said::Failed(text.into()),
        ["forked", index, pid] => Said::Forked { index: number(index)?, pid: number(pid)? },
        ["fork_failed", index, text] => Said::ForkFailed { index: number(index)?, text: text.into() },
        ["exited", pid, how, code, peak] => {
            let end = match how {
                "exit" => End::Exit(number(code)?),
                "signal" => End::Signal(number(code)?),
                _ => return Err(nonsense(format!("ended by {how:?}"))),
            };
            Said::Exited { pid: number(pid)?, end, peak_kib: number(peak)? }
        }
        _ => return Err(nonsense(format!("{words:?}"))),
    })
}

fn nonsense(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the template said {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(words: &[&str]) -> io::Result<Said> {
        let bytes = encode(&words.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
        let (parts, used) = decode(&bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        interpret(&parts)
    }

    #[test]
    fn messages_are_understood() {
        let booted = Said::Booted { ruby: "ruby 3.1.2".into(), rack: "2.2".into(), ms: 12 };
        assert_eq!(said(&["booted", "rack", "2.2", "ruby", "ruby 3.1.2", "ms", "12"]).unwrap(), booted);
        assert_eq!(said(&["forked", "0", "42"]).unwrap(), Said::Forked { index: 0, pid: 42 });
        let exited = Said::Exited { pid: 42, end: End::Signal(9), peak_kib: 7 };
        assert_eq!(said(&["exited", "42", "signal", "9", "7"]).unwrap(), exited);
    }

    #[test]
    fn nonsense_is_named() {
        assert!(said(&["forked", "x", "1"]).unwrap_err().to_string().contains("\"x\""));
        assert!(said(&["sang"]).unwrap_err().to_string().contains("sang"));
        assert!(decode(&[0xff; 8]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((parts, _))) = decode(&bytes) { let _ = interpret(&parts); }
        }
    }
}
