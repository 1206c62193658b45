//! A transport that holds bytes back until it is flushed, as encryption may when the socket is full. Code
//! that forgets to flush loses the end of a response.

use net::Transport;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;

/// Bytes accepted before a flush is needed.
const HOLDS: usize = 64 << 10;

pub struct Holding {
    socket: TcpStream,
    held: RefCell<Vec<u8>>,
}

impl Holding {
    pub fn new(socket: TcpStream) -> Holding {
        Holding { socket, held: RefCell::default() }
    }

    fn room(&self) -> io::Result<usize> {
        match HOLDS - self.held.borrow().len() {
            0 => Err(ErrorKind::WouldBlock.into()),
            room => Ok(room),
        }
    }
}

impl Transport for Holding {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        Transport::poll_readable(&self.socket, cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_flush(cx).map(|_| ())
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Transport::try_read(&self.socket, buffer)
    }

    fn try_read_more(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.socket.try_read_more(buffer)
    }

    fn read_anyway(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read_anyway(buffer)
    }

    fn try_peek(&self) -> io::Result<bool> {
        self.socket.try_peek()
    }

    fn try_write(&self, parts: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let mut room = self.room()?;
        let mut held = self.held.borrow_mut();
        let before = held.len();
        for part in parts {
            let taken = &part[..part.len().min(room)];
            held.extend_from_slice(taken);
            room -= taken.len();
        }
        Ok(held.len() - before)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        while !held.is_empty() {
            match Transport::try_write(&self.socket, &[IoSlice::new(&held)], false) {
                Ok(n) => drop(held.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(Transport::poll_writable(&self.socket, cx));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn try_send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        let mut bytes = vec![0; len.min(self.room()?)];
        let n = file.read_at(&mut bytes, offset)?;
        self.held.borrow_mut().extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn lendable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn has_ended(&self) -> bool {
        self.socket.has_ended()
    }

    fn has_failed(&self) -> bool {
        self.socket.has_failed()
    }

    async fn failed(&self) {
        self.socket.failed().await;
    }

    fn end_writing(&self) {
        self.socket.end_writing();
    }

    fn abort_on_drop(&self) {
        self.socket.abort_on_drop();
    }

    fn delivery(&self) -> Option<net::Delivery> {
        self.socket.delivery()
    }

    fn abandon_after(&self, time: std::time::Duration) {
        self.socket.abandon_after(time);
    }

    fn bound_unsent(&self, bytes: u32) {
        self.socket.bound_unsent(bytes);
    }

    fn cut(&self) {
        self.socket.cut();
    }
}
