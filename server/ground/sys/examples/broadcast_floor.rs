//! Measures the minimum cost of a broadcast: one thread sends a message to each of many connections, another one reads them.
//!
//! `broadcast_floor COUNT BROADCASTS` prints the CPU time of the sending thread for each recipient, in microseconds. That is the work of
//! the kernel alone; any further cost of a server is its own. `bench/hub` compares them.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The bytes of a message like those of `bench/hub`.
const MESSAGE: [u8; 150] = [b'x'; 150];
/// The pause between two broadcasts.
const PAUSE: Duration = Duration::from_millis(250);

/// Reads from all connections, as long as the program runs.
fn read(clients: &[TcpStream]) -> rustix::io::Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    for (at, client) in clients.iter().enumerate() {
        epoll::add(&queue, client, EventData::new_u64(at as u64), EventFlags::IN)?;
    }
    let (mut events, mut buffer) = (Vec::with_capacity(256), [0; 4096]);
    loop {
        events.clear();
        epoll::wait(&queue, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let at = usize::try_from({ event.data }.u64()).unwrap_or(0);
            recv(&clients[at], &mut buffer, RecvFlags::empty())?;
        }
    }
}

/// Returns the CPU time of this thread in nanoseconds.
fn used() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [count, broadcasts] = words[..] else { return Err("usage: broadcast_floor COUNT BROADCASTS".into()) };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut clients, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..count {
        clients.push(TcpStream::connect(listener.local_addr()?)?);
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    std::thread::spawn(move || read(&clients).map_err(|error| eprintln!("broadcast_floor: {error}")));
    std::thread::sleep(PAUSE);
    let before = used()?;
    for _ in 0..broadcasts {
        for socket in &sockets {
            send(socket, &MESSAGE, SendFlags::NOSIGNAL)?;
        }
        std::thread::sleep(PAUSE);
    }
    println!("{:.1}", (used()? - before) as f64 / 1e3 / (count * broadcasts) as f64);
    Ok(())
}
