//! Runs a short program with a time limit.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of each stream that are kept.
const LONGEST: u64 = 256 << 10;
/// How often the end of the program is looked for.
const STEP: Duration = Duration::from_millis(5);
/// How long an output may stay open after the program has ended, if a child of it has it.
const LINGER: Duration = Duration::from_millis(200);

/// The end and the output of a program.
pub(super) struct ShortRun {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs a program without input, and kills it after `limit`.
///
/// # Errors
/// It cannot be started, or does not end in time.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<ShortRun, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (out, err) = (collected(child.stdout.take()), collected(child.stderr.take()));
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(STEP),
            ended => {
                // It may have ended meanwhile, and only needs reaping.
                let _ = child.kill();
                let _ = child.wait();
                let text = match ended {
                    Err(error) => error.to_string(),
                    Ok(_) => format!("no answer within {} s", limit.as_secs_f64()),
                };
                return Err(text);
            }
        }
    };
    let text = |from: Receiver<Vec<u8>>| {
        let bytes = from.recv_timeout(LINGER).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(ShortRun { status, out: text(out), err: text(err) })
}

/// Reads a stream to its end on a thread of its own.
fn collected(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // Bytes before an error count. The rest is read and dropped, so that the program does not wait.
            let _ = stream.by_ref().take(LONGEST).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        // The receiver is gone after the time limit.
        let _ = sender.send(bytes);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<ShortRun, String> {
        run(Command::new("sh").args(["-c", script]), limit)
    }

    #[test]
    fn both_streams_and_the_status_are_returned() {
        let run = shell("echo out; echo err >&2; exit 3", Duration::from_secs(20)).unwrap();
        assert_eq!((run.out.as_str(), run.err.as_str(), run.status.code()), ("out\n", "err\n", Some(3)));
    }

    #[test]
    fn long_outputs_are_cut() {
        let run = shell("head -c 3000000 /dev/zero", Duration::from_secs(60)).unwrap();
        assert!(run.status.success());
        assert_eq!(run.out.len() as u64, LONGEST);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let began = Instant::now();
        let why = shell("exec sleep 600", Duration::from_millis(100)).err().unwrap();
        assert_eq!(why, "no answer within 0.1 s");
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(run(&mut Command::new("/nonexistent/program"), Duration::from_secs(1)).is_err());
    }
}
