//! Version 1: a line of text (section 2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::header::{Ends, ParsedHeader, ProxyHeader};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";
/// The longest line with its CRLF, in bytes.
const LONGEST: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<ParsedHeader, &'static str> {
    let within = &bytes[..bytes.len().min(LONGEST)];
    let Some(end) = within.iter().position(|byte| *byte == b'\r' || *byte == b'\n') else {
        return if bytes.len() < LONGEST {
            Ok(ParsedHeader::Incomplete)
        } else {
            Err("its line is longer than 107 bytes")
        };
    };
    match within.get(end..end + 2) {
        Some(b"\r\n") => {}
        None if within.ends_with(b"\r") && bytes.len() < LONGEST => return Ok(ParsedHeader::Incomplete),
        _ => return Err("its line does not end with CR LF"),
    }
    let line = within[..end].strip_prefix(SIGNATURE).ok_or("its line is too short")?;
    let line = std::str::from_utf8(line).map_err(|_| "it is not ASCII")?;
    let ends = ends(line)?;
    Ok(ParsedHeader::Complete(ProxyHeader { ends, tls: None }, end + 2))
}

fn ends(line: &str) -> Result<Ends, &'static str> {
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    let address: fn(&str) -> Option<IpAddr> = match family {
        // The rest of the line must be ignored.
        "UNKNOWN" => return Ok(Ends::Own),
        "TCP4" => |word| word.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        "TCP6" => |word| word.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        _ => return Err("expected TCP4, TCP6 or UNKNOWN"),
    };
    let mut next = || words.next().ok_or("expected two addresses and two ports");
    let (remote, local, remote_port, local_port) = (next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err("there is more than two addresses and two ports");
    }
    let socket = |word: &str, digits: &str| -> Result<SocketAddr, &'static str> {
        let address = address(word).ok_or("an address is not of its family")?;
        Ok(SocketAddr::new(address, port(digits).ok_or("expected ports from 0 to 65535")?))
    };
    Ok(Ends::Inet { remote: socket(remote, remote_port)?, local: socket(local, local_port)? })
}

/// Parses decimal digits without leading zeros.
fn port(digits: &str) -> Option<u16> {
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok()).flatten()
}
