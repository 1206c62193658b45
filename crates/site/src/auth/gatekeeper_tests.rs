//! Tests of who comes in.

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

/// What a browser sends.
fn field(user: &str, password: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
}

fn gatekeeper() -> Gatekeeper {
    Gatekeeper::new(Arc::new(Users::parse(".htpasswd", USERS).unwrap()))
}

async fn ask(keeper: &Gatekeeper, user: &str, password: &str) -> Option<String> {
    keeper.admits(Some(&field(user, password))).await
}

#[tokio::test]
async fn who_comes_in() {
    let keeper = gatekeeper();
    for _ in 0..2 {
        for user in ["ann", "bob", "cy"] {
            assert_eq!(ask(&keeper, user, "correct horse").await.as_deref(), Some(user));
            assert_eq!(ask(&keeper, user, "wrong").await, None);
            assert_eq!(ask(&keeper, user, "").await, None);
        }
        // Whoever stands in for an unknown user does not let them in with their own password.
        for n in 0..20 {
            assert_eq!(ask(&keeper, &format!("nobody{n}"), "correct horse").await, None);
        }
    }
    assert_eq!(keeper.admits(None).await, None);
    assert_eq!(keeper.admits(Some(b"Basic %%%")).await, None);
    assert_eq!(keeper.users().len(), 3);
}

#[tokio::test]
async fn without_users_nobody_comes_in() {
    let keeper = Gatekeeper::new(Arc::default());
    assert_eq!(ask(&keeper, "ann", "correct horse").await, None);
}

#[tokio::test]
async fn what_was_verified_is_answered_at_once_and_only_that() {
    let keeper = gatekeeper();
    assert!(ask(&keeper, "ann", "correct horse").await.is_some());
    let _all_places = PLACES.acquire_many(AT_ONCE as u32).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let right = field("ann", "correct horse");
    let again = pin!(keeper.admits(Some(&right))).poll(&mut cx);
    assert_eq!(again, Poll::Ready(Some("ann".to_owned())));
    let wrong = field("ann", "correct horsf");
    assert!(pin!(keeper.admits(Some(&wrong))).poll(&mut cx).is_pending(), "it needs a place");
    // A new gatekeeper, as after a reload, remembers nothing.
    assert!(pin!(gatekeeper().admits(Some(&right))).poll(&mut cx).is_pending());
}

#[tokio::test]
async fn a_crowd_waits_for_its_turn() {
    let keeper = gatekeeper();
    let mut fields: Vec<Vec<u8>> = (0..20).map(|n| field("ann", &n.to_string())).collect();
    fields.extend((0..20).map(|_| field("ann", "correct horse")));
    let mut asked: Vec<_> = fields.iter().map(|value| Box::pin(keeper.admits(Some(value)))).collect();
    let all_places = PLACES.acquire_many(AT_ONCE as u32).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for one in &mut asked {
        assert!(one.as_mut().poll(&mut cx).is_pending());
    }
    drop(all_places);
    // Half of them go away while they wait.
    let mut stayed = Vec::new();
    for (n, one) in asked.into_iter().enumerate() {
        if n % 2 == 0 {
            stayed.push((n, one));
        }
    }
    for (n, one) in stayed {
        assert_eq!(one.await.is_some(), n >= 20, "{n}");
    }
    assert_eq!(ask(&keeper, "cy", "correct horse").await.as_deref(), Some("cy"), "all places are free again");
}

#[test]
fn challenges() {
    let (name, value) = challenge("Restricted");
    assert_eq!((name, value.as_str()), ("WWW-Authenticate", "Basic realm=\"Restricted\", charset=\"UTF-8\""));
    assert_eq!(challenge("a\"b\\c\r\nX: y").1, "Basic realm=\"a\\\"b\\\\cX: y\", charset=\"UTF-8\"");
}
