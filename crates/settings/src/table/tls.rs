//! TLS, and redirects to https and to the canonical host.

use std::path::PathBuf;

use super::entry::{Category, bare, entries, long, section};
use crate::kind::Completion;
use crate::kind::lists::{Paths, RequestPatterns};
use crate::kind::numbers::Count;
use crate::kind::texts::{Choice, Host, HstsValue, Path, Switch, TicketSecret};
use crate::kind::wrappers::{Auto, Maybe, OrOff};
use crate::value::hsts::Hsts;
use crate::value::tls::{TlsVersion, Verify};

entries! { Category::Tls;
    /// Speak https for development, with certificates that are made as needed
    HTTPS: bool = Switch, {
        key: "https",
        flags: &[bare("https", "true"), bare("no-https", "false")],
        default: "false",
        more: "The addresses that begin with tcp:// then speak TLS, unless one begins with ssl://. localhost, names below \
               localhost and test, and the loopback addresses have certificates, signed by an authority of this user's \
               own in ~/.local/share/firebrick. `firebrick trust` makes browsers accept it. For a public site give \
               certificates instead.",
    }
    /// Certificates with their chains, PEM files; may be repeated
    CERT: Vec<PathBuf> = Paths, {
        key: "tls.cert",
        flags: &[long("tls-cert", "FILE")],
        default_shown: Some("none"),
        more: "For the addresses that begin with ssl://. Which one a client gets depends on the name that it asks for; \
               the first is for clients that name none, or another. Files are read again when they change. In the file \
               each may be a table [[tls.certificates]] with cert and key.",
        known_as: &["ssl_certificate", "cert", "certificate", "ssl_cert", "tls_cert"],
    }
    /// Private keys of the certificates, in the same order
    KEY: Vec<PathBuf> = Paths, {
        key: "tls.key",
        flags: &[long("tls-key", "FILE")],
        default_shown: Some("none"),
        known_as: &["ssl_certificate_key", "key", "private_key", "ssl_key", "tls_key"],
    }
    /// Authorities whose client certificates are accepted, a PEM file
    CLIENT_CA: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "tls.client_ca",
        flags: &[long("tls-client-ca", "FILE")],
        default_shown: Some("none"),
        known_as: &["ssl_client_certificate", "ca", "client_ca"],
    }
    /// Whether clients show a certificate: none, peer or force_peer
    VERIFY: Verify = Choice(Verify::WORDS), {
        key: "tls.verify",
        flags: &[long("tls-verify", "MODE")],
        default: "none",
        more: "With peer a client may have none, but not a wrong one; with force_peer it must have one. Apps find \
               the result in SSL_CLIENT_VERIFY and the fields of the certificate in SSL_CLIENT_*.",
        known_as: &["verify_mode", "ssl_verify_client", "verify_client"],
    }
    /// Oldest version of TLS: 1.2 or 1.3
    MIN_VERSION: TlsVersion = Choice(&[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)]), {
        key: "tls.min_version",
        flags: &[long("tls-min-version", "VERSION")],
        default: "1.2",
        known_as: &["ssl_protocols", "ssl_min_version", "min_version"],
    }
    /// Refuse clients that ask for a name that no certificate has
    STRICT_NAMES: bool = Switch, {
        key: "tls.strict_names",
        flags: &[bare("tls-strict-names", "true")],
        default: "false",
        more: "Otherwise they get the first certificate of tls.cert, and decide for themselves.",
        known_as: &["ssl_reject_handshake", "sni_required"],
    }
    /// Secret that session tickets are encrypted with, the same on all machines
    TICKET_SECRET: Option<String> = Maybe(TicketSecret), {
        key: "tls.ticket_secret",
        flags: &[long("tls-ticket-secret", "SECRET")],
        env: &["FIREBRICK_TICKET_SECRET"],
        default: "",
        default_shown: Some("generated, and kept in shared.redis or tls.ticket_secret_file"),
        more: "At least 32 characters; `openssl rand -hex 32` makes one. Machines that serve the same names then \
               resume each other's sessions. Prefer the variable or the file: other users of the machine can see flags.",
        secret: true,
        known_as: &["ssl_session_ticket_key", "session_ticket_key"],
    }
    /// File with that secret; made when it is not there
    TICKET_SECRET_FILE: Option<PathBuf> = OrOff(Path(Completion::File)), {
        key: "tls.ticket_secret_file",
        flags: &[long("tls-ticket-secret-file", "FILE|off")],
        default: "off",
        default_shown: Some("tickets.secret in $STATE_DIRECTORY, $XDG_STATE_HOME/firebrick or ~/.local/state/firebrick"),
        more: "Sessions are resumed after a restart because of it. It is readable by this user alone.",
    }
}

section! { Category::Tls;
    /// Redirects between http and https, and between host names.
    Https:

    /// Answer http with a redirect (308) to https
    https_only: Option<bool> = Auto(Switch), {
        key: "https_only",
        flags: &[bare("https-only", "true"), bare("no-https-only", "false")],
        default: "auto",
        default_shown: Some("true for names that [acme] has obtained a certificate for, else false"),
        more: "Behind a trusted proxy X-Forwarded-Proto counts. The same key in static.json is for one site.",
        known_as: &["force_ssl", "ssl_redirect", "force_https"],
    }
    /// Paths that https_only leaves alone
    http_paths: Vec<String> = RequestPatterns, {
        key: "http_paths",
        flags: &[long("http-paths", "PATHS")],
        default: "/.well-known/*",
        more: "A * at the end stands for everything below. Separate paths with commas or repeat the flag; \"\" is none.",
    }
    /// Port of https in redirects
    https_port: Option<u16> = Auto(Count { min: 1, max: 65_535 }), {
        key: "https_port",
        flags: &[long("https-port", "PORT")],
        default: "auto",
        default_shown: Some("that of the first ssl:// address"),
        more: "Give it where a load balancer or a container's port mapping changes the port.",
    }
    /// Serve HTTP/3 on the UDP ports of ssl:// addresses, too
    http3: bool = Switch, {
        key: "http3",
        flags: &[bare("http3", "true"), bare("no-http3", "false")],
        default: "true",
        more: "Responses over TCP announce it (Alt-Svc), so the port has to be open for UDP as well, with the same \
               number outside and inside. Without a UDP port the server runs without HTTP/3 and says so.",
        known_as: &["quic", "h3"],
    }
    /// Strict-Transport-Security for responses over https: how long
    hsts: Option<Hsts> = OrOff(HstsValue), {
        key: "hsts",
        flags: &[long("hsts", "TIME|off")],
        default: "off",
        more: "365d, or \"365d; includeSubDomains; preload\". Browsers then refuse http for that time, whatever happens: \
               begin with a day. A response that has the field already keeps its own.",
        known_as: &["strict_transport_security"],
    }
    /// The host name that all others are redirected to (308)
    canonical_host: Option<String> = Maybe(Host), {
        key: "canonical_host",
        flags: &[long("canonical-host", "HOST")],
        default: "",
        default_shown: Some("none"),
        more: "www.example.com for example.com, or the other way round. Paths of http_paths are left alone. The same key in \
               static.json is for one site.",
        known_as: &["canonical_hostname", "server_name"],
    }
}
