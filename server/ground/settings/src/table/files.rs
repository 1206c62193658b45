//! Files that are served without entering Ruby.

use super::entry::{Category, bare, entries, long};
use crate::kind::public::{PublicDirectory, ServeWord};
use crate::value::public::{Public, ServePublic};

entries! { Category::Files;
    /// Directory of public files that are served without entering the app
    PUBLIC: Public = PublicDirectory, {
        key: "files.public",
        flags: &[long("public", "DIR")],
        default: "public",
        more: "The directory need not exist. A directory that you name is served even if no middleware of the app sends its \
               files. By default the app's middleware decides (`files.serve_public`). Instead of a directory you can write \
               \"auto\", \"always\" or \"off\"; these apply to the directory public.",
        reloadable: true,
        reload_only: true,
        known_as: &["public_dir", "public_folder", "root"],
    }
    /// Whether to serve the public directory: auto, always or off
    SERVE_PUBLIC: Option<ServePublic> = ServeWord, {
        key: "files.serve_public",
        flags: &[bare("no-public", "false")],
        off: "Leave public files to the app",
        default: "auto",
        more: "With auto the app's middleware decides: the server sends the files that Rails, Sinatra, Rack::Static or Rack::Files \
               would send, with the same header fields, without entering the app. If an earlier middleware may refuse requests \
               or change responses, such as Rack::Auth::Basic, the app sends its files itself, and the \
               banner and `firebrick check` say why. An app without such a middleware has no public files, unless \
               it is a Rails app that leaves them to the web server (config.public_file_server.enabled = false, and \
               RAILS_SERVE_STATIC_FILES is not set). With always (or true) the server sends the files regardless of earlier \
               middleware; off (or false, or the flag --no-public) leaves every request to the app.",
        reloadable: true,
        reload_only: true,
        known_as: &["serve_static_files", "public_file_server"],
    }
}
