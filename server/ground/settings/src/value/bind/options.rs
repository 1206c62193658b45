//! Options after the `?` of an address.

use std::path::PathBuf;

use super::{DEFAULT_BACKLOG, ProxyProtocol};
use text::digits;

use crate::nearest::nearest;
use crate::value::tls::{BindTls, CertificateFiles, Verify};
use text::Mistake;

/// Options of `tcp://`.
pub(super) const TCP: &[&str] = &["backlog", "h2c", "proxy_protocol", "ipv6only"];
/// Options of `ssl://`.
pub(super) const SSL: &[&str] =
    &["cert", "key", "ca", "verify_mode", "backlog", "proxy_protocol", "ipv6only"];
/// Options of `unix://`.
pub(super) const UNIX: &[&str] = &["umask", "mode", "backlog"];

/// The options of one address; the scheme decides which are allowed.
pub(super) struct Options {
    pub(super) umask: Option<u32>,
    pub(super) mode: Option<u32>,
    pub(super) backlog: u32,
    pub(super) http2: bool,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
    pub(super) ipv6only: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    verify: Option<Verify>,
}

impl Options {
    pub(super) fn parse(query: &str, allowed: &[&'static str]) -> Result<Options, Mistake> {
        let mut options = Options {
            umask: None,
            mode: None,
            backlog: DEFAULT_BACKLOG,
            http2: false,
            proxy_protocol: None,
            ipv6only: false,
            cert: None,
            key: None,
            ca: None,
            verify: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                _ if allowed == SSL && pumas(name, value)? => {}
                _ if !allowed.contains(&name) => {
                    let only = format!("only {} behind the ?, not {name:?}", allowed.join(", "));
                    return Err(Mistake::expected(only).near(nearest(name, allowed.iter().copied())));
                }
                "umask" => options.umask = Some(octal(name, value)?),
                "mode" => options.mode = Some(octal(name, value)?),
                "h2c" => options.http2 = switch(name, value)?,
                "ipv6only" => options.ipv6only = switch(name, value)?,
                "proxy_protocol" => options.proxy_protocol = Some(proxy_protocol(value)?),
                "cert" => options.cert = Some(path(name, value)?),
                "key" => options.key = Some(path(name, value)?),
                "ca" => options.ca = Some(path(name, value)?),
                "verify_mode" => options.verify = Some(verify_mode(value)?),
                _ => options.backlog = backlog(value)?,
            }
        }
        Ok(options)
    }

    /// Returns the TLS settings of an `ssl://` address.
    pub(super) fn tls(&self) -> Result<BindTls, Mistake> {
        let files = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(CertificateFiles { cert: cert.clone(), key: key.clone() }),
            (None, None) => None,
            (Some(_), None) => return Err(Mistake::expected("key=FILE too: the private key of cert=")),
            (None, Some(_)) => {
                return Err(Mistake::expected("cert=FILE too: the certificate that key= belongs to"));
            }
        };
        Ok(BindTls { files, ca: self.ca.clone(), verify: self.verify })
    }
}

/// Judges options of Puma that do not exist here. Returns `true` if the server behaves that way anyway.
fn pumas(name: &str, value: &str) -> Result<bool, Mistake> {
    let why = match (name, value) {
        ("no_tlsv1" | "no_tlsv1_1" | "reuse", "true") => return Ok(true),
        ("no_tlsv1" | "no_tlsv1_1", _) => {
            format!("no {name}: TLS 1.0 and 1.1 are broken (RFC 8996) and not part of this server")
        }
        ("reuse", _) => "no reuse: sessions are always resumed, by tickets that need no memory".to_owned(),
        ("ssl_cipher_filter" | "ssl_ciphersuites", _) => format!(
            "no {name}: the cipher suites are fixed, all of them offer forward secrecy and authenticated \
             encryption (Mozilla's \"intermediate\"); tls.min_version = \"1.3\" leaves out TLS 1.2"
        ),
        ("verification_flags", _) => {
            "no verification_flags: client certificates are checked by their chain, their dates and their purpose"
                .to_owned()
        }
        ("key_password_command", _) => {
            "no key_password_command: the key must not be encrypted (openssl pkey -in old.pem -out new.pem)".to_owned()
        }
        ("keystore" | "keystore_pass" | "truststore" | "truststore_pass", _) => {
            format!("no {name}, which is for JRuby: give cert= and key= as PEM files")
        }
        ("cert_pem" | "key_pem", _) => format!("no {name}: give a file (cert= and key=)"),
        _ => return Ok(false),
    };
    Err(Mistake::expected(why))
}

fn octal(name: &str, value: &str) -> Result<u32, Mistake> {
    let bits = digits(value).and_then(|_| u32::from_str_radix(value, 8).ok()).filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| Mistake::expected(format!("octal permissions such as {name}=0660")))
}

fn switch(name: &str, value: &str) -> Result<bool, Mistake> {
    text::switch::parse(value).ok_or_else(|| Mistake::expected(format!("{name}=true or {name}=false")))
}

fn backlog(value: &str) -> Result<u32, Mistake> {
    let number = digits(value).filter(|number| (1..=i32::MAX as u64).contains(number));
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Mistake::expected("a whole number of at least 1 behind backlog="))
}

fn proxy_protocol(value: &str) -> Result<ProxyProtocol, Mistake> {
    let versions = [ProxyProtocol::V1, ProxyProtocol::V2, ProxyProtocol::Any];
    let found = versions.into_iter().find(|version| version.word() == value);
    found.ok_or_else(|| Mistake::expected("proxy_protocol=v1, proxy_protocol=v2 or proxy_protocol=any"))
}

fn verify_mode(value: &str) -> Result<Verify, Mistake> {
    let found = Verify::WORDS.iter().find(|(word, _)| *word == value).map(|(_, verify)| *verify);
    found.ok_or_else(|| {
        let expected =
            "verify_mode=none, verify_mode=peer (a certificate is optional) or verify_mode=force_peer";
        Mistake::expected(expected).near(nearest(value, ["none", "peer", "force_peer"]))
    })
}

/// Reads a path with percent-encoding, for example `%26` for `&`.
fn path(name: &str, value: &str) -> Result<PathBuf, Mistake> {
    let decoded = text::percent::decode_strict(value.as_bytes())
        .and_then(|path| String::from_utf8(path.into_owned()).ok())
        .filter(|path| !path.trim().is_empty() && !path.contains('\0'));
    decoded.map(PathBuf::from).ok_or_else(|| Mistake::expected(format!("the path of a file behind {name}=")))
}
