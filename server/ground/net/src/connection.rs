//! A client's TCP connection that is registered with the event loop only when it first has to wait.
//!
//! Why: a connection that is accepted together with its first bytes and ends with its first response never
//! waits. Registering it would cost two system calls (to add and to remove it), and memory for its readiness.
//!
//! Contract:
//! 1. Until a read has found the socket empty, it counts as readable.
//! 2. The first wait registers the socket. From then on it behaves as any other ([`Transport`]).
//! 3. If a socket cannot be registered, its next read or write fails.
//!
//! [`Transport`]: crate::Transport

use crate::socket::Socket;
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

#[derive(Debug)]
pub struct Connection {
    /// The socket until it is registered.
    socket: RefCell<Option<OwnedFd>>,
    /// Whether a read has found the socket empty before it was registered.
    emptied: Cell<bool>,
    registered: OnceCell<TcpStream>,
}

impl Connection {
    /// `socket`: connected and non-blocking.
    pub fn new(socket: OwnedFd) -> Connection {
        Connection {
            socket: RefCell::new(Some(socket)),
            emptied: Cell::new(false),
            registered: OnceCell::new(),
        }
    }

    /// Converts the connection to tokio's type.
    ///
    /// # Errors
    /// The event loop cannot register the socket.
    pub fn into_tokio(self) -> io::Result<TcpStream> {
        self.registered()?;
        self.registered.into_inner().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Registers the socket, unless it is registered.
    fn registered(&self) -> io::Result<&TcpStream> {
        if let Some(stream) = self.registered.get() {
            return Ok(stream);
        }
        // If the registration fails, the socket is closed.
        let socket = self.socket.take().ok_or(ErrorKind::NotConnected)?;
        let stream = TcpStream::from_std(socket.into())?;
        Ok(self.registered.get_or_init(|| stream))
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.registered.get().is_none() && !self.emptied.get() {
            return Poll::Ready(Ok(()));
        }
        self.registered()?.poll_read_ready(cx)
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.registered()?.poll_write_ready(cx)
    }

    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.registered()?.ready(interest).await
    }
}

impl Socket for Connection {
    #[inline]
    fn on<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R> {
        if let Some(stream) = self.registered.get() {
            return call(stream.as_fd());
        }
        match &*self.socket.borrow() {
            Some(socket) => call(socket.as_fd()),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    #[inline]
    fn try_on<R>(
        &self,
        interest: Interest,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R> {
        if let Some(stream) = self.registered.get() {
            return stream.try_io(interest, || call(stream.as_fd()));
        }
        let result = self.on(call);
        if interest == Interest::READABLE
            && result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        {
            self.emptied.set(true);
        }
        result
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.registered().ok().map(AsFd::as_fd)
    }

    fn is_watched(&self) -> bool {
        self.registered.get().is_some()
    }
}

/// Returns -1 if the socket could not be registered.
impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.on(|fd| Ok(fd.as_raw_fd())).unwrap_or(-1)
    }
}

/// A listening TCP socket that is registered with the event loop.
#[derive(Debug)]
pub struct Listener {
    /// tokio's own listener registers accepted sockets at once. This type is only used to wait, which works
    /// for any socket.
    socket: TcpStream,
}

impl Listener {
    /// `socket`: listening and non-blocking.
    ///
    /// # Errors
    /// The event loop cannot register the socket.
    pub fn new(socket: OwnedFd) -> io::Result<Listener> {
        Ok(Listener { socket: TcpStream::from_std(socket.into())? })
    }

