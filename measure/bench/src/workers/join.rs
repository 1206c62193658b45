//! Brings workers on other machines and their coordinator together, by a shared token and the same load on
//! both sides. A connection is trusted with nothing until its first frame, of bounded length and time, has
//! been checked.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use load::Scenario;
use load::scenario::Part;
use serde::{Deserialize, Serialize};

use super::frame;
use crate::description::Description;
use crate::interrupt::Interrupt;

/// The environment variable with the token.
pub(crate) const TOKEN: &str = "FIREBRICK_BENCH_TOKEN";
/// The shortest token in bytes.
pub(crate) const SHORTEST: usize = 16;
/// The version of these frames, which must be the same on both sides.
const VERSION: u32 = 1;
/// The longest first frame in bytes.
const LONGEST_HELLO: u64 = 64 << 10;
/// The time limit for a first frame, and for writing to a worker.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a worker looks for its coordinator: a pod's name appears only when its image has been fetched.
const SEARCH: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);
/// The most connections whose first frame is awaited.
const MOST_STRANGERS: usize = 64;

/// The first frame of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    version: u32,
    token: String,
    load: String,
    threads: usize,
}

/// The answer to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    Welcome { number: usize, of: usize },
    Refused(String),
}

/// An accepted worker that waits for its part.
pub(super) struct Joined {
    pub stream: TcpStream,
    pub from: SocketAddr,
    pub threads: usize,
}

/// Returns the load in the form in which both sides must have it.
fn load(description: &Description) -> String {
    let description = Description { threads: 0, workers: 0, ..description.clone() };
    // The description has only string keys, and only numbers that JSON can represent.
    serde_json::to_string(&description).unwrap_or_default()
}

/// Returns the token of this process.
///
/// # Errors
/// The token is missing or too short.
pub(crate) fn token() -> Result<String, String> {
    let token = std::env::var(TOKEN).unwrap_or_default();
    match token.len() {
        SHORTEST.. => Ok(token),
        length => Err(format!(
            "{TOKEN} has {length} bytes: expected the same secret on all machines, {SHORTEST} bytes or more, such as that of `openssl rand -hex 16`"
        )),
    }
}

/// Waits for `count` workers.
///
/// # Errors
/// The wait was interrupted.
pub(super) fn accept(
    listener: &TcpListener,
    count: usize,
    token: &str,
    description: &Description,
    interrupt: &Interrupt,
) -> Result<Vec<Joined>, String> {
    let fail = |why: io::Error| format!("--listen: {why}");
    listener.set_nonblocking(true).map_err(fail)?;
    let expected = Hello { version: VERSION, token: token.to_owned(), load: load(description), threads: 0 };
    let (sender, judged) = channel();
    let (mut joined, mut strangers) = (Vec::new(), 0);
    while joined.len() < count {
        if interrupt.requested() {
            return Err(format!("ended when {} of {count} workers had joined", joined.len()));
        }
        while let Ok(one) = judged.try_recv() {
            strangers -= 1;
            joined.extend(one);
        }
        match listener.accept() {
            Ok((stream, from)) if strangers < MOST_STRANGERS => {
                strangers += 1;
                meet(stream, from, expected.clone(), &sender);
            }
            Ok(_) => {}
            // There is no connection, or it was closed at once.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    turn_away(&judged, joined.split_off(count));
    Ok(joined)
}

/// Checks a connection on its own thread.
fn meet(stream: TcpStream, from: SocketAddr, expected: Hello, judged: &Sender<Option<Joined>>) {
    let judged = judged.clone();
    let spawned = std::thread::Builder::new().name("hello".to_owned()).spawn({
        let judged = judged.clone();
        move || drop(judged.send(judge(stream, from, &expected)))
    });
    if spawned.is_err() {
        let _ = judged.send(None);
    }
}

fn judge(stream: TcpStream, from: SocketAddr, expected: &Hello) -> Option<Joined> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let hello = hello(&stream)?;
    match verdict(&hello, expected) {
        Ok(()) => {
            stream.set_read_timeout(None).ok()?;
            Some(Joined { stream, from, threads: hello.threads })
        }
        Err(why) => {
            let _ = frame::write(&stream, &Answer::Refused(why));
            None
        }
    }
}

/// Reads the first frame. A worker sends nothing more before it has its answer.
fn hello(stream: &TcpStream) -> Option<Hello> {
    let mut line = BufReader::new(Deadline { stream, until: Instant::now() + PATIENCE });
    frame::bounded(&mut line, LONGEST_HELLO).ok()?
}

/// A reader with a deadline, however slowly bytes arrive.
struct Deadline<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl io::Read for Deadline<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(into)
    }
}

