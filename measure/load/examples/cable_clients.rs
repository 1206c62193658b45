//! Clients of Action Cable for `bench/hub`: `cable_clients HOST:PORT PATH COUNT IDENTIFIER` opens COUNT WebSockets, subscribes each,
//! and prints `open SECONDS`. Then each line on its input is answered by one line of JSON:
//!
//! - `begin`: forgets all deliveries; answers with the number of open WebSockets.
//! - `end MESSAGES`: waits until each client has got so many messages since `begin`, at most 20 s; answers with the number of deliveries and
//!   their times in milliseconds.
//!
//! A message has a member `"sent"`: the time of CLOCK_MONOTONIC in nanoseconds when it was published, on this machine.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{LocalSet, spawn_local};

/// The most handshakes at a time.
const HANDSHAKES: usize = 64;
/// The longest wait for the handshake and the subscription of a client, and for the messages of a round.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_secs(20);
/// Bytes per read.
const READ: usize = 4096;

/// The clients' common record.
#[derive(Default)]
struct Deliveries {
    nanoseconds: Vec<u64>,
    open: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, count, identifier] = arguments.as_slice() else {
        return Err("usage: cable_clients HOST:PORT PATH COUNT IDENTIFIER".into());
    };
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(address, path, count.parse()?, identifier))
}

async fn run(address: &str, path: &str, count: usize, identifier: &str) -> Result<(), Box<dyn Error>> {
    let deliveries = Rc::new(RefCell::new(Deliveries::default()));
    let (began, permits) = (Instant::now(), Rc::new(Semaphore::new(HANDSHAKES)));
    let (subscribed, mut waiting) = mpsc::unbounded_channel();
    for _ in 0..count {
        let client = client(
            (address.to_owned(), path.to_owned(), identifier.to_owned()),
            permits.clone(),
            subscribed.clone(),
            deliveries.clone(),
        );
        spawn_local(async move {
            if let Err(why) = client.await {
                eprintln!("a client: {why}");
            }
        });
    }
    drop(subscribed);
    for _ in 0..count {
        let subscribed = tokio::time::timeout(PATIENCE, waiting.recv()).await;
        subscribed.ok().flatten().ok_or("not all clients could subscribe")?;
    }
    println!("open {:.3}", began.elapsed().as_secs_f64());
    let (send, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    while let Some(line) = lines.recv().await {
        match line.split_once(' ') {
            None if line == "begin" => deliveries.borrow_mut().nanoseconds.clear(),
            Some(("end", messages)) => {
                let (expected, until) = (count * messages.parse::<usize>()?, Instant::now() + ROUND);
                while deliveries.borrow().nanoseconds.len() < expected && Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            _ => return Err(format!("expected begin or end, found {line:?}").into()),
        }
        println!("{}", deliveries.borrow_mut().figures());
    }
    Ok(())
}

impl Deliveries {
    fn figures(&mut self) -> serde_json::Value {
        self.nanoseconds.sort_unstable();
        let at = |share: f64| {
            let index = (self.nanoseconds.len() as f64 * share) as usize;
            let found = self.nanoseconds.get(index.min(self.nanoseconds.len().saturating_sub(1)));
            found.map(|nanoseconds| *nanoseconds as f64 / 1e6)
        };
        serde_json::json!({
            "open": self.open, "deliveries": self.nanoseconds.len(), "p50": at(0.5), "p99": at(0.99), "last": at(1.0)
        })
    }
}

/// One client: connects, subscribes, and reads until the server ends the connection.
async fn client(
    (address, path, identifier): (String, String, String),
    permits: Rc<Semaphore>,
    subscribed: mpsc::UnboundedSender<()>,
    deliveries: Rc<RefCell<Deliveries>>,
) -> Result<(), Box<dyn Error>> {
    let permit = permits.acquire().await?;
    let mut stream = TcpStream::connect(&address).await?;
    let handshake = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
         Cookie: _session=0123456789abcdef0123456789abcdef\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: actioncable-v1-json\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes()).await?;
    let mut bytes = Vec::new();
    while find(&bytes, b"\r\n\r\n").is_none() {
        if read(&mut stream, &mut bytes).await? == 0 {
            return Err("the server has closed the connection in the handshake".into());
        }
    }
    if !bytes.starts_with(b"HTTP/1.1 101 ") {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(format!("the server answers {:?}", String::from_utf8_lossy(line)).into());
    }
    bytes.drain(..find(&bytes, b"\r\n\r\n").unwrap_or_default() + 4);
    let command = serde_json::json!({ "command": "subscribe", "identifier": identifier }).to_string();
    stream.write_all(&masked(command.as_bytes())).await?;
    let (mut permit, mut is_subscribed) = (Some(permit), false);
    loop {
        while let Some((opcode, payload, rest)) = frame(&bytes) {
            if opcode == 8 {
                deliveries.borrow_mut().open -= usize::from(is_subscribed);
                return Err(format!("closed: {payload:?}").into());
            }
            if let Some(at) = find(payload, b"\"sent\":") {
                let digits = payload[at + 7..].iter().take_while(|byte| byte.is_ascii_digit());
                let sent = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
                deliveries.borrow_mut().nanoseconds.push(now().saturating_sub(sent));
            } else if find(payload, b"confirm_subscription").is_some() {
                is_subscribed = true;
                deliveries.borrow_mut().open += 1;
                permit = None;
                subscribed.send(())?;
            } else if find(payload, b"reject_subscription").is_some() {
                return Err("the subscription was rejected".into());
            }
            let used = bytes.len() - rest;
            bytes.drain(..used);
        }
        if bytes.is_empty() {
            // An idle client holds no buffer.
            bytes = Vec::new();
            stream.readable().await?;
        }
        if read(&mut stream, &mut bytes).await? == 0 {
            deliveries.borrow_mut().open -= usize::from(is_subscribed);
            drop(permit);
            return Err("the server has closed the connection".into());
        }
    }
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<usize> {
    bytes.reserve(READ);
    stream.read_buf(bytes).await
}

/// Returns the opcode and payload of a complete frame of a server, and the number of bytes after it.
fn frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (head, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)).ok()?),
        length => (2, usize::from(length)),
    };
    let payload = bytes.get(head..head + length)?;
    Some((bytes[0] & 15, payload, bytes.len() - head - length))
}

/// Returns a text frame of a client, of at most 125 bytes or 64 KiB.
fn masked(payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![0x81];
    match payload.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
