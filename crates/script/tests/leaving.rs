//! Clients that go away at each point of a request: the task is given up at once, its `ensure` runs, and its place is free.
#![cfg(test)]

mod support;

use handler::{Body, BodyError, Incoming, IncomingBody};
use script::{Limits, Source};
use std::net::TcpListener;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use support::{Server, Visitor, on_a_loop};

const HANDLER: &str = r#"
class Slow
  def initialize(parts)
    @parts = parts
  end

  def each
    @parts.times { yield "part" }
    sleep
  ensure
    Rt.call(Rt::LOG, "each ensured")
  end

  def close
    Rt.call(Rt::LOG, "closed")
  end
end

WAITS = {
  "/sleep" => lambda { |env| sleep },
  "/fiber" => lambda { |env| Fiber.new { sleep }.resume },
  "/each" => lambda { |env| [1].each { sleep } },
  "/channel" => lambda { |env| Channel.new.shift },
  "/join" => lambda { |env| task { sleep 0.3 }.join },
  "/next" => lambda { |env| H2O.next.call(env) },
  "/http" => lambda { |env| http_request("http://ADDRESS/").join },
  "/redis" => lambda { |env| Redis.new(:host => "127.0.0.1", :port => PORT, :timeout => 60).get("a") },
  "/clings" => lambda { |env| begin; sleep; rescue Exception; sleep; ensure; sleep 0; end },
}
STREAMS = { "/silent" => Slow.new(0), "/part" => Slow.new(1), "/parts" => Slow.new(50) }

WAITS["/lock"] = lambda do |env|
  begin
    sleep
  ensure
    Rt.call(Rt::LOG, "slept #{sleep 0.01}")
    task { Rt.call(Rt::LOG, "a task, too") }.join
    Rt.call(Rt::LOG, "let go")
  end
end

lambda do |env|
  body = STREAMS[env["PATH_INFO"]]
  return [200, {}, body] if body
  return [200, {}, [env["rack.input"].read]] if env["PATH_INFO"] == "/body"
  begin
    WAITS[env["PATH_INFO"]].call(env)
  ensure
    Rt.call(Rt::LOG, "ensured")
  end
end
"#;

fn limits() -> Limits {
    Limits {
        request_heap: 8 << 20,
        step_time: None,
        deadline: Some(Duration::from_secs(60)),
        max_tasks: 100,
        max_body: 1 << 20,
        reproxy: false,
    }
}

/// The handler, and a server that takes connections and never answers.
async fn open() -> (Server, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it is bound");
    let code = HANDLER.replace("ADDRESS", &address.to_string()).replace("PORT", &address.port().to_string());
    (Server::open(Source { file: "leaving.rb".into(), code }, limits()).await, silent)
}

/// Waits until nothing is under way any more.
async fn settled(server: &Server) {
    let patience = async {
        while server.script.under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), patience).await;
    assert!(settled.is_ok(), "{} under way: {}", server.script.under_way(), server.said());
    let counted = server.counted();
    assert_eq!((counted.tasks, counted.waiting, counted.failures), (0, 0, 0), "{}", server.said());
}

#[test]
fn whatever_a_handler_waits_for_ends_when_its_client_goes() {
    on_a_loop(async {
        let (server, _silent) = open().await;
        for path in ["/sleep", "/fiber", "/each", "/channel", "/join", "/next", "/http", "/redis", "/clings"]
        {
            server.log.borrow_mut().clear();
            let client = Rc::new(Visitor::default());
            let answer = tokio::task::spawn_local(server.get(path, &client));
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert!(!answer.is_finished(), "{path}: {}", server.said());
            let counted = server.counted();
            assert!(counted.tasks > 0 && counted.waiting > 0, "{path}: {counted:?}");
            client.leave();
            let response = tokio::time::timeout(Duration::from_secs(20), answer).await;
            assert_eq!(response.expect("it is told").expect("no panic").status, 499, "{path}");
            settled(&server).await;
            assert!(server.said().contains("ensured"), "{path}: {}", server.said());
        }
    });
}

#[test]
fn what_ensure_waits_for_is_still_done() {
    on_a_loop(async {
        let (server, _silent) = open().await;
        let client = Rc::new(Visitor::default());
        let answer = tokio::task::spawn_local(server.get("/lock", &client));
        tokio::time::sleep(Duration::from_millis(30)).await;
        client.leave();
        assert_eq!(answer.await.expect("no panic").status, 499);
        settled(&server).await;
        let said = server.said();
        assert!(
            ["slept 0", "a task, too", "let go", "ensured"].iter().all(|words| said.contains(words)),
            "{said}"
        );
    });
}

#[test]
fn a_response_that_nobody_takes_any_more_is_closed() {
    on_a_loop(async {
        let (server, _silent) = open().await;
        for path in ["/silent", "/part", "/parts"] {
            server.log.borrow_mut().clear();
            let client = Rc::new(Visitor::default());
            let response = server.get(path, &client).await;
            assert_eq!(response.status, 200, "{path}: {}", server.said());
            assert!(matches!(response.body, Body::Stream(_)));
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert_eq!(server.script.under_way(), 1, "{path}");
            drop(response);
            settled(&server).await;
            let said = server.said();
            assert!(said.contains("each ensured") && said.contains("closed"), "{path}: {said}");
        }
    });
}

struct Ends;

impl IncomingBody for Ends {
    fn length(&self) -> Option<u64> {
        Some(10)
    }

    fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, BodyError>>> {
        Poll::Ready(Some(Err(BodyError::Gone)))
    }
}

#[test]
fn a_body_that_never_comes_never_reaches_ruby() {
    on_a_loop(async {
        let (server, _silent) = open().await;
        let client = Rc::new(Visitor::default());
        let response = server.ask("/body", Incoming::Arriving(Box::new(Ends)), &client).await;
        assert_eq!(response.status, 400);
        assert_eq!(server.script.under_way(), 0);
    });
}

#[test]
fn a_thousand_that_come_and_go_leave_nothing_behind() {
    on_a_loop(async {
        let (server, _silent) = open().await;
        for turn in 0..20 {
            let clients: Vec<_> = (0..50).map(|_| Rc::new(Visitor::default())).collect();
            let paths = ["/sleep", "/silent", "/channel", "/part", "/http"];
            let answers: Vec<_> = clients
                .iter()
                .enumerate()
                .map(|(n, client)| tokio::task::spawn_local(server.get(paths[n % paths.len()], client)))
                .collect();
            tokio::time::sleep(Duration::from_millis(turn)).await;
            clients.iter().for_each(|client| client.leave());
            for answer in answers {
                drop(answer.await.expect("no panic"));
            }
            settled(&server).await;
        }
    });
}
