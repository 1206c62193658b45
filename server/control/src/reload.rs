//! Reloads and upgrades over the control socket: `POST /reload` and `POST /upgrade` stream a line of JSON for
//! each step, and the client prints them.
//!
//! Blank lines in between show that the server is alive. The last line tells the outcome. If it is missing,
//! the client reports that the outcome is unknown.

use crate::client::{ControlClient, Error, ask, explain, show};
use crate::record::RecordedLine;
use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use stats::{ReloadStep, ReloadWish, ShadowReport};
use std::convert::Infallible;
use std::future::Future as _;
use std::io::BufRead;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Interval;

/// The interval of the blank lines.
const BEAT: Duration = Duration::from_secs(1);

/// The body of a response: whole, later, or line by line.
pub(crate) enum Reply {
    Whole(Full<Bytes>),
    /// A text that comes later; the end of the channel means that the server is stopping.
    Later(Option<oneshot::Receiver<String>>, Interval),
    Lines(mpsc::UnboundedReceiver<ReloadStep>, Interval),
    /// Lines as they are; dropping the body tells the sender that the client has gone.
    Recorded(mpsc::Receiver<RecordedLine>, Interval),
}

impl Reply {
    pub(crate) fn later(text: oneshot::Receiver<String>) -> Reply {
        Reply::Later(Some(text), tokio::time::interval(BEAT))
    }

    pub(crate) fn lines(lines: mpsc::UnboundedReceiver<ReloadStep>) -> Reply {
        Reply::Lines(lines, tokio::time::interval(BEAT))
    }

    pub(crate) fn recorded(lines: mpsc::Receiver<RecordedLine>) -> Reply {
        Reply::Recorded(lines, tokio::time::interval(BEAT))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Reply::Later(text, beat) => {
                let Some(waiting) = text else { return Poll::Ready(None) };
                if let Poll::Ready(came) = Pin::new(waiting).poll(cx) {
                    *text = None;
                    let came = came.unwrap_or_else(|_| r#"{ "error": "the server is stopping" }"#.to_owned());
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from(came + "\n")))));
                }
                beat.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"\n")))))
            }
            Reply::Lines(lines, beat) => {
                if let Poll::Ready(line) = lines.poll_recv(cx) {
                    return Poll::Ready(line.map(|line| {
                        let mut text = serde_json::to_string(&line).unwrap_or_default();
                        text.push('\n');
                        Ok(Frame::data(Bytes::from(text)))
                    }));
                }
                beat.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"\n")))))
            }
            Reply::Recorded(lines, beat) => {
                if let Poll::Ready(line) = lines.poll_recv(cx) {
                    return Poll::Ready(line.map(|mut line| Ok(Frame::data(Bytes::from(line.text())))));
                }
                beat.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"\n")))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Whole(whole) => whole.is_end_stream(),
            Reply::Later(text, _) => text.is_none(),
            Reply::Lines(..) | Reply::Recorded(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Whole(whole) => whole.size_hint(),
            Reply::Later(..) | Reply::Lines(..) | Reply::Recorded(..) => SizeHint::default(),
        }
    }
}

/// Runs `firebrick reload` for the app in `dir`: prints each step. Returns 0 if the requested code serves, else 1.
pub fn reload_command(dir: &Path, client: &ControlClient, wish: ReloadWish) -> ExitCode {
    let target = match wish {
        ReloadWish::Reload => "/reload".to_owned(),
        ReloadWish::Shadowed(time) => format!("/reload?shadow={}", time.as_secs_f64()),
        ReloadWish::InPlace => "/reload?in_place".to_owned(),
        ReloadWish::Undo => "/reload?undo".to_owned(),
    };
    command(dir, client, &target, "reload")
}

/// Runs `firebrick reload --differences` for the app in `dir`: prints the server's JSON, or a list.
pub fn differences_command(dir: &Path, client: &ControlClient, json: bool) -> ExitCode {
    show(ask(dir, client, "/differences", json, |report: Option<ShadowReport>| differences(report.as_ref())))
}

/// Returns the list of the differences.
fn differences(report: Option<&ShadowReport>) -> String {
    let Some(report) = report else {
        return "no reload of this server has compared copies of requests (`firebrick reload --shadow 2m`)\n"
            .to_owned();
    };
    let mut text = format!("{}\n", report.text.lines().next().unwrap_or_default());
    for one in &report.differences {
        text += &format!("  {}\n", one.line());
    }
    for one in &report.left_out {
        text += &format!("  not compared: {} ({})\n", one.route, one.why);
    }
    text
}

/// Runs `firebrick upgrade` for the server in `dir`: prints each step. Returns 0 if the new program serves, else 1.
pub fn upgrade_command(dir: &Path, client: &ControlClient) -> ExitCode {
    command(dir, client, "/upgrade", "upgrade")
}

fn command(dir: &Path, client: &ControlClient, target: &str, what: &str) -> ExitCode {
    match follow(dir, client, target, what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            output::complain(format_args!("firebrick: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn follow(dir: &Path, client: &ControlClient, target: &str, what: &str) -> Result<(), String> {
    let mut result = None;
    let lines = client.post(target).map_err(|error| explain(&error, dir))?;
    for line in lines.lines() {
        let line = line.map_err(|error| {
            let error = Error::Io(client.address().clone(), error);
            format!("{error}; the {what} may still be running: see the server's log")
        })?;
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            // A closed pipe (`| head`) does not stop the reload.
            Ok(ReloadStep::Step { stage, text }) => output::print(format!("{stage}: {text}\n")),
            Ok(ReloadStep::Done { done }) => {
                output::print(format!("done: {done}\n"));
                result = Some(Ok(()));
            }
            Ok(ReloadStep::Failed { failed }) => result = Some(Err(failed)),
            Err(error) => {
                return Err(Error::NotControl(client.address().clone(), error.to_string()).to_string());
            }
        }
    }
    result.unwrap_or_else(|| Err(format!("the server ended before the {what} did")))
}
