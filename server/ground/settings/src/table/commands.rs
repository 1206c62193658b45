//! The commands and their arguments.
//!
//! The measuring commands (`bench`, `tune`, `plan`, `top`) declare their own options, in their crates.

#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub name: &'static str,
    /// One line of help.
    pub doc: &'static str,
    /// The options of the table that the command takes.
    pub options: Options,
    /// The arguments that only this command has.
    pub arguments: &'static [Own],
}

impl Command {
    /// Returns whether the command takes all options.
    pub fn takes_all(&self) -> bool {
        matches!(self.options, Options::All)
    }
}

/// A selection of the table's options.
#[derive(Clone, Copy, Debug)]
pub enum Options {
    All,
    /// The options with these keys.
    These(&'static [&'static str]),
}

impl Options {
    /// Returns whether the selection includes the option with this key.
    pub fn include(&self, key: &str) -> bool {
        match self {
            Options::All => true,
            Options::These(keys) => keys.contains(&key),
        }
    }
}

/// An argument that only one command has.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The name; written with `--` unless the argument is positional.
    pub name: &'static str,
    pub form: Form,
    /// One line of help, without a full stop.
    pub doc: &'static str,
}

/// The form of an argument on the command line.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A required value without a flag.
    Positional {
        /// The name of the value in help.
        value: &'static str,
        /// The only accepted values; empty: any value.
        words: &'static [&'static str],
    },
    /// An optional word without a flag.
    Choice {
        /// The name of the word in help.
        value: &'static str,
        /// The accepted words.
        words: &'static [&'static str],
    },
    /// Any number of values without flags.
    Words {
        /// The name of the value in help.
        value: &'static str,
    },
    /// A flag with a value.
    Value {
        /// The name of the value in help.
        value: &'static str,
        repeated: bool,
    },
    /// A flag without a value.
    Switch,
}

/// The options with which `stats`, `deaths` and `top` find a running server.
const RUNNING: Options = Options::These(&["dir", "config", "control", "control_token"]);
/// The same options, and the one with which a server that has ended is found.
const RUNNING_OR_NOT: Options = Options::These(&["dir", "config", "control", "control_token", "pidfile"]);
const NO_OPTIONS: Options = Options::These(&[]);

/// Words of pumactl, `rails` and init scripts, each with the command that does the same here.
const SYNONYMS: &[(&str, &str)] = &[
    ("start", "serve"),
    ("run", "serve"),
    ("server", "serve"),
    ("s", "serve"),
    ("halt", "stop"),
    ("quit", "stop"),
    ("restart", "reload"),
    ("phased-restart", "reload"),
    ("test", "check"),
    ("configtest", "check"),
    ("info", "status"),
];

/// Returns the command that other programs call by this word.
pub(crate) fn command_like(word: &str) -> Option<&'static str> {
    SYNONYMS.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours)
}

