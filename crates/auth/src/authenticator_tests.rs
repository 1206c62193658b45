//! Tests of the authenticator.

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

/// The Authorization header that a browser sends.
fn field(user: &str, password: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
}

fn new_authenticator() -> Authenticator {
    Authenticator::new(Arc::new(Users::parse(".htpasswd", USERS).unwrap()))
}

async fn check_credentials(authenticator: &Authenticator, user: &str, password: &str) -> Option<String> {
    authenticator.authenticate(Some(&field(user, password))).await
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
    assert_eq!(authenticator.authenticate(None).await, None);
    assert_eq!(authenticator.authenticate(Some(b"Basic %%%")).await, None);
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
    let _all_permits = SLOW_CHECKS.acquire_many(MAX_SLOW_CHECKS as u32).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let right = field("ann", "correct horse");
    let again = pin!(authenticator.authenticate(Some(&right))).poll(&mut cx);
    assert_eq!(again, Poll::Ready(Some("ann".to_owned())));
    let wrong = field("ann", "correct horsf");
    assert!(pin!(authenticator.authenticate(Some(&wrong))).poll(&mut cx).is_pending(), "it needs a permit");
    // A new authenticator, as after a reload, starts with an empty cache.
    assert!(pin!(new_authenticator().authenticate(Some(&right))).poll(&mut cx).is_pending());
}

#[tokio::test]
async fn slow_checks_beyond_the_limit_wait() {
    let authenticator = new_authenticator();
    let mut fields: Vec<Vec<u8>> = (0..20).map(|n| field("ann", &n.to_string())).collect();
    fields.extend((0..20).map(|_| field("ann", "correct horse")));
    let mut checks: Vec<_> =
        fields.iter().map(|value| Box::pin(authenticator.authenticate(Some(value)))).collect();
    let all_permits = SLOW_CHECKS.acquire_many(MAX_SLOW_CHECKS as u32).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for check in &mut checks {
        assert!(check.as_mut().poll(&mut cx).is_pending());
    }
    drop(all_permits);
    // Half of the clients disconnect while they wait.
    let mut remaining = Vec::new();
    for (n, one) in checks.into_iter().enumerate() {
        if n % 2 == 0 {
            remaining.push((n, one));
        }
    }
    for (n, one) in remaining {
        assert_eq!(one.await.is_some(), n >= 20, "{n}");
    }
    assert_eq!(
        check_credentials(&authenticator, "cy", "correct horse").await.as_deref(),
        Some("cy"),
        "all permits are free again"
    );
}

#[test]
fn challenges() {
    let (name, value) = challenge("Restricted");
    assert_eq!((name, value.as_str()), ("WWW-Authenticate", "Basic realm=\"Restricted\", charset=\"UTF-8\""));
    assert_eq!(challenge("a\"b\\c\r\nX: y").1, "Basic realm=\"a\\\"b\\\\cX: y\", charset=\"UTF-8\"");
}
