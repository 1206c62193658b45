//! The reasons of failed handshakes, for counters, the log and the client.

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};
use std::fmt;
use std::io;

/// The reason of a failed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandshakeRefusal {
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// The client speaks another protocol.
    NotTls,
    /// The client supports no TLS version of this server.
    Version,
    /// No common cipher suite, group or signature.
    NothingInCommon,
    /// There is no certificate for the name that the client requests.
    UnknownName,
    /// There is no certificate at all.
    NoCertificate,
    /// The client has no certificate, or an invalid one.
    ClientCertificate,
    /// The client rejects the server's certificate, or ended the handshake with another alert.
    ClientRefused,
    /// The handshake timed out.
    Timeout,
    /// The client closed the connection.
    Closed,
    /// The server closed the connection to make room for others.
    Displaced,
    /// The client violates the protocol.
    Malformed,
}

impl HandshakeRefusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [HandshakeRefusal; 12] = [
        HandshakeRefusal::PlainHttp,
        HandshakeRefusal::NotTls,
        HandshakeRefusal::Version,
        HandshakeRefusal::NothingInCommon,
        HandshakeRefusal::UnknownName,
        HandshakeRefusal::NoCertificate,
        HandshakeRefusal::ClientCertificate,
        HandshakeRefusal::ClientRefused,
        HandshakeRefusal::Timeout,
        HandshakeRefusal::Closed,
        HandshakeRefusal::Displaced,
        HandshakeRefusal::Malformed,
    ];

    /// Returns the name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            HandshakeRefusal::PlainHttp => "plain_http",
            HandshakeRefusal::NotTls => "not_tls",
            HandshakeRefusal::Version => "version",
            HandshakeRefusal::NothingInCommon => "nothing_in_common",
            HandshakeRefusal::UnknownName => "unknown_name",
            HandshakeRefusal::NoCertificate => "no_certificate",
            HandshakeRefusal::ClientCertificate => "client_certificate",
            HandshakeRefusal::ClientRefused => "client_refused",
            HandshakeRefusal::Timeout => "timeout",
            HandshakeRefusal::Closed => "closed",
            HandshakeRefusal::Displaced => "displaced",
            HandshakeRefusal::Malformed => "malformed",
        }
    }

    /// Whether the operator may be able to fix this, so that a log line is useful.
    pub fn concerns_owner(self) -> bool {
        matches!(
            self,
            HandshakeRefusal::UnknownName
                | HandshakeRefusal::NoCertificate
                | HandshakeRefusal::ClientCertificate
                | HandshakeRefusal::ClientRefused
                | HandshakeRefusal::NothingInCommon
        )
    }

    pub(crate) fn of(error: &Error) -> HandshakeRefusal {
        match error {
            Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            )
            | Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => HandshakeRefusal::Version,
            Error::PeerIncompatible(_) => HandshakeRefusal::NothingInCommon,
            Error::NoCertificatesPresented
            | Error::InvalidCertificate(_)
            | Error::InvalidCertRevocationList(_) => HandshakeRefusal::ClientCertificate,
            Error::AlertReceived(AlertDescription::CloseNotify) => HandshakeRefusal::Closed,
            Error::AlertReceived(_) => HandshakeRefusal::ClientRefused,
            _ => HandshakeRefusal::Malformed,
        }
    }

    pub(crate) fn of_io(error: &io::Error) -> HandshakeRefusal {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        inner.map_or(HandshakeRefusal::Closed, HandshakeRefusal::of)
    }
}

/// Formats a sentence about the client.
impl fmt::Display for HandshakeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandshakeRefusal::PlainHttp => "it speaks HTTP without encryption",
            HandshakeRefusal::NotTls => "it does not speak TLS",
            HandshakeRefusal::Version => "it speaks only old versions of TLS",
            HandshakeRefusal::NothingInCommon => "there is no cipher suite, group or signature in common",
            HandshakeRefusal::UnknownName => "there is no certificate for the name that it asks for",
            HandshakeRefusal::NoCertificate => "there is no certificate yet",
            HandshakeRefusal::ClientCertificate => "it has no certificate, or one that does not verify",
            HandshakeRefusal::ClientRefused => {
                "it does not accept the certificate, or gave up for another reason"
            }
            HandshakeRefusal::Timeout => "it took too long",
            HandshakeRefusal::Closed => "it closed the connection",
            HandshakeRefusal::Displaced => "it was closed to make room for others",
            HandshakeRefusal::Malformed => "its data violates the protocol",
        })
    }
}
