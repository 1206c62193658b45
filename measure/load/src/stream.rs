//! A connection's byte stream: TCP or Unix socket, plain or TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::spoken::Listening;

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The result of a TLS handshake.
#[derive(Debug)]
pub(crate) struct Negotiated {
    /// Version and cipher suite, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`.
    pub suite: String,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// The connection to which requests are written.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Listening<Socket>>>),
}

impl Stream {
    /// Returns the encryption.
    pub(crate) fn tls(&self) -> Option<Negotiated> {
        let Stream::Tls(stream) = self else { return None };
        let connection = stream.get_ref().1;
        let version = format!("{:?}", connection.protocol_version()?).replacen('_', ".", 1);
        let suite = format!("{} {:?}", version, connection.negotiated_cipher_suite()?.suite());
        Some(Negotiated { suite, resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed) })
    }

    /// Returns the protocol selected by ALPN.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol(),
        }
    }
}

/// Both enums delegate to their inner streams.
macro_rules! delegate {
    ($type:ty: $($variant:path),+) => {
        impl AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant(inner) => Pin::new(inner).poll_read(cx, buffer),)+ }
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($variant(inner) => Pin::new(inner).poll_write(cx, bytes),)+ }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($variant(inner) => Pin::new(inner).poll_write_vectored(cx, slices),)+ }
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant(inner) => Pin::new(inner).poll_flush(cx),)+ }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant(inner) => Pin::new(inner).poll_shutdown(cx),)+ }
            }
        }
    };
}

delegate!(Socket: Socket::Tcp, Socket::Unix);
delegate!(Stream: Stream::Plain, Stream::Tls);
