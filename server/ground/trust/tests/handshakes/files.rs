//! Unusable files: errors say which file and why.

use crate::parties::{Maker, file_error, half};
use std::path::Path;
use trust::{FilePurpose, Identity, Trusted};

const NOWHERE: &str = "/nowhere/to/be.pem";

#[test]
fn trusted_certificates() {
    let maker = Maker::new();
    let made = maker.make("made", |p| p);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let files = [
        (Path::new(NOWHERE).to_owned(), "No such file"),
        (maker.file("empty.pem", ""), "contains no certificate"),
        (maker.file("text.pem", "nothing\n"), "contains no certificate"),
        (made.key_pem.clone(), "contains no certificate"),
        (maker.file("half.pem", &half(&made.pem)), "-----END is missing"),
        (maker.file("broken.pem", broken), "a certificate in it is damaged"),
    ];
    for (file, expected) in files {
        for trusted in [Trusted::File(&file), Trusted::SystemAndFile(&file)] {
            let (role, path, why) = file_error(trusted, None);
            assert_eq!((role, path), (FilePurpose::Trusted, file.clone()));
            assert!(why.contains(expected), "{why}");
        }
    }
}

#[test]
fn client_certificates_and_keys() {
    let maker = Maker::new();
    let (made, other) = (maker.make("made", |p| p), maker.make("other", |p| p));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted = maker.file("encrypted.key", encrypted);
    let broken = maker.file("broken.key", broken);
    let half = maker.file("half.key", &half(&made.key_pem));
    let with_certificate = |certificate| Identity { certificate, ..made.identity() };
    let with_key = |key| Identity { key, ..made.identity() };
    let files = [
        (with_certificate(Path::new(NOWHERE)), FilePurpose::Certificate, "No such file"),
        (with_certificate(&made.key_pem), FilePurpose::Certificate, "contains no certificate"),
        (with_certificate(&other.pem), FilePurpose::Certificate, "0.key is not its key"),
        (with_key(Path::new(NOWHERE)), FilePurpose::Key, "No such file"),
        (with_key(&made.pem), FilePurpose::Key, "contains no unencrypted private key"),
        (with_key(&encrypted), FilePurpose::Key, "contains no unencrypted private key"),
        (with_key(&half), FilePurpose::Key, "-----END is missing"),
        (with_key(&broken), FilePurpose::Key, "a private key that cannot be used"),
    ];
    for (identity, expected, message) in files {
        let (role, path, why) = file_error(Trusted::Any, Some(identity));
        let file = if expected == FilePurpose::Key { identity.key } else { identity.certificate };
        assert_eq!((role, path.as_path()), (expected, file));
        assert!(why.contains(message), "{message}: {why}");
    }
}
