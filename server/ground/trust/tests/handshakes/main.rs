//! Server verification and client certificates, tested with real handshakes.
#![cfg(test)]

mod client_certificates;
mod files;
mod parties;

use parties::{HOST, Maker, Server, shake};
use rustls::CertificateError;
use rustls::version::{TLS12, TLS13};
use std::path::PathBuf;
use std::process::Command;
use trust::{Error, Trusted};

/// Returns why a server was rejected.
fn rejection(server: &Server<'_>, trusted: Trusted<'_>, host: &str) -> CertificateError {
    let error = shake(server, trusted, None, host).unwrap_err();
    trust::certificate_error(&error).unwrap_or_else(|| panic!("not about the certificate: {error}")).clone()
}

#[test]
fn a_self_signed_certificate_in_the_file_is_trusted() {
    let maker = Maker::new();
    // `openssl req -x509` makes authorities.
    for made in [maker.make("authority", |p| p.authority()), maker.make("plain", |p| p)] {
        for version in [&TLS12, &TLS13] {
            let server = Server { version, ..Server::of(&made) };
            for trusted in [Trusted::File(&made.pem), Trusted::SystemAndFile(&made.pem)] {
                assert_eq!(shake(&server, trusted, None, HOST).unwrap(), None, "{version:?} {trusted:?}");
            }
        }
    }
}

#[test]
fn other_self_signed_certificates_are_rejected() {
    let maker = Maker::new();
    let (server, named) = (maker.make("same", |p| p.authority()), maker.make("same", |p| p.authority()));
    for version in [&TLS12, &TLS13] {
        let server = Server { version, ..Server::of(&server) };
        rejection(&server, Trusted::File(&named.pem), HOST);
        rejection(&server, Trusted::SystemAndFile(&named.pem), HOST);
        rejection(&server, Trusted::System, HOST);
    }
}

#[test]
fn a_file_may_have_several_certificates() {
    let maker = Maker::new();
    let both = [maker.make("same", |p| p.authority()), maker.make("same", |p| p.authority())];
    let file = maker
        .file("both.pem", &both.each_ref().map(|one| std::fs::read_to_string(&one.pem).unwrap()).concat());
    for one in &both {
        shake(&Server::of(one), Trusted::File(&file), None, HOST).unwrap();
    }
}

#[test]
fn authorities_sign_through_intermediates() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let intermediate = maker.make("intermediate", |p| p.authority().by(&root));
    let server = maker.make("server", |p| p.by(&intermediate));
    let whole = Server { intermediates: vec![intermediate.der()], ..Server::of(&server) };
    shake(&whole, Trusted::File(&root.pem), None, HOST).unwrap();
    assert_eq!(
        rejection(&Server::of(&server), Trusted::File(&root.pem), HOST),
        CertificateError::UnknownIssuer
    );
}

#[test]
fn validity_periods_are_checked_for_certificates_in_the_file() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    for (when, years) in [("past", (2001, 2002)), ("future", (2901, 2902))] {
        let kinds = [
            ("self-signed authority", maker.make("authority", |p| p.authority().valid(years)), None),
            ("self-signed", maker.make("plain", |p| p.valid(years)), None),
            (
                "signed by an authority outside the file",
                maker.make("leaf", |p| p.by(&root).valid(years)),
                None,
            ),
            (
                "signed by an authority in the file",
                maker.make("leaf", |p| p.by(&root).valid(years)),
                Some(&root),
            ),
        ];
        for (kind, made, authority) in &kinds {
            let file = &authority.unwrap_or(made).pem;
            for trusted in [Trusted::File(file), Trusted::SystemAndFile(file)] {
                let why = rejection(&Server::of(made), trusted, HOST);
                let expected = match when {
                    "past" => matches!(why, CertificateError::ExpiredContext { .. }),
                    _ => matches!(why, CertificateError::NotValidYetContext { .. }),
                };
                assert!(expected, "{kind}, {when}: {why:?}");
            }
            shake(&Server::of(made), Trusted::Any, None, HOST).unwrap();
        }
    }
}

#[test]
fn names_are_checked_for_certificates_in_the_file() {
    let maker = Maker::new();
    for made in [maker.make("authority", |p| p.authority()), maker.make("plain", |p| p)] {
        let server = Server::of(&made);
        shake(&server, Trusted::File(&made.pem), None, "127.0.0.1").unwrap();
        for host in ["other.test", "127.0.0.2"] {
            let why = rejection(&server, Trusted::File(&made.pem), host);
            assert!(matches!(why, CertificateError::NotValidForNameContext { .. }), "{why:?}");
            shake(&server, Trusted::Any, None, host).unwrap();
        }
    }
}

#[test]
fn a_certificate_in_the_file_needs_no_authority() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let old = maker.make("intermediate", |p| p.authority().by(&root).valid((2001, 2002)));
    let made = maker.make("server", |p| p.by(&old));
    shake(&Server::of(&made), Trusted::File(&made.pem), None, HOST).unwrap();
    let with_expired = Server { intermediates: vec![old.der()], ..Server::of(&made) };
    shake(&with_expired, Trusted::File(&made.pem), None, HOST).unwrap();
    rejection(&with_expired, Trusted::File(&root.pem), HOST);
}

#[test]
fn servers_without_the_key_are_rejected() {
    let maker = Maker::new();
    let (made, thief) = (maker.make("server", |p| p.authority()), maker.make("thief", |p| p));
    for version in [&TLS12, &TLS13] {
        let stolen = Server { key: &thief.key, version, ..Server::of(&made) };
        for trusted in [Trusted::File(&made.pem), Trusted::SystemAndFile(&made.pem), Trusted::Any] {
            assert_eq!(
                rejection(&stolen, trusted, HOST),
                CertificateError::BadSignature,
                "{version:?} {trusted:?}"
            );
        }
    }
}

/// Runs a test in a child process with its own file of system certificates. Returns the file in the child,
/// and `None` in the parent, after the child has passed.
fn own_system(test: &str) -> Option<PathBuf> {
    const MARK: &str = "TRUST_TEST_SYSTEM";
    if let Some(file) = std::env::var_os(MARK) {
        return Some(file.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.pem");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact"]).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR").env(MARK, &file);
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    None
}

#[test]
fn a_file_replaces_or_extends_the_system_certificates() {
    let Some(system) = own_system("a_file_replaces_or_extends_the_system_certificates") else { return };
    let maker = Maker::new();
    let (public, ours) = (maker.make("public", |p| p.authority()), maker.make("ours", |p| p.authority()));
    let theirs = maker.make("server", |p| p.by(&public));
    let named = maker.make("server", |p| p.by(&ours));
    std::fs::copy(&public.pem, &system).unwrap();
    let accepted =
        |trusted| [&theirs, &named].map(|server| shake(&Server::of(server), trusted, None, HOST).is_ok());
    assert_eq!(accepted(Trusted::System), [true, false]);
    assert_eq!(accepted(Trusted::File(&ours.pem)), [false, true]);
    assert_eq!(accepted(Trusted::SystemAndFile(&ours.pem)), [true, true]);
    assert_eq!(accepted(Trusted::Any), [true, true]);
    std::fs::remove_file(&system).unwrap();
    let error = trust::client(Trusted::System, None).unwrap_err();
    assert!(matches!(&error, Error::NoTrustedCertificates(why) if why.contains("system.pem")), "{error:?}");
    assert_eq!(accepted(Trusted::File(&ours.pem)), [false, true]);
    assert_eq!(accepted(Trusted::SystemAndFile(&ours.pem)), [false, true]);
}
