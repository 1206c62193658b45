//! Tests bodies whose owner offers to write them to the client itself.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use http::Limits;
use support::{Server, get};

fn count(server: &Server, what: &str) -> usize {
    server.log.lock().unwrap().iter().filter(|line| *line == what).count()
}

fn text(times: usize, before: usize, offered: usize) -> Vec<u8> {
    [vec![b'b'; before], vec![b'o'; offered]].concat().repeat(times)
}

#[test]
fn the_owner_writes_what_fits_the_framing() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    for round in 1..=2 {
        assert_eq!(client.get("/offer").body, text(1, 5, 500));
        assert_eq!(count(&server, "lent"), round);
    }
    client.send([get("/offer"), get("/after")].concat());
    assert_eq!(client.read().body, text(1, 5, 500));
    assert_eq!(client.read().text(), "/after?");
    client.send("GET /offer HTTP/1.0\r\n\r\n");
    assert_eq!(client.read().body, text(1, 5, 500));
    assert_eq!((count(&server, "lent"), count(&server, "declined")), (4, 0));
    server.eventually("its bytes are counted", |s| s.has_noted("finished /offer 200 505"));
}

#[test]
fn an_offer_that_does_not_fit_the_framing_is_declined() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    let answer = client.get("/offer-chunked");
    assert_eq!((answer.field("content-length"), &answer.body), (None, &text(1, 5, 500)));
    assert_eq!(client.get("/offer-short").body, text(1, 5, 95));
    assert!(client.is_closed());
    assert_eq!((count(&server, "lent"), count(&server, "declined")), (0, 2));
}

#[test]
fn nothing_is_offered_to_head_requests() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send("HEAD /offer HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.read_head().field("content-length"), Some("505"));
    assert_eq!(client.get("/after").text(), "/after?");
    assert_eq!(count(&server, "lent") + count(&server, "declined"), 0);
}

#[test]
fn an_owner_that_dies_breaks_the_response_off() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send(get("/offer-dies"));
    assert_eq!(client.read_head().field("content-length"), Some("505"));
    assert_eq!(client.read_to_end(), b"bbbbb");
    server.eventually("it is known as broken", |s| s.has_noted("finished /offer-dies 200 5 broken"));
}

#[test]
fn no_owner_waits_for_a_slow_client() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send(get("/offers"));
    server.eventually("an offer is declined while the client takes nothing", |s| count(s, "declined") > 0);
    assert_eq!(client.read().body, text(400, 60_000, 10));
    assert_eq!(count(&server, "lent") + count(&server, "declined"), 400);
    assert_eq!(client.get("/after").text(), "/after?");
}

#[test]
fn a_client_that_disappears_takes_the_rest_along() {
    let server = Server::start(Limits::default());
    let mut client = server.connect();
    client.send(get("/offers"));
    client.read_head();
    drop(client);
    server.eventually("it is given up", |s| {
        let log = s.log.lock().unwrap();
        log.iter().any(|line| line.starts_with("finished /offers 200") && line.ends_with("broken"))
    });
}
