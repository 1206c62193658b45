//! Answers DNS-01 by running the user's command, which changes the records of a zone.
//!
//! Contract:
//! 1. `COMMAND add NAME VALUE` creates a TXT record `_acme-challenge.…` and returns when it can be resolved;
//!    `COMMAND remove NAME VALUE` removes it. Other records of the name must stay: a wildcard and its host
//!    need two at once.
//! 2. The command runs without a shell. After [`TIMEOUT`], or when the order is given up, the command and its
//!    children are killed.
//! 3. If the command fails, its error output is quoted in the message.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time-out of the command. DNS servers can take minutes.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The interval between checks whether the command has ended.
const TURN: Duration = Duration::from_millis(20);
/// Bytes of the output that are quoted.
const QUOTED: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsChange {
    Add,
    Remove,
}

/// Returns the record name for a host name or wildcard (RFC 8555 section 8.4).
pub fn record_name(name: &str) -> String {
    format!("_acme-challenge.{}", name.strip_prefix("*.").unwrap_or(name))
}

/// Runs the command on its own thread, until it ends, the future is dropped, or `ending` is set.
///
/// # Errors
/// The command cannot be started, fails, or takes too long. The text is a sentence with its output.
pub async fn change(
    command: &str,
    change: DnsChange,
    name: &str,
    value: &str,
    ending: &Arc<AtomicBool>,
) -> Result<(), String> {
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let action = if change == DnsChange::Add { "add" } else { "remove" };
    let arguments = [action.to_owned(), name.to_owned(), value.to_owned()];
    let cancelled = Arc::new(AtomicBool::new(false));
    let cancel = Cancel(cancelled.clone());
    let ending = ending.clone();
    let stopped = move || cancelled.load(Ordering::Acquire) || ending.load(Ordering::Acquire);
    let ran = tokio::task::spawn_blocking(move || run(&words, &arguments, TIMEOUT, &stopped)).await;
    drop(cancel);
    let ran = ran.unwrap_or_else(|_| Err("ended unexpectedly".to_owned()));
    ran.map_err(|why| format!("the command `{command} {action} {name}` {why}"))
}

/// Stops the command when the order is given up.
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn run(
    words: &[String],
    arguments: &[String],
    timeout: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<(), String> {
    let (program, options) = words.split_first().ok_or("is empty")?;
    let child = Command::new(program)
        .args(options)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| format!("cannot be started: {error}"))?;
    let output = child.stderr.take();
    // Read by another thread, so that a command with much output does not block.
    let reader = std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut piece = [0; 1024];
        let mut output = output;
        while let Some(read) =
            output.as_mut().and_then(|output| output.read(&mut piece).ok()).filter(|read| *read > 0)
        {
            kept.extend_from_slice(&piece[..read]);
            let excess = kept.len().saturating_sub(QUOTED);
            kept.drain(..excess);
        }
        kept
    });
    let status = match wait(&mut child, timeout, stopped) {
        Some(status) => status,
        None => {
            kill(&mut child);
            return Err(format!("has not ended after {} s", timeout.as_secs()));
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = reader.join().unwrap_or_default();
    let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
    Err(if said.is_empty() { format!("failed ({status})") } else { format!("failed ({status}): {said}") })
}

fn wait(
    child: &mut Child,
    timeout: Duration,
    stopped: &dyn Fn() -> bool,
) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline && !stopped() => std::thread::sleep(TURN),
            _ => return None,
        }
    }
}

/// Kills the command and its children.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // The command may just have ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Result<(), String> {
        let words = ["sh", "-c", script, "name"].map(str::to_owned);
        run(&words, &["add", "_acme-challenge.a.test", "value"].map(str::to_owned), timeout, &|| false)
    }

    #[test]
    fn the_command_gets_action_name_and_value() {
        let plenty = Duration::from_secs(30);
        assert_eq!(shell(r#"[ "$1 $2 $3" = "add _acme-challenge.a.test value" ]"#, plenty), Ok(()));
        let failed = shell("echo no such zone >&2; exit 3", plenty).unwrap_err();
        assert!(failed.contains("exit status: 3") && failed.ends_with("no such zone"), "{failed}");
        let missing = run(&["/nonexistent/command".to_owned()], &[], plenty, &|| false).unwrap_err();
        assert!(missing.contains("cannot be started"), "{missing}");
        let late = shell("sleep 60", Duration::from_millis(50)).unwrap_err();
        assert!(late.contains("has not ended"), "{late}");
    }

    #[test]
    fn records_of_wildcards_are_those_of_their_host() {
        assert_eq!(record_name("*.a.test"), "_acme-challenge.a.test");
        assert_eq!(record_name("a.test"), "_acme-challenge.a.test");
    }
}
