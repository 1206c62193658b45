//! Tests the authenticator.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const USERS: &str = "\
ann:$2y$05$C2yG9PGx1EX1ZbxuwdiJX.UkWzm6myaJl2iKHOT6C7xXcX/ns8Q1q
bob:{SHA}L55TUjtiq8FBorTWAZ0jy6g129A=
cy:$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/
";

/// Returns the Authorization header field that a browser sends.
fn field(user: &str, password: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
}

/// Returns an authenticator with its own queue, because tests run in parallel.
fn new_authenticator() -> Authenticator {
    let users = Arc::new(Users::parse(".htpasswd", USERS).unwrap());
    Authenticator { checks: Checks::with(1), ..Authenticator::new(users) }
}

fn someone() -> PasswordClient {
    PasswordClient::new(b"127.0.0.1", b"1")
}

async fn check_credentials(authenticator: &Authenticator, user: &str, password: &str) -> Option<String> {
    authenticator.authenticate(Some(&field(user, password)), someone).await.unwrap()
}

#[tokio::test]
async fn valid_credentials_are_accepted_and_others_rejected() {
    let authenticator = new_authenticator();
    for _ in 0..2 {
        for user in ["ann", "bob", "cy"] {
            assert_eq!(check_credentials(&authenticator, user, "correct horse").await.as_deref(), Some(user));
            assert_eq!(check_credentials(&authenticator, user, "wrong").await, None);
            assert_eq!(check_credentials(&authenticator, user, "").await, None);
        }
        // The hash that stands in for an unknown user's must not accept its own password.
        for n in 0..20 {
            assert_eq!(check_credentials(&authenticator, &format!("nobody{n}"), "correct horse").await, None);
        }
    }
    assert_eq!(authenticator.authenticate(None, someone).await, Ok(None));
    assert_eq!(authenticator.authenticate(Some(b"Basic %%%"), someone).await, Ok(None));
    assert_eq!(authenticator.users().len(), 3);
}

#[tokio::test]
async fn without_users_all_credentials_are_rejected() {
    let authenticator = Authenticator::new(Arc::default());
    assert_eq!(check_credentials(&authenticator, "ann", "correct horse").await, None);
}

#[tokio::test]
async fn only_verified_credentials_are_accepted_without_waiting() {
    let authenticator = new_authenticator();
    assert!(check_credentials(&authenticator, "ann", "correct horse").await.is_some());
    let turn = authenticator.checks.turn(someone()).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let right = field("ann", "correct horse");
    let again = pin!(authenticator.authenticate(Some(&right), someone)).poll(&mut cx);
    assert_eq!(again, Poll::Ready(Ok(Some("ann".to_owned()))));
    let wrong = field("ann", "correct horsf");
    assert!(
        pin!(authenticator.authenticate(Some(&wrong), someone)).poll(&mut cx).is_pending(),
        "it needs a turn"
    );
    // A new authenticator, as after a reload, starts with an empty cache.
    let new = Authenticator { checks: authenticator.checks.clone(), ..new_authenticator() };
    assert!(pin!(new.authenticate(Some(&right), someone)).poll(&mut cx).is_pending());
    drop(turn);
}

#[tokio::test]
async fn slow_checks_wait_and_one_clients_excess_is_refused() {
    let authenticator = new_authenticator();
    let fields: Vec<Vec<u8>> = (0..20).map(|n| field("ann", &n.to_string())).collect();
    let right = field("ann", "correct horse");
    let turn = authenticator.checks.turn(someone()).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut checks: Vec<_> =
        fields.iter().map(|value| Box::pin(authenticator.authenticate(Some(value), someone))).collect();
    let refused = checks.iter_mut().map(|check| check.as_mut().poll(&mut cx)).filter(Poll::is_ready).count();
    assert_eq!(refused, 12);
    let other = || PasswordClient::new(b"127.0.0.1", b"2");
    let mut login = pin!(authenticator.authenticate(Some(&right), other));
    assert!(login.as_mut().poll(&mut cx).is_pending());
    // Clients that disconnect while they wait get no check.
    drop(checks);
    drop(turn);
    assert_eq!(login.await, Ok(Some("ann".to_owned())));
    assert_eq!(check_credentials(&authenticator, "cy", "correct horse").await.as_deref(), Some("cy"));
}

#[test]
fn challenges() {
    let (name, value) = challenge("Restricted");
    assert_eq!((name, value.as_str()), ("WWW-Authenticate", "Basic realm=\"Restricted\", charset=\"UTF-8\""));
    assert_eq!(challenge("a\"b\\c\r\nX: y").1, "Basic realm=\"a\\\"b\\\\cX: y\", charset=\"UTF-8\"");
}
