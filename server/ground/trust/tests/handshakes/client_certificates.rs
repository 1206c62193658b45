//! Client certificates.

use crate::parties::{HOST, Maker, Server, shake};
use rustls::version::{TLS12, TLS13};
use trust::Trusted;

#[test]
fn servers_receive_the_client_certificate() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let (made, client) = (maker.make("server", |p| p.by(&root)), maker.make("client", |p| p.by(&root)));
    let stranger = maker.make("stranger", |p| p);
    for version in [&TLS12, &TLS13] {
        let server = Server { clients: Some(&root), version, ..Server::of(&made) };
        for trusted in [Trusted::File(&root.pem), Trusted::Any] {
            let seen = shake(&server, trusted, Some(client.identity()), HOST).unwrap();
            assert_eq!(seen.unwrap(), client.der().as_ref(), "{version:?} {trusted:?}");
            for identity in [None, Some(stranger.identity())] {
                let error = shake(&server, trusted, identity, HOST).unwrap_err();
                assert!(
                    trust::certificate_error(&error).is_none(),
                    "the client certificate should be the rejected one: {error}"
                );
            }
        }
        let without_request = Server { version, ..Server::of(&made) };
        assert_eq!(
            shake(&without_request, Trusted::File(&root.pem), Some(client.identity()), HOST).unwrap(),
            None
        );
    }
}

#[test]
fn intermediates_of_the_client_are_sent() {
    let maker = Maker::new();
    let root = maker.make("root", |p| p.authority());
    let intermediate = maker.make("intermediate", |p| p.authority().by(&root));
    let (made, mut client) =
        (maker.make("server", |p| p.by(&root)), maker.make("client", |p| p.by(&intermediate)));
    let server = Server { clients: Some(&root), ..Server::of(&made) };
    shake(&server, Trusted::File(&root.pem), Some(client.identity()), HOST).unwrap_err();
    let text = [&client.pem, &intermediate.pem].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    client.pem = maker.file("chain.pem", &text);
    shake(&server, Trusted::File(&root.pem), Some(client.identity()), HOST).unwrap().unwrap();
}
