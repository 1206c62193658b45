//! The reasons of failed handshakes, for counters, the log and the client.

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};
use std::fmt;
use std::io;

/// The reason of a failed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
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

impl Refusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Refusal; 12] = [
        Refusal::PlainHttp,
        Refusal::NotTls,
        Refusal::Version,
        Refusal::NothingInCommon,
        Refusal::UnknownName,
        Refusal::NoCertificate,
        Refusal::ClientCertificate,
        Refusal::ClientRefused,
        Refusal::Timeout,
        Refusal::Closed,
        Refusal::Displaced,
        Refusal::Malformed,
    ];

    /// Returns the name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::PlainHttp => "plain_http",
            Refusal::NotTls => "not_tls",
            Refusal::Version => "version",
            Refusal::NothingInCommon => "nothing_in_common",
            Refusal::UnknownName => "unknown_name",
            Refusal::NoCertificate => "no_certificate",
            Refusal::ClientCertificate => "client_certificate",
            Refusal::ClientRefused => "client_refused",
            Refusal::Timeout => "timeout",
            Refusal::Closed => "closed",
            Refusal::Displaced => "displaced",
            Refusal::Malformed => "malformed",
        }
    }

    /// Whether the operator may be able to fix this, so that a log line is useful.
    pub fn concerns_owner(self) -> bool {
        matches!(
            self,
            Refusal::UnknownName
                | Refusal::NoCertificate
                | Refusal::ClientCertificate
                | Refusal::ClientRefused
                | Refusal::NothingInCommon
        )
    }

    pub(crate) fn of(error: &Error) -> Refusal {
        match error {
            Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired,
            )
            | Error::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => Refusal::Version,
            Error::PeerIncompatible(_) => Refusal::NothingInCommon,
            Error::NoCertificatesPresented
            | Error::InvalidCertificate(_)
            | Error::InvalidCertRevocationList(_) => Refusal::ClientCertificate,
            Error::AlertReceived(AlertDescription::CloseNotify) => Refusal::Closed,
            Error::AlertReceived(_) => Refusal::ClientRefused,
            _ => Refusal::Malformed,
        }
    }

    pub(crate) fn of_io(error: &io::Error) -> Refusal {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        inner.map_or(Refusal::Closed, Refusal::of)
    }
}

/// Formats a sentence about the client.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::PlainHttp => "it speaks HTTP without encryption",
            Refusal::NotTls => "it does not speak TLS",
            Refusal::Version => "it speaks only old versions of TLS",
            Refusal::NothingInCommon => "there is no cipher suite, group or signature in common",
            Refusal::UnknownName => "there is no certificate for the name that it asks for",
            Refusal::NoCertificate => "there is no certificate yet",
            Refusal::ClientCertificate => "it has no certificate, or one that does not verify",
            Refusal::ClientRefused => "it does not accept the certificate, or gave up for another reason",
            Refusal::Timeout => "it took too long",
            Refusal::Closed => "it closed the connection",
            Refusal::Displaced => "it was closed to make room for others",
            Refusal::Malformed => "what it sent violates the protocol",
        })
    }
}
