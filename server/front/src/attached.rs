//! A front started by a Ruby process to serve an app in that process: `Firebrick::Server`
//! (docs/internals/processes.md, "An attached worker").
//!
//! Contract:
//! 1. Standard input is one end of a pair of stream sockets; Ruby holds the other. The messages are those
//!    between front and template. The front exits when the socket closes, in whatever way Ruby ended.
//! 2. If the front cannot serve, it sends the reason to Ruby as `failed` and prints nothing.
//! 3. Ctrl-C also reaches Ruby, which decides on the shutdown.

use crate::handover::Started;
use crate::release::Reread;
use crate::serve;
use settings::{Attached, Loaded, ProcessEnvironment};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

/// The first arguments when Ruby starts the program.
const WORDS: [&str; 2] = ["front", "--attach"];
/// The app handles all requests.
const APP_ONLY: &str = "--app-only";
/// A setting that any other source overrides: `--weak key=value`.
const WEAK: &str = "--weak";

/// Parses the arguments (without the program's name) of a program that Ruby has started. Returns Ruby's
/// options and the arguments of `serve`, or `None` if Ruby has not started this program.
pub fn attached(words: impl IntoIterator<Item = OsString>) -> Option<(Attached, Vec<OsString>)> {
    let mut words = words.into_iter();
    if WORDS.iter().any(|word| words.next().is_none_or(|typed| typed != *word)) {
        return None;
    }
    let (mut attached, mut rest) = (Attached::default(), Vec::new());
    while let Some(word) = words.next() {
        if word == APP_ONLY {
            attached.app_only = true;
        } else if word == WEAK {
            let pair = words.next().and_then(|pair| pair.into_string().ok()).unwrap_or_default();
            attached.weak.extend(pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
        } else {
            rest.push(word);
        }
    }
    Some((attached, rest))
}

/// Sends Ruby the reason why the server does not start.
pub fn refuse(why: &str) {
    match standard_input() {
        Ok(mut socket) => fail(&mut socket, why),
        Err(error) => output::complain(format_args!("error: {why}\nerror: {error}")),
    }
}

/// Serves the app of the process at the other end of standard input, until that process exits or asks the
/// front to stop. `reread` loads the settings again with the calls of a `puma.rb`.
pub fn serve_attached(loaded: Loaded, reread: Reread) -> ExitCode {
    let socket = match standard_input().and_then(|socket| take(socket).map_err(|error| error.to_string())) {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match serve::serve_as(loaded, reread, Started::now(&ProcessEnvironment), Some(socket.clone())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            fail(&mut &*socket, &error);
            ExitCode::FAILURE
        }
    }
}

fn standard_input() -> Result<UnixStream, String> {
    let wrong = "front --attach is how Ruby starts this program (Firebrick::Server), with a socket as standard input; type firebrick alone";
    let stdin = io::stdin();
    let is_socket =
        rustix::net::sockopt::socket_type(&stdin).is_ok_and(|kind| kind == rustix::net::SocketType::STREAM);
    if !is_socket {
        return Err(wrong.to_owned());
    }
    Ok(stdin.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?.into())
}

/// Replaces standard input by /dev/null, so that services do not inherit the socket and keep it open after
/// the front's exit.
fn take(socket: UnixStream) -> io::Result<UnixStream> {
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn fail(socket: &mut impl Write, why: &str) {
    let message = wire::template::encode(&[wire::template::order::FAILED, &why.replace('\0', "")]);
    // An error means that Ruby is gone.
    let _ = socket.write_all(&message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<(Attached, Vec<OsString>)> {
        attached(words.iter().map(OsString::from))
    }

    #[test]
    fn only_rubys_words_are_understood() {
        assert!(read(&["serve", "."]).is_none() && read(&["front"]).is_none() && read(&[]).is_none());
        let (attached, rest) = read(&["front", "--attach", "--weak", "port=3000", "-b", "x"]).unwrap();
        assert_eq!((attached.app_only, attached.weak), (false, vec![("port".to_owned(), "3000".to_owned())]));
        assert_eq!(rest, ["-b", "x"]);
        assert!(read(&["front", "--attach", "--app-only"]).unwrap().0.app_only);
    }
}