/// Checks whether a worker can take part.
///
/// # Errors
/// The reason why it cannot.
fn verdict(hello: &Hello, expected: &Hello) -> Result<(), String> {
    if hello.version != expected.version {
        return Err("its Firebrick version differs: use the same version on all machines".to_owned());
    }
    if !same(hello.token.as_bytes(), expected.token.as_bytes()) {
        return Err(format!("its token differs: use the same {TOKEN} on all machines"));
    }
    if hello.load != expected.load {
        return Err("its URLs or flags differ: use the same ones on all machines".to_owned());
    }
    Ok(())
}

/// Compares in a time that does not depend on the place of a difference.
fn same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

/// Refuses workers that are too many.
fn turn_away(judged: &Receiver<Option<Joined>>, more: Vec<Joined>) {
    for late in more.into_iter().chain(judged.try_iter().flatten()) {
        let answer = Answer::Refused("all workers have joined: expected a larger --workers".to_owned());
        let _ = frame::write(&late.stream, &answer);
    }
}

/// Joins the coordinator at `address`. Returns the connection and the worker's part.
///
/// # Errors
/// There is no coordinator, or it refuses.
pub(super) fn join(
    address: &str,
    token: String,
    scenario: &Scenario,
    description: &Description,
) -> Result<(TcpStream, Part), String> {
    let stream = find(address)?;
    let gone = |why: io::Error| format!("--join {address}: {why}");
    stream.set_nodelay(true).map_err(gone)?;
    let hello = Hello { version: VERSION, token, load: load(description), threads: scenario.threads };
    frame::write(&stream, &hello).map_err(gone)?;
    // Read byte by byte, because another reader takes the rest.
    let mut from = BufReader::with_capacity(1, &stream);
    match frame::bounded(&mut from, LONGEST_HELLO).map_err(gone)? {
        Some(Answer::Welcome { number, of }) => {
            let part =
                Part::new(number, of).ok_or_else(|| format!("--join {address}: no part {number} of {of}"))?;
            Ok((stream, part))
        }
        Some(Answer::Refused(why)) => {
            Err(format!("--join {address}: the coordinator refused this worker: {why}"))
        }
        None => Err(format!("--join {address}: the coordinator closed the connection")),
    }
}

fn find(address: &str) -> Result<TcpStream, String> {
    let since = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(why) if since.elapsed() >= SEARCH => {
                return Err(format!("--join {address}: no coordinator for {} s: {why}", SEARCH.as_secs()));
            }
            Err(_) => std::thread::sleep(PAUSE * 5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::description;

    fn expected() -> Hello {
        Hello {
            version: VERSION,
            token: "0123456789abcdef".to_owned(),
            load: load(&description()),
            threads: 0,
        }
    }

    #[test]
    fn workers_are_judged() {
        assert_eq!(verdict(&Hello { threads: 3, ..expected() }, &expected()), Ok(()));
        let longer = Description { duration_s: Some(9.0), ..description() };
        for (hello, why) in [
            (Hello { version: 2, ..expected() }, "version"),
            (Hello { token: "0123456789abcdeF".to_owned(), ..expected() }, "token"),
            (Hello { token: String::new(), ..expected() }, "token"),
            (Hello { load: load(&longer), ..expected() }, "URLs or flags"),
        ] {
            let found = verdict(&hello, &expected()).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        let threads = Description { threads: 7, workers: 4, ..description() };
        assert_eq!(load(&threads), load(&description()), "machines may differ in their threads");
    }

    #[test]
    fn strangers_are_no_workers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for bytes in [vec![b'x'; 100_000], b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"{}\n".to_vec(), Vec::new()] {
            let mut client = TcpStream::connect(address).unwrap();
            let (stream, from) = listener.accept().unwrap();
            // The other side may close before it has read everything.
            let _ = io::Write::write_all(&mut client, &bytes);
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(judge(stream, from, &expected()).is_none());
        }
    }
}
