//! A handshake that failed: the reason, and the connection as it is then.

use crate::HandshakeRefusal;
use net::{TlsStream, Transport};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;

pub struct Failed {
    pub refusal: HandshakeRefusal,
    /// The connection, if it is still open; see [`Failed::linger`].
    pub remains: Option<Remains>,
    /// The host that the client requested, if the handshake came that far.
    pub name: Option<String>,
}

/// The connection of a failed handshake.
pub enum Remains {
    /// Failed before TLS was negotiated.
    Socket(TcpStream),
    /// Failed during the handshake.
    Stream(Box<TlsStream>),
}

impl Remains {
    pub fn socket(&self) -> &TcpStream {
        match self {
            Remains::Socket(socket) => socket,
            Remains::Stream(stream) => stream.socket(),
        }
    }
}

impl Failed {
    /// Closes the connection in such a way that the client can read the last message: waits until the client
    /// has closed its side, for at most two seconds and 64 KiB.
    pub async fn linger(self) {
        let Some(remains) = self.remains else { return };
        let socket = remains.socket();
        Transport::end_writing(socket);
        let read = async {
            let (mut total, mut chunk) = (0, [0; 1024]);
            while total < 64 << 10 && socket.readable().await.is_ok() {
                match socket.try_read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => total += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), read).await;
    }
}
