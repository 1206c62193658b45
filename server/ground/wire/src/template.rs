//! Words of the messages between front, template and the guards of services (`docs/internals/processes.md`).
//!
//! Contract: each word is declared here only. `worker/lib/firebrick/wire.rb` is made from this file, so that
//! both sides use the same constants.

/// Encodes a message: its length in four bytes, then its parts with a NUL between them.
pub fn encode(parts: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let body = parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(&0);
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.extend(body);
    message
}

macro_rules! words {
    ($($(#[$about:meta])* $module:ident { $($(#[$doc:meta])* $name:ident = $word:literal),* $(,)? })*) => {
        $($(#[$about])* pub mod $module {
            $($(#[$doc])* pub const $name: &str = $word;)*
        })*
        /// All words, for the file in Ruby.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &[(&str, &str)])] = &[
            $((stringify!($module), &[$((stringify!($name), $word)),*])),*
        ];
    };
}

words! {
    /// First words of messages from the front.
    order {
        CONFIGURE = "configure",
        BOOT = "boot",
        FORK = "fork",
        SERVICE = "service",
        KILL = "kill",
        BEFORE_FORK = "before_fork",
        UNLINK = "unlink",
        EXIT = "exit",
        /// To an attached worker: clients can connect.
        LISTENING = "listening",
        /// To an attached worker: the server shuts down.
        STOPPING = "stopping",
        /// To an attached worker: there will be no server.
        FAILED = "failed",
    }

    /// First words of messages to the front.
    report {
        PID = "pid",
        CONFIGURED = "configured",
        UNCONFIGURED = "unconfigured",
        LOADING = "loading",
        WARMING = "warming",
        BOOTED = "booted",
        FAILED = "failed",
        FORKED = "forked",
        FORK_FAILED = "fork_failed",
        EXITED = "exited",
        JOBS = "jobs",
        /// From a worker that has loaded the app itself.
        FILES = "files",
        /// From an attached worker.
        STOP = "stop",
    }

    /// How a worker or service ended: a word before the code or the number.
    end {
        EXIT = "exit",
        SIGNAL = "signal",
    }

    /// Keys of `boot`.
    boot {
        WIRE = "wire",
        APP = "app",
        DIR = "dir",
        ENVIRONMENT = "environment",
        CONTROL = "control",
        THREADS_MIN = "threads_min",
        THREADS_MAX = "threads_max",
        FIBERS = "fibers",
        LINKS = "links",
        SHUTDOWN_MS = "shutdown_ms",
        /// `session` or `transaction`: queries end with the time of their request.
        STATEMENT = "statement",
        /// The milliseconds that a request may take in a pool, a space, and the pool's name.
        WORKER_MS = "worker_ms",
        SLOTS = "slots",
        SLOT_LEN = "slot_len",
        COMPACT = "compact",
        OUT_OF_BAND_GC = "out_of_band_gc",
        SLICE_US = "slice_us",
        BLOCKING_US = "blocking_us",
        YJIT = "yjit",
        COMPRESSION = "compression",
        HUB = "hub",
        HUB_RPC = "hub_rpc",
        ALLOCATOR = "allocator",
        EARLY_HINTS = "early_hints",
        ERROR_LOG = "error_log",
        JSON_LOG = "json_log",
        REQUEST_ID = "request_id",
        TEMP_DIR = "temp_dir",
        TAG = "tag",
        MAX_HEAD = "max_head",
        RESPONSE_MEMORY = "response_memory",
        RESPONSE_SPOOL = "response_spool",
        WARMUP = "warmup",
        /// A request to repeat: route, scheme, authority and target, then a line for each field.
        WARM = "warm",
        WARM_ANYWAY = "warm_anyway",
        WARM_MS = "warm_ms",
        WARM_COMPILED_MS = "warm_compiled_ms",
        BOOT_MS = "boot_ms",
        SENDFILE = "sendfile",
        UNLINK = "unlink",
        SERVICE = "service",
        REPLAY = "replay",
    }

    /// Keys of `booted`.
    booted {
        RUBY = "ruby",
        RACK = "rack",
        MS = "ms",
        NOTE = "note",
        FIBERS = "fibers",
        JOB = "job",
        FILES = "files",
        /// The size of the pool of connections to the database.
        CONNECTIONS = "connections",
        /// A sentence about the requests that were repeated.
        WARMED = "warmed",
        /// A service begins; its other keys follow.
        SERVICE = "service",
        PLACE = "place",
        RESTART = "restart",
        STOP_SIGNAL = "stop_signal",
        STOP_TIMEOUT_MS = "stop_timeout_ms",
        PREFIX = "prefix",
    }

    /// First words of the lines from the guard of a service; the ends are those of [`end`].
    guard {
        GUARD = "guard",
        PID = "pid",
        FAILED = "failed",
    }
}