    /// Waits for the next connection. Returns its non-blocking socket and the client's address.
    ///
    /// # Errors
    /// As accept(2).
    pub async fn accept(&self) -> io::Result<(OwnedFd, SocketAddr)> {
        self.socket.async_io(Interest::READABLE, || sys::socket::accept(self.socket.as_fd())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;
    use std::future::poll_fn;
    use std::io::{IoSlice, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::task::Waker;

    fn accept(listener: &TcpListener) -> (Connection, SocketAddr) {
        let (socket, remote) = sys::socket::accept(listener.as_fd()).unwrap();
        (Connection::new(socket), remote)
    }

    fn run(work: impl AsyncFnOnce(TcpStream, Connection)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        runtime.unwrap().block_on(async {
            let (connection, remote) = accept(&listener);
            assert_eq!(remote, client.local_addr().unwrap());
            work(client, connection).await;
        });
    }

    fn now<R>(poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
        poll(&mut Context::from_waker(Waker::noop()))
    }

    async fn read(connection: &Connection, wanted: &[u8]) {
        poll_fn(|cx| Transport::poll_readable(connection, cx)).await;
        let mut buffer = [0; 64];
        let n = Transport::try_read(connection, &mut buffer).unwrap();
        assert_eq!(&buffer[..n], wanted);
    }

    #[test]
    fn what_never_waits_is_not_registered() {
        run(async |mut client, connection| {
            client.write_all(b"question").unwrap();
            assert!(now(|cx| Transport::poll_readable(&connection, cx)).is_ready());
            read(&connection, b"question").await;
            assert_eq!(Transport::try_write(&connection, &[IoSlice::new(b"answer")], false).unwrap(), 6);
            assert!(!Socket::is_watched(&connection));
            drop(connection);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "answer");
        });
    }

    #[test]
    fn the_first_wait_registers_and_misses_nothing() {
        run(async |mut client, connection| {
            let mut buffer = [0; 8];
            assert!(now(|cx| Transport::poll_readable(&connection, cx)).is_ready(), "nobody has looked");
            let nothing = Transport::try_read(&connection, &mut buffer).unwrap_err();
            assert_eq!((nothing.kind(), Socket::is_watched(&connection)), (ErrorKind::WouldBlock, false));
            client.write_all(b"one").unwrap();
            assert!(now(|cx| Transport::poll_readable(&connection, cx)).is_pending());
            assert!(Socket::is_watched(&connection));
            read(&connection, b"one").await;
            assert!(now(|cx| Transport::poll_readable(&connection, cx)).is_pending());
            client.write_all(b"two").unwrap();
            read(&connection, b"two").await;
            drop(client);
            read(&connection, b"").await;
            assert!(Transport::has_ended(&connection));
        });
    }

    #[test]
    fn a_full_socket_is_waited_for() {
        run(async |mut client, connection| {
            let piece = vec![7; 1 << 20];
            let mut sent = 0;
            while let Ok(n) = Transport::try_write(&connection, &[IoSlice::new(&piece)], false) {
                sent += n;
            }
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                client.read_to_end(&mut all).map(|_| all.len())
            });
            poll_fn(|cx| Transport::poll_writable(&connection, cx)).await;
            sent += Transport::try_write(&connection, &[IoSlice::new(b"end")], false).unwrap();
            drop(connection);
            assert_eq!(reader.join().unwrap().unwrap(), sent);
        });
    }

    #[test]
    fn a_socket_that_cannot_be_registered_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = accept(&listener);
        drop(connection.socket.take());
        let error = Transport::try_write(&connection, &[IoSlice::new(b"x")], false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
    }

    #[test]
    fn a_listener_waits_for_clients() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        runtime.unwrap().block_on(async {
            let listener = Listener::new(socket.into()).unwrap();
            for _ in 0..3 {
                let client = std::thread::spawn(move || TcpStream::connect(address).unwrap());
                let (_, remote) = listener.accept().await.unwrap();
                assert_eq!(remote, client.join().unwrap().local_addr().unwrap());
            }
        });
    }

    #[test]
    fn it_becomes_a_stream_of_tokio() {
        run(async |mut client, connection| {
            client.write_all(b"hello").unwrap();
            let stream = connection.into_tokio().unwrap();
            stream.readable().await.unwrap();
            let mut buffer = [0; 8];
            assert_eq!(stream.try_read(&mut buffer).unwrap(), 5);
        });
    }
}
