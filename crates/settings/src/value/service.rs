//! A service: a process beside the workers that gets no requests.

use std::fmt;
use std::time::Duration;

/// A service, of the `[services]` table or of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Letters, digits, `-` and `_`; no two services share one.
    pub name: String,
    /// Where it was declared, as messages name it: file and line.
    pub place: String,
    /// What runs.
    pub program: Program,
    /// When it is started again.
    pub restart: Restart,
    /// What asks it to stop.
    pub stop_signal: StopSignal,
    /// How long it may take to stop; then its whole process group is killed.
    pub stop_timeout: Duration,
    /// Environments in which it runs; empty: all.
    pub environments: Vec<String>,
    /// Whether each line that it writes begins with its name.
    pub prefix: bool,
}

impl Service {
    /// With the defaults of all that is not said.
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

    /// How long a service may take to stop unless it says something else.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

    /// Whether it runs in an environment.
    pub fn runs_in(&self, environment: &str) -> bool {
        self.environments.is_empty() || self.environments.iter().any(|name| name == environment)
    }
}

/// What a service runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A command of the `[services]` table.
    Command {
        /// The program and its arguments; never empty. No shell runs it.
        words: Vec<String>,
        /// Variables that it gets beside those of the app.
        env: Vec<(String, String)>,
    },
    /// A block of the app (`Firebrick.service`), in a process that is forked from the template.
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

/// When a service that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// However it has ended.
    #[default]
    Always,
    /// Unless it has ended with exit code 0.
    OnFailure,
    /// Never.
    Never,
}

impl Restart {
    /// As it is written.
    pub const WORDS: [(&'static str, Restart); 3] =
        [("always", Restart::Always), ("on-failure", Restart::OnFailure), ("never", Restart::Never)];

    /// The policy of a word.
    pub fn named(word: &str) -> Option<Restart> {
        Restart::WORDS.iter().find(|(known, _)| *known == word).map(|(_, policy)| *policy)
    }
}

/// A signal that asks a process to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSignal {
    /// TERM.
    #[default]
    Term,
    /// INT.
    Int,
    /// QUIT.
    Quit,
    /// HUP.
    Hup,
    /// USR1.
    Usr1,
    /// USR2.
    Usr2,
    /// KILL: it is not asked.
    Kill,
}

impl StopSignal {
    /// As it is written; `SIG` may stand in front.
    pub const WORDS: [(&'static str, StopSignal); 7] = [
        ("TERM", StopSignal::Term),
        ("INT", StopSignal::Int),
        ("QUIT", StopSignal::Quit),
        ("HUP", StopSignal::Hup),
        ("USR1", StopSignal::Usr1),
        ("USR2", StopSignal::Usr2),
        ("KILL", StopSignal::Kill),
    ];

    /// The signal of a name.
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

/// The words of a command line, as a shell would split it, but without a shell.
///
/// # Errors
/// What is wrong: a quote has no end, or the line needs a shell.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(line).ok_or("a quote without its end")?;
    if let Some(operator) = operator(line) {
        return Err(format!(
            "no shell runs it, so {operator} means nothing: write [\"sh\", \"-c\", \"...\"] for a shell, or {operator} in quotes"
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

/// The first word of a line that only a shell would understand. Words in quotes, and those behind a `#`, are text.
fn operator(line: &str) -> Option<&str> {
    const OPERATORS: [&str; 9] = ["|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"];
    let mut begin = 0;
    line.split([' ', '\t', '\n']).find(|word| {
        let end = begin + word.len();
        // Within quotes nothing before it can be split; behind a `#`, or a space that a backslash makes text, it adds no word.
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
            assert!(words(line).unwrap_err().contains("no shell runs it"), "{line}");
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
