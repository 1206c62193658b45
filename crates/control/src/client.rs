//! The asking side: what `firebrick stats` and its like are made of. Blocking, and never for long.

use crate::socket::connect_to;
use crate::table;
use stats::ServerSnapshot;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long the server may take for each step.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer that is larger is not ours.
const MAX_ANSWER: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// Nobody listens on the socket, or there is none.
    NotRunning(PathBuf),
    /// The socket could not be used.
    Io(PathBuf, io::Error),
    /// What came back is not an answer of a control server.
    Nonsense(PathBuf, String),
    /// The server refused: status and text.
    Refused(u16, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotRunning(path) => write!(f, "nothing listens on {}", path.display()),
            Error::Io(path, error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    write!(f, "the server that listens on {} does not answer", path.display())
                }
                io::ErrorKind::PermissionDenied => {
                    write!(
                        f,
                        "{} may be used by its owner only: run this as the server's user",
                        path.display()
                    )
                }
                _ => write!(f, "{}: {error}", path.display()),
            },
            Error::Nonsense(path, what) => {
                write!(f, "what listens on {} is no Firebrick of this version: {what}", path.display())
            }
            Error::Refused(status, text) => write!(f, "the server answered {status}: {}", text.trim()),
        }
    }
}

impl std::error::Error for Error {}

/// Asks the server that listens on `path` for `target`, such as `/stats`, and gives the body of its answer.
///
/// # Errors
/// See [`Error`]; any status but 200 is [`Error::Refused`].
pub fn get(path: &Path, target: &str) -> Result<String, Error> {
    let answer = exchange(path, target).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::NotRunning(path.to_owned()),
        _ => Error::Io(path.to_owned(), error),
    })?;
    let (status, body) = parse(&answer).map_err(|what| Error::Nonsense(path.to_owned(), what))?;
    if status == 200 { Ok(body) } else { Err(Error::Refused(status, body)) }
}

/// `firebrick stats` for the app in `dir`, whose control socket is `path`: the server's own JSON, or a table.
pub fn stats_command(dir: &Path, path: &Path, json: bool) -> ExitCode {
    match report(dir, path, json) {
        Ok(text) => {
            // Whoever reads may have seen enough (`| head`): that is no failure.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(message) => {
            let _ = writeln!(io::stderr().lock(), "firebrick: {message}");
            ExitCode::FAILURE
        }
    }
}

fn report(dir: &Path, path: &Path, json: bool) -> Result<String, String> {
    let text = get(path, "/stats").map_err(|error| match error {
        Error::NotRunning(_) => {
            let dir = dir.display();
            format!("no Firebrick is running for {dir}: {error}; start one with `firebrick serve {dir}`")
        }
        _ => error.to_string(),
    })?;
    if json {
        return Ok(text);
    }
    let server: ServerSnapshot = serde_json::from_str(&text)
        .map_err(|error| Error::Nonsense(path.to_owned(), error.to_string()).to_string())?;
    Ok(table::stats(&server))
}

fn exchange(path: &Path, target: &str) -> io::Result<Vec<u8>> {
    let mut stream = connect_to(path, PATIENCE)?;
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: firebrick\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Status and body of an answer with a `Content-Length`, which is how the server answers.
fn parse(answer: &[u8]) -> Result<(u16, String), String> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(answer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("its answer breaks off".to_owned()),
        Err(error) => return Err(format!("its answer is not HTTP ({error})")),
    };
    let body = &answer[length..];
    let announced = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let announced = announced.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    if announced != Some(body.len()) {
        return Err("its answer is not complete".to_owned());
    }
    let body = String::from_utf8(body.to_vec()).map_err(|_| "its answer is not UTF-8".to_owned())?;
    Ok((head.code.unwrap_or_default(), body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn nobody_there_names_folder_socket_and_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        for stale in [false, true] {
            if stale {
                drop(UnixListener::bind(&path).unwrap());
            }
            let message = report(Path::new("/srv/app"), &path, true).unwrap_err();
            let wanted = format!(
                "no Firebrick is running for /srv/app: nothing listens on {}; start one with `firebrick serve /srv/app`",
                path.display()
            );
            assert_eq!(message, wanted);
        }
    }

    #[test]
    fn answers_are_whole_or_refused() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n";
        assert_eq!(parse(whole), Ok((200, "{}\n".to_owned())));
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse(b"SSH-2.0-OpenSSH\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n\xff").is_err());
    }

    #[test]
    fn a_stranger_on_the_socket_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"hello\r\n").unwrap();
        });
        let error = get(&path, "/stats").unwrap_err();
        assert!(matches!(error, Error::Nonsense(..)), "{error}");
        stranger.join().unwrap();
    }
}
