//! Measures the minimum cost of a response: an epoll loop that reads the received bytes and sends the same
//! response without parsing anything.
//!
//! `floor PORT FILE` answers each read with a head like a web server's and the content of FILE. HTTP/1.0
//! connections are closed after the response. The cost of this program is that of the kernel; any further
//! cost of Firebrick is its own. `bench/floor` compares them.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// The event data of the listener. Connections have their descriptor's number.
const LISTENER: u64 = u64::MAX;
/// The same events as the servers that it is compared with.
const EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

fn response(body: &[u8]) -> Vec<u8> {
    let mut response = format!(
        "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(body);
    response
}

/// Reads and answers once. Returns whether the connection continues.
fn answer(socket: impl AsFd, buffer: &mut Vec<u8>, response: &[u8]) -> Result<bool, Errno> {
    buffer.clear();
    match recv(&socket, spare_capacity(buffer), RecvFlags::empty()) {
        Ok((0, _)) => return Ok(false),
        Ok(_) => {}
        Err(Errno::WOULDBLOCK) => return Ok(true),
        Err(error) => return Err(error),
    }
    send(&socket, response, SendFlags::NOSIGNAL)?;
    let line = buffer.split(|&byte| byte == b'\r').next().unwrap_or_default();
    Ok(!line.ends_with(b"HTTP/1.0")
        || buffer.windows(10).any(|part| part.eq_ignore_ascii_case(b"keep-alive")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, file] = &words[..] else { return Err("usage: floor PORT FILE".into()) };
    let response = response(&std::fs::read(file)?);
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?))?;
    listener.set_nonblocking(true)?;
    sys::socket::defer_accept(&listener, Duration::from_secs(1));
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&queue, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    // Indexed by descriptor number.
    let mut sockets: Vec<Option<OwnedFd>> = Vec::new();
    let (mut events, mut buffer) = (Vec::with_capacity(256), Vec::with_capacity(64 << 10));
    loop {
        events.clear();
        epoll::wait(&queue, spare_capacity(&mut events), None)?;
        for event in &events {
            let key = { event.data }.u64();
            if key != LISTENER {
                let Some(Some(socket)) = sockets.get(key as usize) else { continue };
                if !{ event.flags }.intersects(EventFlags::IN | EventFlags::RDHUP) {
                    continue;
                }
                if !answer(socket, &mut buffer, &response).unwrap_or(false) {
                    sockets[key as usize] = None;
                }
                continue;
            }
            while let Ok(socket) = accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
                // A connection that ends with its first response is never registered.
                if answer(&socket, &mut buffer, &response).unwrap_or(false) {
                    let key = usize::try_from(socket.as_raw_fd())?;
                    epoll::add(&queue, &socket, EventData::new_u64(key as u64), EVENTS)?;
                    sockets.resize_with(sockets.len().max(key + 1), || None);
                    sockets[key] = Some(socket);
                }
            }
        }
    }
}
