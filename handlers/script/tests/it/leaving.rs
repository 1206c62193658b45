//! Clients that disconnect at each point of a request: the task is cancelled at once, its `ensure` runs, and
//! its slot is free.
#![cfg(test)]

use crate::support;

use handler::{Body, BodyError, Incoming, IncomingBody};
use script::{HandlerSource, RouteLimits};
use std::net::TcpListener;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use support::{Server, Visitor, on_event_loop};

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
  "/join" => lambda { |env| task { sleep 2 }.join },
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

fn limits() -> RouteLimits {
    RouteLimits {
        request_heap: 8 << 20,
        step_time: None,
        deadline: Some(Duration::from_secs(60)),
        max_tasks: 100,
        max_body: 1 << 20,
        reproxy: false,
    }
}

/// Returns the handler, and a server that accepts connections and never responds.
async fn open() -> (Server, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it is bound");
    let code = HANDLER.replace("ADDRESS", &address.to_string()).replace("PORT", &address.port().to_string());
    (Server::open(HandlerSource { file: "leaving.rb".into(), code }, limits()).await, silent)
}

/// Waits until a task waits.
async fn waiting(server: &Server, path: &str) {
    let patience = async {
        while server.counted().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waits = tokio::time::timeout(Duration::from_secs(20), patience).await;
    assert!(waits.is_ok(), "{path}: {:?}: {}", server.counted(), server.log_text());
}

/// Waits until no task is running.
async fn settled(server: &Server) {
    let patience = async {
        while server.script.under_way() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), patience).await;
    assert!(settled.is_ok(), "{} under way: {}", server.script.under_way(), server.log_text());
    let counted = server.counted();
    assert_eq!((counted.tasks, counted.waiting, counted.failures), (0, 0, 0), "{}", server.log_text());
}

#[test]
fn every_wait_ends_when_the_client_disconnects() {
    on_event_loop(async {
        let (server, _silent) = open().await;
        for path in ["/sleep", "/fiber", "/each", "/channel", "/join", "/next", "/http", "/redis", "/clings"]
        {
            server.log.borrow_mut().clear();
            let client = Rc::new(Visitor::default());
            let response_task = tokio::task::spawn_local(server.get(path, &client));
            waiting(&server, path).await;
            assert!(!response_task.is_finished(), "{path}: {}", server.log_text());
            assert!(server.counted().tasks > 0, "{path}: {:?}", server.counted());
            client.leave();
            let response = tokio::time::timeout(Duration::from_secs(20), response_task).await;
            assert_eq!(response.expect("it responds in time").expect("no panic").status, 499, "{path}");
            settled(&server).await;
            assert!(server.log_text().contains("ensured"), "{path}: {}", server.log_text());
        }
    });
}

#[test]
fn waits_in_ensure_are_finished() {
    on_event_loop(async {
        let (server, _silent) = open().await;
        let client = Rc::new(Visitor::default());
        let response_task = tokio::task::spawn_local(server.get("/lock", &client));
        waiting(&server, "/lock").await;
        client.leave();
        assert_eq!(response_task.await.expect("no panic").status, 499);
        settled(&server).await;
        let log = server.log_text();
        assert!(
            ["slept 0", "a task, too", "let go", "ensured"].iter().all(|words| log.contains(words)),
            "{log}"
        );
    });
}

#[test]
fn a_response_whose_client_has_disconnected_is_closed() {
    on_event_loop(async {
        let (server, _silent) = open().await;
        for path in ["/silent", "/part", "/parts"] {
            server.log.borrow_mut().clear();
            let client = Rc::new(Visitor::default());
            let response = server.get(path, &client).await;
            assert_eq!(response.status, 200, "{path}: {}", server.log_text());
            assert!(matches!(response.body, Body::Stream(_)));
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert_eq!(server.script.under_way(), 1, "{path}");
            drop(response);
            settled(&server).await;
            let log = server.log_text();
            assert!(log.contains("each ensured") && log.contains("closed"), "{path}: {log}");
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
fn an_incomplete_body_never_reaches_ruby() {
    on_event_loop(async {
        let (server, _silent) = open().await;
        let client = Rc::new(Visitor::default());
        let response = server.ask("/body", Incoming::Arriving(Box::new(Ends)), &client).await;
        assert_eq!(response.status, 400);
        assert_eq!(server.script.under_way(), 0);
    });
}

#[test]
fn a_thousand_disconnecting_clients_leave_nothing_behind() {
    on_event_loop(async {
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
            for response_task in answers {
                drop(response_task.await.expect("no panic"));
            }
            settled(&server).await;
        }
    });
}
