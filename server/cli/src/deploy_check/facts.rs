//! The facts that the questions are answered from: plain values, read elsewhere.
//!
//! Contract: no value of a secret is in here, only whether it exists and how long it is.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use front::AddressTrial;
use settings::{Bind, Machine, Settings};
use stats::CertificateSnapshot;

use super::platform::Surroundings;

/// Everything that is known of the app, the machine and what is in front of it.
#[derive(Clone, Debug)]
pub(crate) struct DeployFacts {
    pub(crate) settings: Settings,
    pub(crate) environment: EnvironmentName,
    /// The names of the tables of the configuration file.
    pub(crate) sections: Vec<String>,
    pub(crate) machine: Machine,
    /// The soft limit of open files; `None` if unlimited.
    pub(crate) soft_open_files: Option<u64>,
    /// The memory of a worker in bytes by `limits.worker_memory` or `worker_memory_estimate`, if one of them is set.
    pub(crate) worker_memory: Option<u64>,
    pub(crate) surroundings: Surroundings,
    pub(crate) rails: Option<RailsFacts>,
    /// `None` without an app; the reason if Ruby did not answer.
    pub(crate) ruby: Option<Result<RubyAnswer, String>>,
    /// The most connections that the database accepts (`--database-connections`).
    pub(crate) database_limit: Option<u32>,
    pub(crate) temp: TemporaryFolder,
    /// Other folders that the server or the app writes to.
    pub(crate) folders: Vec<WrittenFolder>,
    pub(crate) addresses: Vec<(Bind, Result<AddressTrial, String>)>,
    /// The variable `PORT`, if it is a port.
    pub(crate) port_variable: Option<u16>,
    /// This program, for the line that gives it a right.
    pub(crate) program: PathBuf,
    pub(crate) certificates: Vec<CertificateSnapshot>,
    pub(crate) now: SystemTime,
    pub(crate) names: LookedUpNames,
    /// The version of the nginx of this machine.
    pub(crate) nginx: Option<(u32, u32, u32)>,
    pub(crate) jemalloc: Option<PathBuf>,
    /// The variable `MALLOC_ARENA_MAX`.
    pub(crate) arenas: Option<String>,
    /// The public folder, if it exists: the number of its files and folders, not counting those below.
    pub(crate) public_entries: Option<usize>,
}

/// The environment of the app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvironmentName {
    pub(crate) name: String,
    /// Where it is set; `None`: nowhere, so production is assumed.
    pub(crate) origin: Option<String>,
    /// Variables of the environment with another value: the name and the value.
    pub(crate) contradicting: Vec<(&'static str, String)>,
}

/// A Rails app, as its files show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RailsFacts {
    /// The credentials of the environment, relative to the app.
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) key: MasterKey,
    /// Whether the variable `SECRET_KEY_BASE` is set.
    pub(crate) secret_key_base: bool,
    /// Whether the variable `SECRET_KEY_BASE_DUMMY` is set.
    pub(crate) dummy_secret: bool,
    /// Whether there is a `config/secrets.yml` (before Rails 7.2).
    pub(crate) secrets_yml: bool,
    pub(crate) pipeline: Option<AssetPipeline>,
    /// The number of files below `app/assets` or the pipeline's own folder.
    pub(crate) sources: usize,
    /// Whether the environment's file asks `RAILS_LOG_TO_STDOUT` whether to log there, and the variable is not set.
    pub(crate) logs_to_a_file: bool,
    /// Whether the environment's file asks `RAILS_SERVE_STATIC_FILES` whether to serve files, and the variable is not set.
    pub(crate) leaves_files_to_the_server: bool,
}

/// The key of the credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MasterKey {
    #[default]
    Missing,
    /// In a variable or a file, with this number of characters.
    Present {
        /// `RAILS_MASTER_KEY`, or the path of the file.
        place: String,
        characters: usize,
        /// Whether users other than the owner and the group can read the file.
        open: bool,
    },
    Unreadable {
        file: PathBuf,
        why: String,
    },
}

/// An asset pipeline and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssetPipeline {
    /// The gem's name.
    pub(crate) name: &'static str,
    /// The folder of its output, relative to the app.
    pub(crate) output: &'static str,
    /// Whether the folder has files.
    pub(crate) has_files: bool,
    /// Whether a manifest is in it.
    pub(crate) manifest: bool,
}

/// The answer of a short Ruby process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RubyAnswer {
    pub(crate) engine: String,
    pub(crate) version: String,
    /// Whether this Ruby was built with YJIT.
    pub(crate) has_yjit: bool,
    /// Whether YJIT is on without a setting of the server, by `RUBYOPT` or `RUBY_YJIT_ENABLE`.
    pub(crate) yjit_by_itself: bool,
    pub(crate) pools: Vec<ConnectionPool>,
    /// The reason why `config/database.yml` or `DATABASE_URL` could not be read.
    pub(crate) pools_error: Option<String>,
}

/// A pool of database connections that each worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionPool {
    /// The name in `config/database.yml`, or `DATABASE_URL`.
    pub(crate) name: String,
    pub(crate) adapter: String,
    /// The number of connections; `None` if only the app knows.
    pub(crate) size: Option<u32>,
    /// Where the number is written, or `default`.
    pub(crate) origin: String,
}

/// The folder for bodies that do not fit in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemporaryFolder {
    /// The reason why it cannot be written to.
    pub(crate) problem: Option<String>,
    pub(crate) in_memory: bool,
    /// Free bytes, if known.
    pub(crate) free: Option<u64>,
}

/// A folder that has to be writable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenFolder {
    pub(crate) purpose: FolderPurpose,
    pub(crate) path: PathBuf,
    /// The reason why it cannot be written to.
    pub(crate) problem: Option<String>,
}

/// The use of a [`WrittenFolder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderPurpose {
    ControlSocket,
    Pidfile,
    /// The account and the certificates of ACME.
    Certificates,
    /// `tmp` of Rails: the cache, sockets, uploads.
    RailsTemporary,
}

/// Host names and the addresses they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookedUpNames {
    /// `--offline`.
    Skipped,
    Done(Vec<LookedUpName>),
}

/// A host name that the server has to be reachable by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookedUpName {
    pub(crate) name: String,
    /// The setting that names it.
    pub(crate) key: &'static str,
    /// Each address, and whether it is one of this machine; the reason if there is none.
    pub(crate) addresses: Result<Vec<(IpAddr, bool)>, String>,
}

/// How long before its end a certificate is red, and yellow.
pub(crate) const EXPIRES_SOON: [Duration; 2] =
    [Duration::from_secs(3 * 86_400), Duration::from_secs(21 * 86_400)];
