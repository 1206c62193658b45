//! Calls on sockets, whether the event loop has them or not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// Calls on a socket, registered with the event loop or not.
pub(crate) trait Socket {
    fn on<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R>;
    /// Performs a call if it may succeed. `WouldBlock` clears the readiness.
    fn try_on<R>(
        &self,
        interest: Interest,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
    ) -> io::Result<R>;
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    fn is_watched(&self) -> bool {
        true
    }
}

macro_rules! registered {
    ($stream:ty) => {
        impl Socket for $stream {
            #[inline]
            fn on<R>(&self, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R> {
                call(self.as_fd())
            }

            #[inline]
            fn try_on<R>(
                &self,
                interest: Interest,
                call: impl FnOnce(BorrowedFd<'_>) -> io::Result<R>,
            ) -> io::Result<R> {
                self.try_io(interest, || call(self.as_fd()))
            }

            fn descriptor(&self) -> Option<BorrowedFd<'_>> {
                Some(self.as_fd())
            }
        }
    };
}

registered!(TcpStream);
registered!(UnixStream);
