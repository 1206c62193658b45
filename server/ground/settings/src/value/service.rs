//! Services: processes beside the workers that get no requests.

use std::fmt;
use std::time::Duration;

/// A service from the `[services]` table or from the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Letters, digits, `-` and `_`; unique among the services.
    pub name: String,
    /// File and line of the declaration, for messages.
    pub place: String,
    pub program: Program,
    pub restart: Restart,
    /// The signal that asks the service to stop.
    pub stop_signal: StopSignal,
    /// The time to stop; after it the whole process group is killed.
    pub stop_timeout: Duration,
    /// Environments in which the service runs; empty: all.
    pub environments: Vec<String>,
    /// Whether each line of its output begins with its name.
    pub prefix: bool,
}

impl Service {
    /// Returns a service with all other fields at their defaults.
    pub fn new(name: &str, place: &str, program: Program) -> Service {
        Service {
            name: name.to_owned(),
            place: place.to_owned(),
            program,
            restart: Restart::default(),
            stop_signal: StopSignal::default(),
            stop_timeout: Service::STOP_TIMEOUT,
            environments: Vec::new(),
            prefix: true,
        }
    }

    /// The default of `stop_timeout`.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns whether the service runs in an environment.
    pub fn runs_in(&self, environment: &str) -> bool {
        self.environments.is_empty() || self.environments.iter().any(|name| name == environment)
    }
}

/// The program of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A command from the `[services]` table.
    Command {
        /// The program and its arguments; never empty. The server uses no shell.
        words: Vec<String>,
        /// Variables in addition to those of the app.
        env: Vec<(String, String)>,
    },
    /// A block of the app (`Firebrick.service`) in a process forked from the template.
    Block,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program::Command { words, .. } => f.write_str(&words.join(" ")),
            Program::Block => f.write_str("a block of the app"),
        }
    }
}

/// The rule for restarting a service that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// After any exit.
    #[default]
    Always,
    /// After any exit but exit code 0.
    OnFailure,
    Never,
}

impl Restart {
    pub const WORDS: [(&'static str, Restart); 3] =
        [("always", Restart::Always), ("on-failure", Restart::OnFailure), ("never", Restart::Never)];

    /// Returns the policy for a word.
    pub fn named(word: &str) -> Option<Restart> {
        Restart::WORDS.iter().find(|(known, _)| *known == word).map(|(_, policy)| *policy)
    }
}

/// The signal that asks a process to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSignal {
    #[default]
    Term,
    Int,
    Quit,
    Hup,
    Usr1,
    Usr2,
    /// Ends the process without asking.
    Kill,
}

impl StopSignal {
    /// The names without `SIG`, which is optional.
    pub const WORDS: [(&'static str, StopSignal); 7] = [
        ("TERM", StopSignal::Term),
        ("INT", StopSignal::Int),
        ("QUIT", StopSignal::Quit),
        ("HUP", StopSignal::Hup),
        ("USR1", StopSignal::Usr1),
        ("USR2", StopSignal::Usr2),
        ("KILL", StopSignal::Kill),
    ];

    pub fn named(name: &str) -> Option<StopSignal> {
        let name = name.strip_prefix("SIG").unwrap_or(name);
        StopSignal::WORDS.iter().find(|(word, _)| *word == name).map(|(_, signal)| *signal)
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = StopSignal::WORDS.iter().find(|(_, signal)| signal == self);
        f.write_str(word.map_or("TERM", |(word, _)| word))
    }
}

/// Splits a command line into words as a shell would, without running a shell.
///
/// # Errors
/// A quote is not closed, or the line needs a shell; the message says which.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(line).ok_or("a quote is not closed")?;
    if let Some(operator) = operator(line) {
        return Err(format!(
            "commands run without a shell, so {operator} has no effect: write [\"sh\", \"-c\", \"...\"], or quote {operator}"
        ));
    }
    match words.first() {
        None => Err("it is empty".to_owned()),
        Some(first) if first.contains('=') => {
            Err(format!("{first} is no program: variables go into env = {{ NAME = \"value\" }}"))
        }
        Some(_) => Ok(words),
    }
}

/// Returns the first word that only a shell would understand. Words in quotes and after a `#` are plain text.
fn operator(line: &str) -> Option<&str> {
    const OPERATORS: [&str; 9] = ["|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"];
    let mut begin = 0;
    line.split([' ', '\t', '\n']).find(|word| {
        let end = begin + word.len();
        // Inside quotes the part before the word cannot be split; after a `#`, or after an escaped space, the
        // word does not add one.
        let count = |until: usize| shlex::split(&line[..until]).map(|words| words.len());
        let found =
            OPERATORS.contains(word) && count(begin).is_some_and(|before| count(end) == Some(before + 1));
        begin = end + 1;
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quoted_words_come_back(given in prop::collection::vec("[a-z /'\"\\\\$#&|;~*\n\u{e4}-]{1,12}", 1..6)) {
            let line = shlex::try_join(given.iter().map(String::as_str)).expect("no NUL");
            prop_assert_eq!(words(&line), Ok(given));
        }

        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,60}") {
            match words(&line) {
                Ok(read) => prop_assert!(!read.is_empty() && !read[0].contains('=')),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let split = |line| words(line).map(|words| words.join("|"));
        assert_eq!(split("bin/jobs").as_deref(), Ok("bin/jobs"));
        assert_eq!(
            split(r#"bundle exec rake "one two" it\'s 'a;b'"#).as_deref(),
            Ok("bundle|exec|rake|one two|it's|a;b")
        );
    }

    #[test]
    fn what_only_a_shell_could_run_is_refused() {
        for line in ["a && b", "a | b", "a > log", "a &", "a\n|\tb", "'a|' | b", "a '|' | b", "| a"] {
            assert!(words(line).unwrap_err().contains("without a shell"), "{line}");
        }
        assert!(words("QUEUE=mails bin/jobs").unwrap_err().contains("env ="));
        assert!(words("a 'b").unwrap_err().contains("quote"));
        assert!(words("  ").unwrap_err().contains("empty"));
    }

    #[test]
    fn an_operator_in_quotes_is_text() {
        for (line, last) in [
            ("cut -d '|'", "|"),
            (r#"cut -d "|""#, "|"),
            (r"cut -d \|", "|"),
            ("log 'a | b'", "a | b"),
            ("log \"a && b\"", "a && b"),
            (r"log a\ | ", "a |"),
            ("log 'it''s ; so'", "its ; so"),
        ] {
            assert_eq!(words(line).map(|words| words.last().cloned()), Ok(Some(last.to_owned())), "{line}");
        }
        assert_eq!(words("bin/jobs # a | b"), Ok(vec!["bin/jobs".to_owned()]), "a comment");
    }

    #[test]
    fn signals_have_names() {
        for (name, signal) in StopSignal::WORDS {
            assert_eq!(StopSignal::named(name), Some(signal));
            assert_eq!(StopSignal::named(&format!("SIG{name}")), Some(signal));
            assert_eq!(signal.to_string(), name);
        }
        assert_eq!(StopSignal::named("STOP"), None);
    }
}
