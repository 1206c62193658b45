//! Requests to other servers and to the rest of this one, from Ruby on a real VM.
#![cfg(test)]

mod backend;
mod server;
use crate::support;

use backend::Backend;
use server::Server;
use std::sync::atomic::Ordering;
use support::on_event_loop;

/// Returns the Ruby code of a handler with `code` inside `lambda do |env|`; BACK is the address of a backend.
fn handler(backend: &Backend, code: &str) -> String {
    format!("BACK = 'http://127.0.0.1:{}'\nlambda do |env|\n{code}\nend\n", backend.port)
}

/// Returns the result of a handler's code as text.
async fn response_text(backend: &Backend, code: &str) -> String {
    let code = handler(backend, &format!("said = begin\n{code}\nend\n[200, {{}}, [said.to_s]]"));
    let server = Server::open(&[&code]).await;
    let received = server.get("/").await;
    assert_eq!(received.status, 200, "{:?}", server.log.borrow());
    received.body
}

#[test]
fn a_request_is_sent_as_written() {
    on_event_loop(async {
        let back = Backend::start();
        let code = "r = http_request(BACK + '/echo?q=1#f', {method: 'POST', headers: {'X-A' => ['1', '2'], 'Host' => 'no',
                     'Content-Length' => '99'}, body: 'abc'}).join\n[r[0], r[1]['x-back'], r[1].keys.sort, r[2].join].inspect";
        let text = response_text(&back, code).await;
        assert!(text.starts_with(r#"[200, "1", ["x-back"], "POST /echo?q=1 HTTP/1.1\r\n"#), "{text}");
        for line in [format!("Host: 127.0.0.1:{}", back.port), "X-A: 1".into(), "X-A: 2".into()] {
            assert!(text.contains(&format!("\\r\\n{line}\\r\\n")), "{line} in {text}");
        }
        assert!(text.contains("Content-Length: 3") && text.ends_with("\\nabc\"]"), "{text}");
        let text =
            response_text(&back, "http_request(BACK + '/echo', header: [['x-b', '3']]).join[2].join").await;
        assert!(text.starts_with("GET /echo HTTP/1.1\r\n") && text.contains("x-b: 3"), "{text}");
    });
}

#[test]
fn a_host_field_is_used_as_in_ruby() {
    on_event_loop(async {
        let back = Backend::start();
        let code = "Net::HTTP.get(URI(BACK + '/echo'), {'Host' => 'other.test'})";
        let text = response_text(&back, code).await;
        let hosts: Vec<_> = text.lines().filter(|line| line.to_lowercase().starts_with("host:")).collect();
        assert_eq!(hosts, ["Host: other.test"], "{text}");
    });
}