/// All commands, in the order in which help shows them.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        doc: "Serve the app or the static site; the default command",
        options: Options::All,
        arguments: &[],
    },
    Command {
        name: "check",
        doc: "Check the configuration and load the app once; exit 0 or 1",
        options: Options::All,
        arguments: &[Own {
            name: "write",
            form: Form::Switch,
            doc: "Create firebrick.toml from config/puma.rb, if it does not exist",
        }],
    },
    Command {
        name: "deploy-check",
        doc: "Find what starts well and goes wrong in production, each with the line to paste; exit 0 or 1",
        options: Options::All,
        arguments: &[
            Own {
                name: "behind",
                form: Form::Value { value: "PROXY", repeated: false },
                doc: "What is in front of the server: nginx, alb, heroku, kubernetes, cloudflare or none [default: detected]",
            },
            Own {
                name: "grace",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "Time between TERM and KILL [default: 30s on Heroku and in Kubernetes, else unknown]",
            },
            Own {
                name: "database-connections",
                form: Form::Value { value: "N", repeated: false },
                doc: "Maximum number of connections that the database accepts",
            },
            Own { name: "offline", form: Form::Switch, doc: "Do not look up host names" },
            Own { name: "strict", form: Form::Switch, doc: "Exit 1 for yellow findings, too" },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "explain",
        doc: "Show which rule answers a path, and why; and what the cache has for it",
        options: Options::These(&[
            "dir",
            "config",
            "site.root",
            "site.static_json",
            "files.public",
            "https",
            "control",
            "control_token",
        ]),
        arguments: &[
            Own {
                name: "path",
                form: Form::Positional { value: "PATH", words: &[] },
                doc: "Path and query of the request, such as /some/path?x=1",
            },
            Own {
                name: "header",
                form: Form::Value { value: "NAME: VALUE", repeated: true },
                doc: "A header of the request; may be repeated",
            },
            Own {
                name: "for-host",
                form: Form::Value { value: "HOST", repeated: false },
                doc: "Host of the request [default: localhost]",
            },
        ],
    },
    Command {
        name: "stats",
        doc: "Print the statistics of the server running in DIR",
        options: RUNNING,
        arguments: &[Own { name: "json", form: Form::Switch, doc: "Print JSON" }],
    },
    Command {
        name: "routes",
        doc: "Show what each route of the app in DIR takes: time, queue, CPU, GVL, GC, queries, bytes",
        options: RUNNING,
        arguments: &[
            Own {
                name: "sort",
                form: Form::Value { value: "WORD", repeated: false },
                doc: "What the routes are sorted by: time, cpu, requests, queue, sql or alloc [default: time]",
            },
            Own {
                name: "limit",
                form: Form::Value { value: "N", repeated: false },
                doc: "Maximum number of routes to show [default: 30]",
            },
            Own {
                name: "watch",
                form: Form::Switch,
                doc: "Show the figures of every two seconds, until interrupted",
            },
            Own {
                name: "price",
                form: Form::Value { value: "PRICE", repeated: false },
                doc: "Price of this server, such as 40/month or $0.05/h: show what each route costs",
            },
            Own {
                name: "reset",
                form: Form::Switch,
                doc: "Forget the figures of the routes, which count anew",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "deaths",
        doc: "Show why workers of the server in DIR ended, and which requests they were serving",
        options: RUNNING,
        arguments: &[
            Own { name: "minute", form: Form::Switch, doc: "Show all that is known of their last minutes" },
            Own {
                name: "replay",
                form: Form::Value { value: "N", repeated: false },
                doc: "Repeat the requests that no. N was serving, in a worker that serves nobody",
            },
            Own {
                name: "limit",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "Time limit of each repeated request [default: 30s]",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "leaks",
        doc: "Show which objects of a worker of the running server grow, and how its memory is used",
        options: Options::These(&["config", "control", "control_token"]),
        arguments: &[
            Own {
                name: "time",
                form: Form::Words { value: "TIME" },
                doc: "Time between the two dumps that are compared, such as 30s or 1h [default: 5m]",
            },
            Own {
                name: "worker",
                form: Form::Value { value: "N", repeated: false },
                doc: "Number of the worker [default: the one with the most memory]",
            },
            Own {
                name: "pid",
                form: Form::Value { value: "PID", repeated: false },
                doc: "The worker with this process id",
            },
            Own {
                name: "trace",
                form: Form::Switch,
                doc: "Record where objects are allocated, and by which routes; the worker is slower meanwhile",
            },
            Own {
                name: "examples",
                form: Form::Switch,
                doc: "Show how some of the Strings begin, without what looks like a secret",
            },
            Own {
                name: "top",
                form: Form::Value { value: "N", repeated: false },
                doc: "Maximum number of lines to show [default: 10]",
            },
            Own {
                name: "dir",
                form: Form::Value { value: "DIR", repeated: false },
                doc: "Directory of the server's app [default: the current directory]",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "record",
        doc: "Write the requests of the running server to a file, secrets masked, for `firebrick bench --replay`",
        options: Options::These(&["config", "control", "control_token"]),
        arguments: &[
            Own {
                name: "file",
                form: Form::Words { value: "FILE" },
                doc: "Name of the new file, which only you can read",
            },
            Own {
                name: "for",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "How long to record, such as 5m [default: 60s]",
            },
            Own {
                name: "max",
                form: Form::Value { value: "SIZE", repeated: false },
                doc: "Size of the file at which the recording ends [default: 100MiB]",
            },
            Own {
                name: "one-in",
                form: Form::Value { value: "N", repeated: false },
                doc: "Record one of so many requests [default: 1]",
            },
            Own {
                name: "body",
                form: Form::Value { value: "SIZE", repeated: false },
                doc: "How much of each request body to keep, at most 256KiB; 0 keeps none [default: 16KiB]",
            },
            Own {
                name: "dir",
                form: Form::Value { value: "DIR", repeated: false },
                doc: "Directory of the server's app [default: the current directory]",
            },
        ],
    },
    Command {
        name: "reload",
        doc: "Load the new code of the app in DIR and replace its workers one by one; prints each step",
        options: RUNNING,
        arguments: &[
            Own {
                name: "undo",
                form: Form::Switch,
                doc: "Go back to the previous code, while its template still exists (reload.keep)",
            },
            Own {
                name: "in-place",
                form: Form::Switch,
                doc: "End old workers before starting new ones, to save memory; cannot be undone",
            },
            Own {
                name: "shadow",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "First compare responses to copies of requests for this long; overrides reload.shadow",
            },
            Own {
                name: "differences",
                form: Form::Switch,
                doc: "Only list what the last such comparison has found",
            },
            Own { name: "json", form: Form::Switch, doc: "With --differences, print JSON" },
        ],
    },
    Command {
        name: "upgrade",
        doc: "Replace the server in DIR with a new process that takes over its sockets; prints each step",
        options: RUNNING,
        arguments: &[],
    },
    Command {
        name: "cache",
        doc: "Show what the cache of the running server keeps, and why not more; or `cache purge` some of it",
        options: Options::These(&["config", "control", "control_token"]),
        arguments: &[
            Own {
                name: "action",
                form: Form::Choice { value: "ACTION", words: &["show", "purge"] },
                doc: "Show what is kept, or remove some of it [default: show]",
            },
            Own {
                name: "path",
                form: Form::Words { value: "PATH" },
                doc: "Path or URL to purge, such as /posts/12 or https://example.org/posts/*",
            },
            Own {
                name: "tag",
                form: Form::Value { value: "TAG", repeated: true },
                doc: "Purge the responses with this tag in Surrogate-Key or Cache-Tag; may be repeated",
            },
            Own { name: "all", form: Form::Switch, doc: "Purge everything" },
            Own {
                name: "dir",
                form: Form::Value { value: "DIR", repeated: false },
                doc: "Directory of the server's app or site [default: the current directory]",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "hub",
        doc: "Show the clients of live pages of the server in DIR, and which streams they listen to",
        options: RUNNING,
        arguments: &[Own { name: "json", form: Form::Switch, doc: "Print JSON" }],
    },
    Command {
        name: "pause",
        doc: "Hold the requests for the app of the server in DIR, for example while its database moves",
        options: RUNNING,
        arguments: &[
            Own {
                name: "for",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "Time after which the pause ends by itself, up to 10m [default: 60s]",
            },
            Own {
                name: "max",
                form: Form::Value { value: "NUMBER", repeated: false },
                doc: "Maximum number of requests that wait; others get 503 [default: 1000]",
            },
            Own {
                name: "paths",
                form: Form::Value { value: "PATHS", repeated: true },
                doc: "Hold only requests of these paths and those below them, such as /orders,/cart; may be repeated",
            },
            Own {
                name: "wait",
                form: Form::Switch,
                doc: "Wait until the requests that the app already has are finished",
            },
        ],
    },
    Command {
        name: "resume",
        doc: "End a pause: the requests that wait go to the app of the server in DIR",
        options: RUNNING,
        arguments: &[],
    },
    Command {
        name: "maintenance",
        doc: "Answer requests with a page (503) until `maintenance off`; without a word, show whether it is on",
        options: RUNNING,
        arguments: &[
            Own {
                name: "action",
                form: Form::Choice { value: "ACTION", words: &["on", "off", "status"] },
                doc: "Switch maintenance on or off, or show whether it is on [default: status]",
            },
            Own {
                name: "page",
                form: Form::Value { value: "FILE", repeated: false },
                doc: "HTML file to send [default: maintenance.page, or the server's own page]",
            },
            Own {
                name: "retry-after",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "Time after which clients should retry [default: maintenance.retry_after]",
            },
            Own {
                name: "allow",
                form: Form::Value { value: "NETWORK", repeated: true },
                doc: "Address or network that is served all the same; may be repeated [default: maintenance.allow]",
            },
            Own {
                name: "allow-path",
                form: Form::Value { value: "PATH", repeated: true },
                doc: "Path that is served, with those below it; may be repeated [default: maintenance.allow_paths]",
            },
            Own {
                name: "message",
                form: Form::Value { value: "TEXT", repeated: false },
                doc: "Text for the server's own page, and for clients that read JSON",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "set",
        doc: "Change settings of the running server at once; without a word, show the changes in force",
        options: Options::These(&["config", "control", "control_token"]),
        arguments: &[
            Own {
                name: "setting",
                form: Form::Words { value: "KEY=VALUE" },
                doc: "Settings to change together, such as limits.max_body=20MiB; with --undo the number of a change",
            },
            Own {
                name: "for",
                form: Form::Value { value: "TIME", repeated: false },
                doc: "Time after which the change ends by itself, such as 10m, from 1s to 365d",
            },
            Own {
                name: "why",
                form: Form::Value { value: "TEXT", repeated: false },
                doc: "Reason, for the history and the log",
            },
            Own { name: "dry-run", form: Form::Switch, doc: "Only check, and print what would change" },
            Own {
                name: "undo",
                form: Form::Switch,
                doc: "Take a change back: the last one, or the one with the number",
            },
            Own { name: "history", form: Form::Switch, doc: "Show the last 100 changes, and how they ended" },
            Own {
                name: "dir",
                form: Form::Value { value: "DIR", repeated: false },
                doc: "Directory of the server's app or site [default: the current directory]",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "shape",
        doc: "Show the objective of response times, the shape that follows it, and its last steps",
        options: Options::These(&["config", "control", "control_token"]),
        arguments: &[
            Own {
                name: "dir",
                form: Form::Value { value: "DIR", repeated: false },
                doc: "Directory of the server's app [default: the current directory]",
            },
            Own { name: "json", form: Form::Switch, doc: "Print JSON" },
        ],
    },
    Command {
        name: "ps",
        doc: "List the servers of this machine: directory, addresses, workers, state",
        options: Options::These(&[]),
        arguments: &[Own { name: "json", form: Form::Switch, doc: "Print JSON" }],
    },
    Command {
        name: "status",
        doc: "Print whether a server is running in DIR, and its state; exit 0 or 3",
        options: RUNNING_OR_NOT,
        arguments: &[Own { name: "json", form: Form::Switch, doc: "Print JSON" }],
    },
    Command {
        name: "stop",
        doc: "Stop the server running in DIR, and wait until it has ended",
        options: RUNNING_OR_NOT,
        arguments: &[Own {
            name: "timeout",
            form: Form::Value { value: "TIME", repeated: false },
            doc: "Maximum time to wait before exiting with 1 [default: 90s]",
        }],
    },
    Command {
        name: "certs",
        doc: "Show the certificates of the server in DIR, their next orders and their errors",
        options: Options::These(&[
            "dir",
            "config",
            "control",
            "control_token",
            "acme.domains",
            "acme.directory",
            "acme.dir",
        ]),
        arguments: &[Own { name: "json", form: Form::Switch, doc: "Print JSON" }],
    },
    Command {
        name: "bench",
        doc: "Send load to a server and report rates and response times",
        options: NO_OPTIONS,
        arguments: &[],
    },
    Command {
        name: "tune",
        doc: "Try several numbers of processes and threads with the app, and recommend one",
        options: NO_OPTIONS,
        arguments: &[],
    },
    Command {
        name: "plan",
        doc: "Estimate the number of machines for a load, and their cost",
        options: NO_OPTIONS,
        arguments: &[],
    },
    Command {
        name: "profile",
        doc: "Show where the workers of the server in DIR spend their time: hottest lines, flame graph",
        options: RUNNING,
        arguments: &[],
    },
    Command {
        name: "top",
        doc: "Show live statistics of the server running in DIR",
        options: RUNNING,
        arguments: &[],
    },
    Command {
        name: "trust",
        doc: "Make this machine trust the certificates of --https; shows its commands and asks first",
        options: NO_OPTIONS,
        arguments: &[
            Own { name: "undo", form: Form::Switch, doc: "Remove the certificate authority from all stores" },
            Own { name: "yes", form: Form::Switch, doc: "Run the commands without asking" },
            Own { name: "dry-run", form: Form::Switch, doc: "Show the commands without running them" },
            Own {
                name: "store",
                form: Form::Value { value: "STORE", repeated: true },
                doc: "Change only this store: system, chromium or firefox; may be repeated",
            },
        ],
    },
    Command {
        name: "completions",
        doc: "Print a completion script for bash, zsh or fish",
        options: NO_OPTIONS,
        arguments: &[Own {
            name: "shell",
            form: Form::Positional { value: "SHELL", words: &["bash", "zsh", "fish"] },
            doc: "The shell to complete for",
        }],
    },
    Command { name: "version", doc: "Print the version", options: NO_OPTIONS, arguments: &[] },
    Command { name: "man", doc: "Print the manual page", options: NO_OPTIONS, arguments: &[] },
];
