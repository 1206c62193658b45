//! Version 2: a binary block with addresses and typed values (section 2.2).

use std::net::SocketAddr;

use super::crc32c::crc32c;
use super::header::{Ends, ParsedHeader, ProxyHeader};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED: usize = 16;
/// The largest variable part, in bytes. Proxies send a few hundred bytes; client certificates need some more.
const LONGEST: usize = 4096;

const TYPE_CRC32C: u8 = 0x03;
const TYPE_SSL: u8 = 0x20;
/// The client uses TLS to the proxy.
const CLIENT_SSL: u8 = 0x01;

pub(super) fn parse(bytes: &[u8]) -> Result<ParsedHeader, &'static str> {
    // Each byte is checked as soon as it arrives, so that an invalid header is rejected early.
    let command = match bytes.get(12) {
        None => return Ok(ParsedHeader::Incomplete),
        Some(0x20) => Command::Local,
        Some(0x21) => Command::Proxy,
        Some(other) if other >> 4 != 2 => return Err("its version is not 2"),
        Some(_) => return Err("its command is neither LOCAL nor PROXY"),
    };
    let Some([family, high, low]) = bytes.get(13..FIXED) else { return Ok(ParsedHeader::Incomplete) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > LONGEST {
        return Err("it is longer than 4096 bytes");
    }
    let Some(header) = bytes.get(..FIXED + length) else { return Ok(ParsedHeader::Incomplete) };
    let body = &header[FIXED..];
    let header = match command {
        // Addresses and values must be ignored.
        Command::Local => ProxyHeader { ends: Ends::Own, tls: None },
        Command::Proxy => {
            let (ends, values) = addresses(*family, body)?;
            ProxyHeader { ends, tls: tls(values, header)? }
        }
    };
    Ok(ParsedHeader::Complete(header, FIXED + length))
}

enum Command {
    Local,
    Proxy,
}

/// Returns the addresses, and the typed values after them.
fn addresses(family: u8, body: &[u8]) -> Result<(Ends, &[u8]), &'static str> {
    const SHORT: &str = "it is too short for its addresses";
    match family {
        // The rest may only be skipped.
        0x00 => Ok((Ends::Own, &[])),
        0x11 => {
            let (ends, rest) = body.split_first_chunk::<12>().ok_or(SHORT)?;
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *ends;
            let remote = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([i, j])));
            Ok((
                Ends::Inet { remote, local: SocketAddr::from(([e, f, g, h], u16::from_be_bytes([k, l]))) },
                rest,
            ))
        }
        0x21 => {
            let (remote, rest) = body.split_first_chunk::<16>().ok_or(SHORT)?;
            let (local, rest) = rest.split_first_chunk::<16>().ok_or(SHORT)?;
            let ([i, j, k, l], rest) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            let remote = SocketAddr::from((*remote, u16::from_be_bytes([*i, *j])));
            Ok((Ends::Inet { remote, local: SocketAddr::from((*local, u16::from_be_bytes([*k, *l]))) }, rest))
        }
        0x31 => Ok((Ends::Unix, body.get(216..).ok_or(SHORT)?)),
        0x12 | 0x22 | 0x32 => Err("it describes datagrams, and this is a stream"),
        _ => Err("its address family is not known"),
    }
}

/// Checks the typed values. Returns whether the client uses TLS, if one of them tells.
fn tls(mut values: &[u8], header: &[u8]) -> Result<Option<bool>, &'static str> {
    const SHORT: &str = "a value is longer than the header";
    let mut tls = None;
    while let Some(([kind, high, low], rest)) = values.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length).ok_or(SHORT)?;
        match *kind {
            TYPE_CRC32C => {
                let sum = u32::from_be_bytes(*value.as_array().ok_or("its checksum has not 4 bytes")?);
                // The checksum covers the whole header, with its own bytes set to 0.
                let at = header.len() - rest.len() - 4;
                if crc32c(&[&header[..at], &[0; 4], rest]) != sum {
                    return Err("its checksum is wrong");
                }
            }
            TYPE_SSL => {
                // Flags of the client, then the result of the certificate verification.
                let flags = value.first().filter(|_| value.len() >= 5).ok_or("its TLS value is too short")?;
                tls = Some(flags & CLIENT_SSL != 0);
            }
            _ => {}
        }
        values = rest;
    }
    if values.is_empty() { Ok(tls) } else { Err(SHORT) }
}
