//! Certificates that the server obtains and renews by itself.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, entries, long};
use crate::kind::Completion;
use crate::kind::names::{DirectoryUrl, Domains, Url};
use crate::kind::numbers::{Count, Period};
use crate::kind::texts::{Choice, Path, Secret, Switch, Text};
use crate::kind::wrappers::{Auto, Maybe, OrOff};
use crate::value::acme::Challenge;

entries! { Category::Acme;
    /// Host name or IP address to get a certificate for; may be repeated
    DOMAINS: Vec<String> = Domains, {
        key: "acme.domains",
        flags: &[long("domain", "NAME")],
        env: &["TLS_DOMAIN"],
        default_shown: Some("none"),
        more: "The server obtains one certificate for all the names and renews it. It listens on ports 80 and 443 unless \
               addresses are given. *.example.com needs acme.dns_command; an IP address needs a profile of short-lived \
               certificates. Further certificates are tables [[acme.certificates]] with domains, profile and challenge. \
               The variable is used only if PORT is not set, because Thruster passes both to the server behind it.",
        known_as: &["domain", "domains", "tls_domain", "tls_domains"],
    }
    /// URL of the CA's ACME directory
    DIRECTORY: String = DirectoryUrl, {
        key: "acme.directory",
        flags: &[long("acme-directory", "URL")],
        env: &["ACME_DIRECTORY"],
        default: "https://acme-v02.api.letsencrypt.org/directory",
        more: "The default is Let's Encrypt, whose terms of service you accept by naming a domain.",
        known_as: &["acme_directory", "ca_directory", "acme_ca"],
    }
    /// ACME directory to retry against after the CA has refused an order
    STAGING: Option<Option<String>> = Auto(OrOff(DirectoryUrl)), {
        key: "acme.staging",
        flags: &[long("acme-staging", "URL|off")],
        default: "auto",
        default_shown: Some("Let's Encrypt's staging directory if Let's Encrypt is the CA, else off"),
        more: "Retries there do not count against the CA's rate limits. Certificates from this directory are never served. \
               Its account has the same key as the CA's, and acme.ca applies to it, too.",
        known_as: &["acme_staging", "staging_directory"],
    }
    /// PEM file with the authority that signed the CA's own certificate
    CA: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "acme.ca",
        flags: &[long("acme-ca", "FILE")],
        default_shown: Some("the system's trusted authorities"),
        more: "Use it with an internal or a test CA.",
        known_as: &["acme_ca_root", "ca_root"],
    }
    /// Directory for the ACME account and the certificates
    DIR: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "acme.dir",
        flags: &[long("certs-dir", "DIR")],
        default_shown: Some("certs in $STATE_DIRECTORY, $XDG_STATE_HOME/firebrick or ~/.local/state/firebrick"),
        more: "The server creates it with access for its own user only, because it holds private keys. Keep it across deployments: \
               CAs limit how many certificates they issue.",
        known_as: &["certs_dir", "storage_path", "certificates_dir"],
    }
    /// Redis server to use instead of acme.dir, for several machines
    STORAGE: Option<String> = Maybe(Secret), {
        key: "acme.storage",
        flags: &[long("acme-storage", "URL")],
        env: &["FIREBRICK_ACME_STORAGE"],
        default_shown: Some("none: acme.dir is used"),
        more: "redis://HOST:PORT/DB or rediss://. One machine orders the certificate and all machines serve it. Redis then holds \
               private keys: protect it as well as the directory.",
        secret: true,
    }
    /// Email address for messages from the CA
    EMAIL: Option<String> = Maybe(Text), {
        key: "acme.email",
        flags: &[long("acme-email", "ADDRESS")],
        default_shown: Some("none"),
        known_as: &["acme_email", "contact"],
    }
    /// Certificate profile to request from the CA, such as shortlived
    PROFILE: Option<String> = Maybe(Text), {
        key: "acme.profile",
        flags: &[long("acme-profile", "NAME")],
        default_shown: Some("the CA's default"),
        more: "The CA's documentation lists its profiles. IP addresses need a profile of short-lived certificates.",
    }
    /// How the CA verifies names: auto, http-01, tls-alpn-01 or dns-01
    CHALLENGE: Challenge = Choice(Challenge::WORDS), {
        key: "acme.challenge",
        flags: &[long("acme-challenge", "TYPE")],
        default: "auto",
        more: "auto uses a type that is possible, and tries another type after a failure.",
    }
    /// Command that adds and removes DNS records
    DNS_COMMAND: Option<String> = Maybe(Text), {
        key: "acme.dns_command",
        flags: &[long("acme-dns-command", "COMMAND")],
        default_shown: Some("none"),
        more: "The server runs COMMAND add NAME VALUE and COMMAND remove NAME VALUE, for TXT records, without a shell. \
               The command must return only when the record can be resolved.",
        known_as: &["dns_hook", "dns_command"],
    }
    /// Key id that the CA issued for external account binding (EAB)
    EAB_KID: Option<String> = Maybe(Text), {
        key: "acme.eab_kid",
        flags: &[long("acme-eab-kid", "ID")],
        env: &["EAB_KID"],
        default_shown: Some("none"),
    }
    /// HMAC key that belongs to acme.eab_kid, in base64url
    EAB_HMAC: Option<String> = Maybe(Secret), {
        key: "acme.eab_hmac",
        flags: &[long("acme-eab-hmac", "KEY")],
        env: &["EAB_HMAC_KEY"],
        default: "",
        default_shown: Some("none"),
        more: "Prefer the variable: other users of the machine can see flags.",
        secret: true,
        known_as: &["eab_hmac_key"],
    }
    /// Pause after the first failure; it doubles up to a day
    RETRY: Duration = Period { min: Duration::from_secs(1), max: Duration::from_secs(86_400) }, {
        key: "acme.retry",
        flags: &[long("acme-retry", "TIME")],
        default: "1m",
        more: "CAs limit failed orders, so use a short pause only with your own CA.",
    }
    /// Obtain certificates for further names when clients request them
    ON_DEMAND: bool = Switch, {
        key: "acme.on_demand",
        flags: &[bare("acme-on-demand", "true")],
        default: "false",
        more: "For sites whose customers use their own domains. The URL in acme.ask decides which names are allowed.",
    }
    /// URL that decides which names may get certificates on demand
    ASK: Option<String> = Maybe(Url), {
        key: "acme.ask",
        flags: &[long("acme-ask", "URL")],
        default_shown: Some("none"),
        more: "The server requests it with ?domain=NAME. Status 200 allows the name, any other status refuses it. Answers are cached for a while.",
    }
    /// Maximum number of on-demand orders per hour
    PER_HOUR: u32 = Count { min: 1, max: 100_000 }, {
        key: "acme.on_demand_per_hour",
        flags: &[long("acme-on-demand-per-hour", "N")],
        default: "100",
    }
}
