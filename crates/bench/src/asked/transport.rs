//! How requests travel, when waiting ends, and what counts as right.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use load::inputs;
use load::plan::{Checks, Length, Place, Protocol, Timeouts, Tls, Transport};

use super::flags::Flags;
use super::shown::Format;

pub(super) fn read(flags: &mut Flags<'_>, unix: Option<PathBuf>) -> Transport {
    let to = flags.value("connect-to", place);
    if unix.is_some() && to.is_some() {
        flags.mistake("--connect-to does not go with a unix: URL, which says already where to connect");
    }
    let ca = flags.value("ca", |file| {
        std::fs::File::open(file).map(|_| PathBuf::from(file)).map_err(|why| format!("{file}: {why}"))
    });
    flags.not_with("insecure", &["ca"], "every certificate is believed then");
    let tls = Tls { insecure: flags.is_set("insecure"), ca };
    Transport { protocol: protocol(flags), to: unix.map(Place::Unix).or(to), tls }
}

fn protocol(flags: &mut Flags<'_>) -> Protocol {
    let version = flags.value("http", |text| match text {
        "1" | "1.1" => Ok(1),
        "2" => Ok(2),
        _ => Err(format!("{text:?} is no version that is spoken here: expected 1 or 2")),
    });
    let streams = flags.count("streams");
    let pipeline = flags.count("pipeline").unwrap_or(1);
    if version == Some(1) && streams.is_some() {
        flags.mistake("--streams needs --http 2: HTTP/1.1 has none; its way is --pipeline");
    }
    flags.not_with(
        "no-keep-alive",
        &["pipeline", "streams"],
        "each request has a connection of its own then",
    );
    if version != Some(2) && streams.is_none() {
        return Protocol::Http1 { keep_alive: !flags.is_set("no-keep-alive"), pipeline };
    }
    if flags.given("pipeline") {
        flags.mistake("--pipeline does not go with HTTP/2: expected --streams");
    }
    if flags.is_set("no-keep-alive") && streams.is_none() {
        flags.mistake("--no-keep-alive does not go with HTTP/2, whose connections last");
    }
    Protocol::Http2 { streams: streams.unwrap_or(1) }
}

fn place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() {
            Err("no socket is named: expected unix:/run/app.sock".to_owned())
        } else {
            Ok(Place::Unix(path.into()))
        };
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Place::Tcp(address));
    }
    let expected =
        || format!("{text:?} is no place: expected HOST:PORT, such as 127.0.0.1:9292, or unix:/run/app.sock");
    if text.contains('/') || !text.contains(':') {
        return Err(expected());
    }
    let mut found = text.to_socket_addrs().map_err(|why| format!("{}: {why}", expected()))?;
    found.next().map(Place::Tcp).ok_or_else(expected)
}

pub(super) fn timeouts(flags: &mut Flags<'_>) -> Timeouts {
    Timeouts {
        connect: flags.positive_duration("connect-timeout").unwrap_or(Duration::from_secs(5)),
        request: flags.positive_duration("timeout").unwrap_or(Duration::from_secs(30)),
        grace: flags.duration("grace").unwrap_or(Duration::from_secs(5)),
    }
}

pub(super) fn checks(flags: &mut Flags<'_>, format: Format) -> Checks {
    let statuses = flags.value("expect-status", inputs::statuses);
    let length = flags.value("expect-length", |text| match text {
        "same" => Ok(Length::Same),
        _ => inputs::size(text).map(Length::Exactly).map_err(|why| format!("{why}, or same")),
    });
    Checks {
        // Those tools take every status for an answer and count the bad ones beside.
        statuses: statuses
            .unwrap_or_else(|| if format.counts_every_status() { vec![(100, 999)] } else { Vec::new() }),
        length: length.or_else(|| format.expects_same_length().then_some(Length::Same)),
        sha256: flags.value("expect-sha256", sha256),
        matching: flags.value("expect-body", |text| {
            regex::bytes::Regex::new(text).map_err(|why| format!("{text:?} is no regular expression: {why}"))
        }),
    }
}

fn sha256(text: &str) -> Result<[u8; 32], String> {
    let wrong =
        || format!("{text:?} is no SHA-256: expected 64 hexadecimal digits, as sha256sum prints them");
    let digits = text.trim();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut hash = [0; 32];
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(hash)
}
