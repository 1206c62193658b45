//! Files that do not do: which one, and why.

use crate::parties::{Maker, half, unusable};
use std::path::Path;
use trust::{Own, Role, Whom};

const NOWHERE: &str = "/nowhere/to/be.pem";

#[test]
fn certificates_to_believe() {
    let maker = Maker::new();
    let made = maker.make("made", |p| p);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let files = [
        (Path::new(NOWHERE).to_owned(), "No such file"),
        (maker.file("empty.pem", ""), "no certificate in it"),
        (maker.file("text.pem", "nothing\n"), "no certificate in it"),
        (made.key_pem.clone(), "no certificate in it"),
        (maker.file("half.pem", &half(&made.pem)), "missing section end"),
        (maker.file("broken.pem", broken), "BadEncoding"),
    ];
    for (file, expected) in files {
        for whom in [Whom::File(&file), Whom::SystemAndFile(&file)] {
            let (role, path, why) = unusable(whom, None);
            assert_eq!((role, path), (Role::Believed, file.clone()));
            assert!(why.contains(expected), "{why}");
        }
    }
}

#[test]
fn certificates_and_keys_of_our_own() {
    let maker = Maker::new();
    let (made, other) = (maker.make("made", |p| p), maker.make("other", |p| p));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let encrypted = maker.file("encrypted.key", encrypted);
    let broken = maker.file("broken.key", broken);
    let half = maker.file("half.key", &half(&made.key_pem));
    let with_certificate = |certificate| Own { certificate, ..made.own() };
    let with_key = |key| Own { key, ..made.own() };
    let files = [
        (with_certificate(Path::new(NOWHERE)), Role::Certificate, "No such file"),
        (with_certificate(&made.key_pem), Role::Certificate, "no certificate in it"),
        (with_certificate(&other.pem), Role::Certificate, "0.key is not its key"),
        (with_key(Path::new(NOWHERE)), Role::Key, "No such file"),
        (with_key(&made.pem), Role::Key, "no private key in it"),
        (with_key(&encrypted), Role::Key, "not encrypted"),
        (with_key(&half), Role::Key, "missing section end"),
        (with_key(&broken), Role::Key, "failed to parse private key"),
    ];
    for (own, expected, words) in files {
        let (role, path, why) = unusable(Whom::Anybody, Some(own));
        let file = if expected == Role::Key { own.key } else { own.certificate };
        assert_eq!((role, path.as_path()), (expected, file));
        assert!(why.contains(words), "{words}: {why}");
    }
}
