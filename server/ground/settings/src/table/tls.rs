//! TLS, and redirects to https and to the canonical host.

use std::path::PathBuf;

use super::entry::{Category, bare, entries, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::lists::{Paths, RequestPatterns};
use crate::kind::numbers::Count;
use crate::kind::texts::{Choice, HstsValue, Path, SiteHost, Switch, TicketSecret};
use crate::kind::wrappers::{Auto, Maybe, OrOff};
use crate::value::hsts::Hsts;
use crate::value::tls::{TlsVersion, Verify};

entries! { Category::Tls;
    /// Serve HTTPS in development, with generated certificates
    HTTPS: bool = Switch, {
        key: "https",
        flags: &[bare("https", "true"), bare("no-https", "false")],
        default: "false",
        more: "Addresses that begin with tcp:// then use TLS, unless there is an address that begins with ssl://. The server generates \
               certificates for localhost, names below localhost and test, and the loopback addresses. A certificate authority of \
               this user in ~/.local/share/firebrick signs them; `firebrick trust` makes browsers accept it. For a public site, set \
               tls.cert or acme.domains instead.",
    }
    /// PEM files with a certificate and its chain; may be repeated
    CERT: Vec<PathBuf> = Paths, {
        key: "tls.cert",
        flags: &[long("tls-cert", "FILE")],
        default_shown: Some("none"),
        more: "The certificates are for addresses that begin with ssl://. The server chooses one by the name that the client requests (SNI); \
               clients that send no name, or an unknown one, get the first. Changed files are reloaded automatically. In the \
               configuration file, each certificate can also be a table [[tls.certificates]] with cert and key.",
        known_as: &["ssl_certificate", "cert", "certificate", "ssl_cert", "tls_cert"],
    }
    /// PEM files with the private keys of tls.cert, in the same order
    KEY: Vec<PathBuf> = Paths, {
        key: "tls.key",
        flags: &[long("tls-key", "FILE")],
        default_shown: Some("none"),
        known_as: &["ssl_certificate_key", "key", "private_key", "ssl_key", "tls_key"],
    }
    /// PEM file with the authorities that sign client certificates
    CLIENT_CA: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "tls.client_ca",
        flags: &[long("tls-client-ca", "FILE")],
        default_shown: Some("none"),
        known_as: &["ssl_client_certificate", "ca", "client_ca"],
    }
    /// Whether to verify client certificates: none, peer or force_peer
    VERIFY: Verify = Choice(Verify::WORDS), {
        key: "tls.verify",
        flags: &[long("tls-verify", "MODE")],
        default: "none",
        more: "With peer, a client can omit the certificate, but an invalid one is refused. With force_peer, a client must have a valid \
               certificate. The Rack environment has the result in SSL_CLIENT_VERIFY and the certificate's fields in SSL_CLIENT_*.",
        known_as: &["verify_mode", "ssl_verify_client", "verify_client"],
    }
    /// Minimum version of TLS: 1.2 or 1.3
    MIN_VERSION: TlsVersion = Choice(&[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)]), {
        key: "tls.min_version",
        flags: &[long("tls-min-version", "VERSION")],
        default: "1.2",
        known_as: &["ssl_protocols", "ssl_min_version", "min_version"],
    }
    /// Refuse clients that request a name without a certificate
    STRICT_NAMES: bool = Switch, {
        key: "tls.strict_names",
        flags: &[bare("tls-strict-names", "true")],
        default: "false",
        more: "By default these clients get the first certificate of tls.cert, and decide whether to accept it.",
        known_as: &["ssl_reject_handshake", "sni_required"],
    }
    /// Secret for encrypting session tickets, the same on all machines
    TICKET_SECRET: Option<String> = Maybe(TicketSecret), {
        key: "tls.ticket_secret",
        flags: &[long("tls-ticket-secret", "SECRET")],
        env: &["FIREBRICK_TICKET_SECRET"],
        default: "",
        default_shown: Some("generated, and stored in shared.redis or tls.ticket_secret_file"),
        more: "At least 32 characters; `openssl rand -hex 32` generates a secret. Machines that serve the same names then \
               resume each other's sessions. Prefer the variable or the file: other users of the machine can see flags.",
        secret: true,
        known_as: &["ssl_session_ticket_key", "session_ticket_key"],
    }
    /// File with the ticket secret; created if it does not exist
    TICKET_SECRET_FILE: Option<PathBuf> = OrOff(Path(Completion::File)), {
        key: "tls.ticket_secret_file",
        flags: &[long("tls-ticket-secret-file", "FILE|off")],
        default: "off",
        default_shown: Some("tickets.secret in $STATE_DIRECTORY, $XDG_STATE_HOME/firebrick or ~/.local/state/firebrick"),
        more: "With this file, clients can resume their sessions after a restart. Only the server's user can read it.",
    }
}

section! { Category::Tls;
    /// Redirects between http and https, and between host names.
    Https:

    /// Redirect HTTP requests to HTTPS (308)
    https_only: Option<bool> = Auto(Switch), {
        key: "https_only",
        flags: &[bare("https-only", "true"), bare("no-https-only", "false")],
        default: "auto",
        default_shown: Some("true for names with a certificate obtained by [acme], else false"),
        more: "X-Forwarded-Proto counts if it comes from a trusted proxy (rack.trusted_proxies). The same key in static.json applies to one site.",
        known_as: &["force_ssl", "ssl_redirect", "force_https"],
    }
    /// Paths that https_only does not redirect
    http_paths: Vec<String> = RequestPatterns, {
        key: "http_paths",
        flags: &[long("http-paths", "PATHS")],
        default: "/.well-known/*",
        more: "A * at the end matches all paths below. Separate paths with commas or repeat the flag; \"\" means none.",
    }
    /// HTTPS port to use in redirects
    https_port: Option<u16> = Auto(Count { min: 1, max: 65_535 }), {
        key: "https_port",
        flags: &[long("https-port", "PORT")],
        default: "auto",
        default_shown: Some("the port of the first ssl:// address"),
        more: "Set it if a load balancer or a container's port mapping changes the port.",
    }
    /// Serve HTTP/3 on the UDP ports of ssl:// addresses
    http3: bool = Switch, {
        key: "http3",
        flags: &[bare("http3", "true"), bare("no-http3", "false")],
        off: "Turn HTTP/3 off",
        default: "true",
        more: "Responses over TCP announce HTTP/3 (Alt-Svc), so the port must be open for UDP, too, with the same \
               number outside and inside. If the UDP port is not available, the server runs without HTTP/3 and logs this.",
        known_as: &["quic", "h3"],
    }
    /// Duration of Strict-Transport-Security in HTTPS responses, or off
    hsts: Option<Hsts> = OrOff(HstsValue), {
        key: "hsts",
        flags: &[long("hsts", "TIME|off")],
        default: "off",
        more: "365d, or \"365d; includeSubDomains; preload\". Browsers then refuse plain HTTP for this time, even if you turn it off again: \
               start with a day. A response that already has the header field keeps its value.",
        known_as: &["strict_transport_security"],
    }
    /// Host name to which requests for other hosts are redirected (308)
    canonical_host: Option<String> = Maybe(SiteHost), {
        key: "canonical_host",
        flags: &[long("canonical-host", "HOST")],
        default: "",
        default_shown: Some("none"),
        more: "Redirects example.com to www.example.com, or the other way round. Paths in http_paths are not redirected. The same key in \
               static.json applies to one site.",
        known_as: &["canonical_hostname", "server_name"],
    }
}
