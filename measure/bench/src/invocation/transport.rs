//! Transport, timeouts and checks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use load::inputs;
use load::scenario::{Checks, ConnectTo, Length, Protocol, Request, Timeouts, Tls, Transport};

use super::flags::Flags;
use super::output::Format;

pub(super) fn read(flags: &mut Flags<'_>, unix: Option<PathBuf>) -> Transport {
    let to = flags.value("connect-to", connect_to);
    if unix.is_some() && to.is_some() {
        flags.mistake("--connect-to cannot be used with a unix: URL, which already names the socket");
    }
    let ca = flags.value("ca", |file| {
        std::fs::File::open(file).map(|_| PathBuf::from(file)).map_err(|why| format!("{file}: {why}"))
    });
    flags.not_with("insecure", &["ca"], "it trusts every certificate");
    let tls = Tls { insecure: flags.is_set("insecure"), ca, resume: flags.is_set("resume") };
    Transport { protocol: protocol(flags), to: unix.map(ConnectTo::Unix).or(to), tls }
}

fn protocol(flags: &mut Flags<'_>) -> Protocol {
    let version = flags.value("http", |text| match text {
        "1" | "1.1" => Ok(1),
        "2" => Ok(2),
        "3" => Ok(3),
        _ => Err(format!("{text:?} is not a supported HTTP version: expected 1, 2 or 3")),
    });
    let streams = flags.count("streams");
    let pipeline = flags.count("pipeline").unwrap_or(1);
    if version == Some(1) && streams.is_some() {
        flags.mistake("--streams requires --http 2 or 3; for HTTP/1.1 use --pipeline");
    }
    flags.not_with("no-keep-alive", &["pipeline", "streams"], "each request has its own connection");
    let version = match version {
        Some(version @ 2..) => version,
        _ if streams.is_some() => 2,
        _ => return Protocol::Http1 { keep_alive: !flags.is_set("no-keep-alive"), pipeline },
    };
    if flags.given("pipeline") {
        flags.mistake(format!("--pipeline cannot be used with HTTP/{version}: use --streams"));
    }
    if flags.is_set("no-keep-alive") && streams.is_none() {
        flags.mistake(format!(
            "--no-keep-alive cannot be used with HTTP/{version}, whose connections are persistent"
        ));
    }
    match (version, streams.unwrap_or(1)) {
        (3, streams) => Protocol::Http3 { streams },
        (_, streams) => Protocol::Http2 { streams },
    }
}

/// Checks that HTTP/3 is encrypted and can use UDP.
pub(super) fn http3(flags: &mut Flags<'_>, transport: &Transport, requests: &[Request]) {
    if !matches!(transport.protocol, Protocol::Http3 { .. }) {
        return;
    }
    if let Some(ConnectTo::Unix(path)) = &transport.to {
        flags
            .mistake(format!("--http 3 needs UDP, which Unix sockets do not carry: unix:{}", path.display()));
    } else if let Some(request) = requests.iter().find(|request| !request.origin.tls) {
        flags.mistake(format!(
            "--http 3 is always encrypted: use https:// for {}:{}",
            request.origin.host, request.origin.port
        ));
    }
}

fn connect_to(text: &str) -> Result<ConnectTo, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return if path.is_empty() {
            Err("no socket: expected unix:/run/app.sock".to_owned())
        } else {
            Ok(ConnectTo::Unix(path.into()))
        };
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(ConnectTo::Tcp(address));
    }
    let expected = || {
        format!(
            "{text:?} is not an address: expected HOST:PORT, such as 127.0.0.1:9292, or unix:/run/app.sock"
        )
    };
    if text.contains('/') || !text.contains(':') {
        return Err(expected());
    }
    let mut found = text.to_socket_addrs().map_err(|why| format!("{}: {why}", expected()))?;
    found.next().map(ConnectTo::Tcp).ok_or_else(expected)
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
        // These tools count every status as a response and list the bad ones separately.
        statuses: statuses
            .unwrap_or_else(|| if format.counts_every_status() { vec![(100, 999)] } else { Vec::new() }),
        length: length.or_else(|| format.expects_same_length().then_some(Length::Same)),
        sha256: flags.value("expect-sha256", sha256),
        matching: flags.value("expect-body", |text| {
            regex::bytes::Regex::new(text)
                .map_err(|why| format!("{text:?} is not a valid regular expression: {why}"))
        }),
        recorded: None,
    }
}

fn sha256(text: &str) -> Result<[u8; 32], String> {
    text::from_hex(text.trim()).ok_or_else(|| {
        format!("{text:?} is not a SHA-256 hash: expected 64 hexadecimal digits, as sha256sum prints them")
    })
}
