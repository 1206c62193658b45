//! A server that receives requests from handlers: each path responds in its own way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server that ends with the test.
pub(crate) struct Backend {
    pub(crate) port: u16,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Backend {
    pub(crate) fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (asked, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, opened) = (asked.clone(), connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                opened.fetch_add(1, Ordering::SeqCst);
                let count = count.clone();
                std::thread::spawn(move || serve(stream, &count));
            }
        });
        Backend { port, asked, connections }
    }
}

fn serve(mut stream: TcpStream, asked: &AtomicUsize) -> Option<()> {
    loop {
        let (head, body) = read(&mut stream)?;
        asked.fetch_add(1, Ordering::SeqCst);
        let target = head.split(' ').nth(1)?.to_owned();
        let whole = |status: &str, fields: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        let answer = match target.split('?').next()? {
            "/echo" => whole("200 OK", "X-Back: 1\r\n", &format!("{}\n{body}", head.trim_end())),
            // Responds when as many requests have arrived as its query says.
            "/together" => {
                let wanted = target.split_once('?')?.1.parse().ok()?;
                let patience = Instant::now() + Duration::from_secs(10);
                while asked.load(Ordering::SeqCst) < wanted && Instant::now() < patience {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let came = asked.load(Ordering::SeqCst) >= wanted;
                whole("200 OK", "", if came { "together" } else { "alone" })
            }
            "/never" => {
                std::thread::sleep(Duration::from_secs(5));
                return None;
            }
            "/twice" => whole("200 OK", "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n", ""),
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "/404" => whole("404 Not Found", "Content-Type: text/plain; charset=utf-8\r\n", "nothing"),
            "/moved" => whole("302 Found", "Location: /echo\r\n", ""),
            "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned(),
            "/elsewhere" => whole("200 OK", "X-Reproxy-Url: /secret\r\n", "stays"),
            "/chunks" => {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).ok()?;
                for part in ["one", "two", "three"] {
                    std::thread::sleep(Duration::from_millis(20));
                    stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).ok()?;
                }
                "0\r\n\r\n".to_owned()
            }
            "/large" => whole("200 OK", "", &"x".repeat(3 << 20)),
            "/broken" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc").ok()?;
                return None;
            }
            "/closed" => return None,
            _ => "nonsense\r\n\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// Reads head and body of the next request.
fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut text = Vec::new();
    let end = loop {
        if let Some(at) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, &mut text)?;
    };
    let head = String::from_utf8_lossy(&text[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    while text.len() < end + length.unwrap_or_default() {
        more(stream, &mut text)?;
    }
    Some((head, String::from_utf8_lossy(&text[end..]).into_owned()))
}

fn more(stream: &mut TcpStream, text: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
    text.extend_from_slice(&buffer[..count]);
    Some(())
}
