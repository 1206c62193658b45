//! Whom we believe and who we are, asked with real handshakes.
#![cfg(test)]

mod files;
mod own;
mod parties;

use parties::{HOST, Maker, Server, shake};
use rustls::CertificateError;
use rustls::version::{TLS12, TLS13};
use std::path::PathBuf;
use std::process::Command;
use trust::{Unusable, Whom};

/// What a refusal is about.
fn why(server: &Server<'_>, whom: Whom<'_>, host: &str) -> CertificateError {
    let error = shake(server, whom, None, host).unwrap_err();
    trust::refused(&error).unwrap_or_else(|| panic!("not about the certificate: {error}")).clone()
}

#[test]
fn one_that_signs_itself_is_believed_when_it_is_named() {
    let maker = Maker::new();
    // An authority is what `openssl req -x509` makes.
    for made in [maker.make("authority", |p| p.authority()), maker.make("plain", |p| p)] {
        for version in [&TLS12, &TLS13] {
            let server = Server { version, ..Server::of(&made) };
            for whom in [Whom::File(&made.pem), Whom::SystemAndFile(&made.pem)] {
                assert_eq!(shake(&server, whom, None, HOST).unwrap(), None, "{version:?} {whom:?}");
            }
        }
    }
}

#[test]
fn another_that_signs_itself_is_not() {
    let maker = Maker::new();
    let (server, named) = (maker.make("same", |p| p.authority()), maker.make("same", |p| p.authority()));
    for version in [&TLS12, &TLS13] {
        let server = Server { version, ..Server::of(&server) };
        why(&server, Whom::File(&named.pem), HOST);
        why(&server, Whom::SystemAndFile(&named.pem), HOST);
        why(&server, Whom::System, HOST);
    }
}

#[test]
fn several_may_be_named() {
    let maker = Maker::new();
    let both = [maker.make("same", |p| p.authority()), maker.make("same", |p| p.authority())];
    let file = maker
        .file("both.pem", &both.each_ref().map(|one| std::fs::read_to_string(&one.pem).unwrap()).concat());
    for one in &both {
        shake(&Server::of(one), Whom::File(&file), None, HOST).unwrap();
    }
}

#[test]
fn authorities_speak_for_others_with_what_is_in_between() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let between = maker.make("between", |p| p.authority().by(&root));
    let server = maker.make("server", |p| p.by(&between));
    let whole = Server { between: vec![between.der()], ..Server::of(&server) };
    shake(&whole, Whom::File(&root.pem), None, HOST).unwrap();
    assert_eq!(why(&Server::of(&server), Whom::File(&root.pem), HOST), CertificateError::UnknownIssuer);
}

#[test]
fn dates_count_also_for_those_that_are_named() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    for (when, years) in [("past", (2001, 2002)), ("future", (2901, 2902))] {
        let kinds = [
            ("its own authority", maker.make("own", |p| p.authority().valid(years)), None),
            ("signs itself", maker.make("plain", |p| p.valid(years)), None),
            ("signed by one that is not named", maker.make("leaf", |p| p.by(&root).valid(years)), None),
            ("signed by one that is named", maker.make("leaf", |p| p.by(&root).valid(years)), Some(&root)),
        ];
        for (kind, made, authority) in &kinds {
            let file = &authority.unwrap_or(made).pem;
            for whom in [Whom::File(file), Whom::SystemAndFile(file)] {
                let why = why(&Server::of(made), whom, HOST);
                let expected = match when {
                    "past" => matches!(why, CertificateError::ExpiredContext { .. }),
                    _ => matches!(why, CertificateError::NotValidYetContext { .. }),
                };
                assert!(expected, "{kind}, {when}: {why:?}");
            }
            shake(&Server::of(made), Whom::Anybody, None, HOST).unwrap();
        }
    }
}

#[test]
fn names_count_also_for_those_that_are_named() {
    let maker = Maker::new();
    for made in [maker.make("authority", |p| p.authority()), maker.make("plain", |p| p)] {
        let server = Server::of(&made);
        shake(&server, Whom::File(&made.pem), None, "127.0.0.1").unwrap();
        for host in ["other.test", "127.0.0.2"] {
            let why = why(&server, Whom::File(&made.pem), host);
            assert!(matches!(why, CertificateError::NotValidForNameContext { .. }), "{why:?}");
            shake(&server, Whom::Anybody, None, host).unwrap();
        }
    }
}

#[test]
fn one_that_is_named_needs_nobody_who_signed_it() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let old = maker.make("between", |p| p.authority().by(&root).valid((2001, 2002)));
    let made = maker.make("server", |p| p.by(&old));
    shake(&Server::of(&made), Whom::File(&made.pem), None, HOST).unwrap();
    let with_the_old_one = Server { between: vec![old.der()], ..Server::of(&made) };
    shake(&with_the_old_one, Whom::File(&made.pem), None, HOST).unwrap();
    why(&with_the_old_one, Whom::File(&root.pem), HOST);
}

#[test]
fn a_certificate_without_its_key_is_nobodys() {
    let maker = Maker::new();
    let (made, thief) = (maker.make("server", |p| p.authority()), maker.make("thief", |p| p));
    for version in [&TLS12, &TLS13] {
        let stolen = Server { key: &thief.key, version, ..Server::of(&made) };
        for whom in [Whom::File(&made.pem), Whom::SystemAndFile(&made.pem), Whom::Anybody] {
            assert_eq!(why(&stolen, whom, HOST), CertificateError::BadSignature, "{version:?} {whom:?}");
        }
    }
}

/// The file of the system's certificates, which a test that runs in a process of its own may write; elsewhere `None`, after
/// it has passed in such a process.
fn own_system(test: &str) -> Option<PathBuf> {
    const MARK: &str = "TRUST_TEST_SYSTEM";
    if let Some(file) = std::env::var_os(MARK) {
        return Some(file.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.pem");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact"]).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR").env(MARK, &file);
    let said = again.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("1 passed"), "{text}");
    None
}

#[test]
fn a_file_counts_instead_of_the_system_or_besides() {
    let Some(system) = own_system("a_file_counts_instead_of_the_system_or_besides") else { return };
    let maker = Maker::new();
    let (public, ours) = (maker.make("public", |p| p.authority()), maker.make("ours", |p| p.authority()));
    let theirs = maker.make("server", |p| p.by(&public));
    let named = maker.make("server", |p| p.by(&ours));
    std::fs::copy(&public.pem, &system).unwrap();
    let believed =
        |whom| [&theirs, &named].map(|server| shake(&Server::of(server), whom, None, HOST).is_ok());
    assert_eq!(believed(Whom::System), [true, false]);
    assert_eq!(believed(Whom::File(&ours.pem)), [false, true]);
    assert_eq!(believed(Whom::SystemAndFile(&ours.pem)), [true, true]);
    assert_eq!(believed(Whom::Anybody), [true, true]);
    std::fs::remove_file(&system).unwrap();
    let nobody = trust::client(Whom::System, None).unwrap_err();
    assert!(matches!(&nobody, Unusable::NobodyBelieved(why) if why.contains("system.pem")), "{nobody:?}");
    assert_eq!(believed(Whom::File(&ours.pem)), [false, true]);
    assert_eq!(believed(Whom::SystemAndFile(&ours.pem)), [false, true]);
}
