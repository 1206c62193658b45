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
    /// Name to obtain a certificate for; may be repeated
    DOMAINS: Vec<String> = Domains, {
        key: "acme.domains",
        flags: &[long("domain", "NAME")],
        env: &["TLS_DOMAIN"],
        default_shown: Some("none"),
        more: "The server obtains one certificate for all of them, renews it, and listens on ports 80 and 443 unless \
               addresses are given. *.example.com needs acme.dns_command; an IP address needs the profile of short-lived \
               certificates. More certificates are tables [[acme.certificates]] with domains, profile and challenge. \
               The variable counts only when PORT is not set, because a proxy in front of the server sets both.",
        known_as: &["domain", "domains", "tls_domain", "tls_domains"],
    }
    /// The CA's directory
    DIRECTORY: String = DirectoryUrl, {
        key: "acme.directory",
        flags: &[long("acme-directory", "URL")],
        env: &["ACME_DIRECTORY"],
        default: "https://acme-v02.api.letsencrypt.org/directory",
        more: "The default is Let's Encrypt, whose terms of service you accept by naming a domain.",
        known_as: &["acme_directory", "ca_directory", "acme_ca"],
    }
    /// Directory that is asked first after the CA has refused an order
    STAGING: Option<Option<String>> = Auto(OrOff(DirectoryUrl)), {
        key: "acme.staging",
        flags: &[long("acme-staging", "URL|off")],
        default: "auto",
        default_shown: Some("Let's Encrypt's staging directory where that is the CA, else off"),
        more: "So failures do not use up limits. Its certificates are not used, its account has the same key. acme.ca counts \
               for it, too.",
        known_as: &["acme_staging", "staging_directory"],
    }
    /// Authority of the CA's own certificate, a PEM file
    CA: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "acme.ca",
        flags: &[long("acme-ca", "FILE")],
        default_shown: Some("those of the system"),
        more: "For a CA inside a company, or one for tests.",
        known_as: &["acme_ca_root", "ca_root"],
    }
    /// Folder for the account and the certificates
    DIR: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "acme.dir",
        flags: &[long("certs-dir", "DIR")],
        default_shown: Some("certs in $STATE_DIRECTORY, $XDG_STATE_HOME/firebrick or ~/.local/state/firebrick"),
        more: "It is made for this user alone and holds private keys. Keep it across deployments: CAs limit how many \
               certificates they issue.",
        known_as: &["certs_dir", "storage_path", "certificates_dir"],
    }
    /// Redis in place of the folder, for several machines
    STORAGE: Option<String> = Maybe(Secret), {
        key: "acme.storage",
        flags: &[long("acme-storage", "URL")],
        env: &["FIREBRICK_ACME_STORAGE"],
        default_shown: Some("the folder"),
        more: "redis://HOST:PORT/DB or rediss://. One machine orders, all of them serve what it got. Redis then holds \
               private keys: it must be as private as the folder.",
        secret: true,
    }
    /// Address that the CA may write to
    EMAIL: Option<String> = Maybe(Text), {
        key: "acme.email",
        flags: &[long("acme-email", "ADDRESS")],
        default_shown: Some("none"),
        known_as: &["acme_email", "contact"],
    }
    /// Profile of the certificates, such as shortlived
    PROFILE: Option<String> = Maybe(Text), {
        key: "acme.profile",
        flags: &[long("acme-profile", "NAME")],
        default_shown: Some("the CA's default"),
        more: "The CA's documentation lists them. IP addresses need one of short-lived certificates.",
    }
    /// How the CA verifies names: auto, http-01, tls-alpn-01 or dns-01
    CHALLENGE: Challenge = Choice(Challenge::WORDS), {
        key: "acme.challenge",
        flags: &[long("acme-challenge", "TYPE")],
        default: "auto",
        more: "auto takes what is possible, and another one after a failure.",
    }
    /// Command that changes records of the DNS
    DNS_COMMAND: Option<String> = Maybe(Text), {
        key: "acme.dns_command",
        flags: &[long("acme-dns-command", "COMMAND")],
        default_shown: Some("none"),
        more: "It is called as COMMAND add NAME VALUE and COMMAND remove NAME VALUE, for TXT records, and returns when \
               the record can be resolved. It is not run by a shell.",
        known_as: &["dns_hook", "dns_command"],
    }
    /// Id of the account that the CA has given (EAB)
    EAB_KID: Option<String> = Maybe(Text), {
        key: "acme.eab_kid",
        flags: &[long("acme-eab-kid", "ID")],
        env: &["EAB_KID"],
        default_shown: Some("none"),
    }
    /// Key of that account, in base64url
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
    /// First pause after a failure; it doubles up to a day
    RETRY: Duration = Period { min: Duration::from_secs(1), max: Duration::from_secs(86_400) }, {
        key: "acme.retry",
        flags: &[long("acme-retry", "TIME")],
        default: "1m",
        more: "CAs limit failures, so a short one is for a CA of your own.",
    }
    /// Obtain certificates for other names when clients ask for them
    ON_DEMAND: bool = Switch, {
        key: "acme.on_demand",
        flags: &[bare("acme-on-demand", "true")],
        default: "false",
        more: "For sites whose customers bring domains of their own. acme.ask decides which names are welcome.",
    }
    /// URL that decides which names are welcome on demand
    ASK: Option<String> = Maybe(Url), {
        key: "acme.ask",
        flags: &[long("acme-ask", "URL")],
        default_shown: Some("none"),
        more: "It is asked with ?domain=NAME; status 200 means yes, everything else no. Answers are kept for a while.",
    }
    /// Most orders on demand in an hour
    PER_HOUR: u32 = Count { min: 1, max: 100_000 }, {
        key: "acme.on_demand_per_hour",
        flags: &[long("acme-on-demand-per-hour", "N")],
        default: "100",
    }
}
