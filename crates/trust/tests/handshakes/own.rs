//! Certificates of our own.

use crate::parties::{HOST, Maker, Server, shake};
use rustls::version::{TLS12, TLS13};
use trust::Whom;

#[test]
fn servers_see_who_we_are() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let (made, client) = (maker.make("server", |p| p.by(&root)), maker.make("client", |p| p.by(&root)));
    let stranger = maker.make("stranger", |p| p);
    for version in [&TLS12, &TLS13] {
        let server = Server { clients: Some(&root), version, ..Server::of(&made) };
        for whom in [Whom::File(&root.pem), Whom::Anybody] {
            let seen = shake(&server, whom, Some(client.own()), HOST).unwrap();
            assert_eq!(seen.unwrap(), client.der().as_ref(), "{version:?} {whom:?}");
            for own in [None, Some(stranger.own())] {
                let error = shake(&server, whom, own, HOST).unwrap_err();
                assert!(trust::refused(&error).is_none(), "it is ours that was refused: {error}");
            }
        }
        let indifferent = Server { version, ..Server::of(&made) };
        assert_eq!(shake(&indifferent, Whom::File(&root.pem), Some(client.own()), HOST).unwrap(), None);
    }
}

#[test]
fn what_is_between_us_and_our_authority_is_sent_along() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let between = maker.make("between", |p| p.authority().by(&root));
    let (made, mut client) =
        (maker.make("server", |p| p.by(&root)), maker.make("client", |p| p.by(&between)));
    let server = Server { clients: Some(&root), ..Server::of(&made) };
    shake(&server, Whom::File(&root.pem), Some(client.own()), HOST).unwrap_err();
    let text = [&client.pem, &between.pem].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    client.pem = maker.file("chain.pem", &text);
    shake(&server, Whom::File(&root.pem), Some(client.own()), HOST).unwrap().unwrap();
}