#[test]
fn many_requests_run_at_a_time() {
    on_event_loop(async {
        let back = Backend::start();
        let code = "a = (1..20).map { http_request(BACK + '/together?20') }; a.map { |r| r.join[2].join }.uniq.inspect";
        assert_eq!(response_text(&back, code).await, r#"["together"]"#);
        assert_eq!(back.asked.load(Ordering::SeqCst), 20);
    });
}

#[test]
fn connections_are_reused() {
    on_event_loop(async {
        let back = Backend::start();
        let code = "10.times { http_request(BACK + '/echo').join[2].join }; http_request(BACK + '/twice').join[1].inspect";
        assert_eq!(response_text(&back, code).await.replace(" => ", "=>"), r#"{"set-cookie"=>"a=1\nb=2"}"#);
        assert_eq!(back.connections.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_body_is_read_once() {
    on_event_loop(async {
        let back = Backend::start();
        let twice =
            "b = http_request(BACK + '/echo').join[2]; b.join; begin; b.join; rescue => e; e.message; end";
        assert_eq!(response_text(&back, twice).await, "http response body is already consumed");
        let each = "parts = ''; http_request(BACK + '/chunks').join[2].each { |part| parts << part }; parts";
        assert_eq!(response_text(&back, each).await, "onetwothree");
        for (path, method) in [("/204", "GET"), ("/head", "HEAD"), ("/twice", "GET")] {
            let code = format!(
                "r = http_request(BACK + '{path}', method: '{method}').join; [r[0], r[2].class, r[2].join].inspect"
            );
            let status = if path == "/204" { 204 } else { 200 };
            assert_eq!(
                response_text(&back, &code).await,
                format!(r#"[{status}, H2O::HttpInputStream::Empty, ""]"#)
            );
        }
    });
}

#[test]
fn a_failure_is_a_response_with_a_warning() {
    on_event_loop(async {
        let back = Backend::start();
        let code = |url: &str| {
            format!(
                "s, h, b = http_request({url}, timeout: 1).join; [s, h['client-warning'] == b.join, h['client-warning']].inspect"
            )
        };
        for (url, why) in [
            ("BACK + '/closed'", "closed without an answer"),
            ("BACK + '/nonsense'", "invalid response"),
            ("BACK + '/never'", "no response within 1 s"),
            ("'http://127.0.0.1:1/'", "refused"),
            ("'unix:/nowhere/at/all.sock:/'", "No such file"),
        ] {
            let text = response_text(&back, &code(url)).await;
            assert!(text.starts_with("[500, true, ") && text.contains(why), "{url}: {text}");
        }
        for wrong in [
            "'nonsense'",
            "'ftp://a/'",
            "BACK + '/a b'",
            "BACK + '/', headers: {'a b' => '1'}",
            "BACK, method: 'A B'",
        ] {
            let text = response_text(&back, &format!("begin; http_request({wrong}); rescue ArgumentError => e; \"refused: #{{e.message}}\"; end")).await;
            assert!(text.starts_with("refused: "), "{wrong}: {text}");
        }
    });
}

#[test]
fn an_incomplete_or_too_large_body_raises() {
    on_event_loop(async {
        let back = Backend::start();
        for (path, why) in [("/broken", "broke off"), ("/large", "larger than mruby.request_heap")] {
            let code = format!(
                "begin; http_request(BACK + '{path}').join[2].join; rescue H2O::HttpError => e; e.message; end"
            );
            let text = response_text(&back, &code).await;
            assert!(text.contains(why), "{path}: {text}");
        }
        let pieces = "n = 0; http_request(BACK + '/large').join[2].each { |part| n += part.size }; n";
        assert_eq!(response_text(&back, pieces).await, (3 << 20).to_string());
    });
}

#[test]
fn a_body_that_is_returned_unread_bypasses_ruby() {
    on_event_loop(async {
        let back = Backend::start();
        // The body is larger than a request's share of the heap.
        let server = Server::open(&[&handler(&back, "http_request(BACK + env['PATH_INFO']).join")]).await;
        let received = server.get("/large").await;
        assert_eq!((received.status, received.body.len(), received.broken), (200, 3 << 20, false));
        assert!(
            received.fields.contains("content-length: 3145728") && received.streamed,
            "{}",
            received.fields
        );
        assert!(server.get("/broken").await.broken);
        assert_eq!(server.get("/chunks").await.body, "onetwothree");
        assert_eq!(server.get("/elsewhere").await.body, "stays", "who was asked does not send us elsewhere");
        assert_eq!(server.get("/204").await.status, 204);
        assert_eq!(server.get("/closed").await.status, 500);
    });
}

#[test]
fn a_response_of_a_block_can_be_read_by_others() {
    on_event_loop(async {
        let back = Backend::start();
        let code = "t = task { http_request(BACK + '/echo').join }; t.join[2].join[0, 9]";
        assert_eq!(response_text(&back, code).await, "GET /echo");
    });
}

#[test]
fn a_request_that_is_not_waited_for_is_still_sent() {
    on_event_loop(async {
        let back = Backend::start();
        let server = Server::open(&[&handler(&back, "http_request(BACK + '/echo'); [204, {}, []]")]).await;
        assert_eq!(server.get("/").await.status, 204);
        while back.asked.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn net_http_behaves_as_in_ruby() {
    on_event_loop(async {
        let back = Backend::start();
        let port = back.port;
        for (code, expected) in [
            ("Net::HTTP.get('127.0.0.1', '/echo', PORT)[0, 9]", "GET /echo"),
            ("Net::HTTP.get(URI.parse(BACK + '/echo'))[0, 9]", "GET /echo"),
            (
                "r = Net::HTTP.get_response(URI(BACK + '/404')); [r.code, r.message, r.body, r['Content-Type'], r.content_type, r.class].inspect",
                r#"["404", "Not Found", "nothing", "text/plain; charset=utf-8", "text/plain", Net::HTTPNotFound]"#,
            ),
            (
                "r = Net::HTTP.get_response(URI(BACK + '/moved')); [r.is_a?(Net::HTTPRedirection), r['location']].inspect",
                r#"[true, "/echo"]"#,
            ),
            (
                "a = []; Net::HTTP.get_response(URI(BACK + '/twice')).each_header { |n, v| a << n << v }; a.inspect",
                r#"["set-cookie", "a=1, b=2"]"#,
            ),
            ("Net::HTTP.post(URI(BACK + '/echo'), 'x=1', 'X-A' => 'b').body.split(\"\\n\").last", "x=1"),
            (
                "Net::HTTP.post_form(URI(BACK + '/echo'), 'a b' => 'c&d', 'e' => 1).body.split(\"\\n\").last",
                "a+b=c%26d&e=1",
            ),
            ("Net::HTTP.start('127.0.0.1', PORT) { |h| h.put('/echo', 'x').body }[0, 9]", "PUT /echo"),
            (
                "q = Net::HTTP::Delete.new('/echo'); q['x-a'] = 'b'; Net::HTTP.new('127.0.0.1', PORT).request(q).body[0, 12]",
                "DELETE /echo",
            ),
            (
                "begin; Net::HTTP.get_response(URI(BACK + '/404')).value; rescue Net::HTTPExceptions => e; e.message; end",
                "404 \"Not Found\"",
            ),
            (
                "begin; Net::HTTP.get('127.0.0.1', '/', 1); rescue Errno::ECONNREFUSED => e; e.class; end",
                "Errno::ECONNREFUSED",
            ),
            ("begin; Net::HTTP.get(URI(BACK + '/closed')); rescue EOFError => e; e.class; end", "EOFError"),
            (
                "begin; Net::HTTP.get(URI(BACK + '/nonsense')); rescue Net::HTTPBadResponse => e; e.class; end",
                "Net::HTTPBadResponse",
            ),
            (
                "h = Net::HTTP.new('127.0.0.1', PORT); h.read_timeout = 0.1; begin; h.get('/never'); rescue Net::ReadTimeout => e; e.class; end",
                "Net::ReadTimeout",
            ),
        ] {
            assert_eq!(
                response_text(&back, &code.replace("PORT", &port.to_string())).await,
                expected,
                "{code}"
            );
        }
    });
}

#[test]
fn next_calls_what_follows_the_handler() {
    on_event_loop(async {
        let first = "lambda do |env|
          env['HTTP_X_MORE'] = 'yes'
          env['REMOTE_USER'] = 'anna'
          s, h, b = H2O.next.call(env)
          h['x-first'] = '1'
          [s, h, b]
        end";
        let second = "lambda { |env| [399, {'x-second' => env['HTTP_X_MORE']}, []] }";
        let server = Server::open(&[first, second]).await;
        let received = server.ask("POST", "/api/a?b=c", &[("Content-Type", "text/x")], "body").await;
        assert!(received.body.starts_with("behind POST /api/a?b=c [host=here.test "), "{}", received.body);
        assert!(
            received.body.contains("x-more=yes") && received.body.contains("content-length=4"),
            "{}",
            received.body
        );
        assert!(received.body.ends_with("user=anna body"), "{}", received.body);
        assert!(
            received.fields.contains("x-first: 1\n") && received.fields.contains("x-second: yes\n"),
            "{}",
            received.fields
        );
        assert_eq!(received.fields.matches("content-length").count(), 1);
    });
}

#[test]
fn next_can_be_called_for_several_requests_at_a_time() {
    on_event_loop(async {
        let code = "lambda do |env|
          asked = (1..5).map { |n| H2O.next.request(env.merge('PATH_INFO' => '/5-together', 'QUERY_STRING' => n.to_s)) }
          [200, {}, asked.map { |r| r.join[2].join[/GET \\S+/] }]
        end";
        let server = Server::open(&[code]).await;
        let received = server.get("/").await;
        assert_eq!(received.body, (1..=5).map(|n| format!("GET /5-together?{n}")).collect::<String>());
    });
}

#[test]
fn reprocess_is_possible_a_limited_number_of_times() {
    on_event_loop(async {
        let code = "lambda do |env|
          left = env['h2o.remaining_reprocesses']
          return [200, {}, [\"left #{left} #{env['SCRIPT_NAME']} #{env['PATH_INFO']}\"]] if env['PATH_INFO'] == '/end'
          env['PATH_INFO'] = '/end' if env['PATH_INFO'] == '/once'
          env['SCRIPT_NAME'] = '/api' if env['QUERY_STRING'] == 'api'
          H2O.reprocess.call(env)
        end";
        let server = Server::open(&[code]).await;
        assert_eq!(server.get("/end").await.body, "left 5  /end");
        assert_eq!(server.get("/once").await.body, "left 4  /end");
        assert_eq!(server.get("/once?api").await.body, "left 4 /api /end");
        let received = server.get("/loop").await;
        assert_eq!(received.status, 502);
        assert!(server.log.borrow().iter().any(|line| line.contains("too often")));
    });
}

#[test]
fn mistakes_in_an_env_are_explained() {
    on_event_loop(async {
        let code = "lambda do |env|
          key, value = env['QUERY_STRING'].split('=')
          value ? env[key] = value : env.delete(key)
          begin
            (env['PATH_INFO'] == '/next' ? H2O.next : H2O.reprocess).call(env)
          rescue ArgumentError => e
            [200, {}, [e.message]]
          end
        end";
        let server = Server::open(&[code]).await;
        for (target, why) in [
            ("/next?SCRIPT_NAME=/other", "H2O.reprocess to change it"),
            ("/again?REQUEST_METHOD", "the env has no REQUEST_METHOD"),
            ("/again?PATH_INFO=nonsense", "expected a / at its start"),
            ("/again?REQUEST_METHOD=A(B", "not a method"),
        ] {
            let received = server.get(target).await;
            assert!(received.body.contains(why), "{target}: {received:?}");
        }
    });
}

#[test]
fn a_handler_can_send_a_request_elsewhere() {
    on_event_loop(async {
        let back = Backend::start();
        let code = handler(
            &back,
            "case env['PATH_INFO']
             when '/in' then [200, {'X-Reproxy-URL' => '/inner?a=b'}, ['lost']]
             when '/keep' then [307, {'x-reproxy-url' => BACK + '/echo'}, []]
             when '/out' then [200, {'x-reproxy-url' => BACK + '/echo?x'}, []]
             when '/wrong' then [200, {'x-reproxy-url' => 'nonsense'}, []]
             when '/gone' then [200, {'x-reproxy-url' => 'http://127.0.0.1:1/'}, []]
             when '/loop' then [200, {'x-reproxy-url' => '/loop'}, []]
             else [200, {}, [[env['REQUEST_METHOD'], env['PATH_INFO'], env['QUERY_STRING'], env['rack.input'].nil?, env['h2o.remaining_delegations']].inspect]]
             end",
        );
        let server = Server::open(&[&code]).await;
        let received = server.ask("POST", "/in", &[("Content-Length", "4")], "body").await;
        assert_eq!(received.body, r#"["GET", "/inner", "a=b", true, 4]"#);
        let received = server.ask("POST", "/keep", &[("X-A", "1")], "body").await;
        assert!(
            received.body.starts_with("POST /echo HTTP/1.1\r\n") && received.body.ends_with("\nbody"),
            "{received:?}"
        );
        assert!(
            received.body.contains("X-A: 1")
                && received.body.contains(&format!("Host: 127.0.0.1:{}", back.port))
        );
        assert!(server.ask("POST", "/out", &[], "body").await.body.starts_with("GET /echo?x HTTP/1.1\r\n"));
        for (path, why) in [("/wrong", "not a URL"), ("/gone", "refused"), ("/loop", "too often")] {
            assert_eq!(server.get(path).await.status, 502, "{path}");
            assert!(server.log.borrow_mut().drain(..).any(|line| line.contains(why)), "{path}");
        }
    });
}

#[test]
fn hints_are_sent_before_the_response() {
    on_event_loop(async {
        let code = "lambda do |env|
          env['rack.early_hints'].call('Link' => '</a.css>; rel=preload')
          [200, {}, [env['h2o.get_rtt'].call.inspect]]
        end";
        let server = Server::open(&[code]).await;
        assert_eq!(server.get("/").await.body, "nil");
        assert_eq!(*server.hints.borrow(), ["103 </a.css>; rel=preload"]);
    });
}
