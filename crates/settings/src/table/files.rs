//! Files that are served without entering Ruby.

use super::entry::{Category, bare, entries, long};
use crate::value::public::{Public, PublicDirectory, ServePublic, ServeWord};

entries! { Category::Files;
    /// Directory whose files are served without entering the app
    PUBLIC: Public = PublicDirectory, {
        key: "files.public",
        flags: &[long("public", "DIR")],
        default: "public",
        more: "It need not exist. A directory that you name is served even where no middleware of the app sends its \
               files; without one the app's middleware decides (`files.serve_public`). In the place of a directory \
               stand \"auto\", \"always\" or \"off\", too, for the directory public.",
        reloadable: true,
        known_as: &["public_dir", "public_folder", "root"],
    }
    /// Who decides whether files of the public directory are served
    SERVE_PUBLIC: Option<ServePublic> = ServeWord, {
        key: "files.serve_public",
        flags: &[bare("no-public", "false")],
        default: "auto",
        more: "With auto the app's middleware does: what Rails, Sinatra, Rack::Static or Rack::Files would send is \
               served without entering the app, with the same fields. Where something stands before it that may \
               refuse requests or change responses, such as Rack::Auth::Basic, the app sends its files, and the \
               banner and `firebrick check` say why. An app without such a middleware has no public files, unless \
               it is Rails and leaves them to the web server (config.public_file_server.enabled = false, and \
               RAILS_SERVE_STATIC_FILES is not set). With always (or true) they are served whatever stands before \
               them; off (or false, or the flag --no-public) leaves every request to the app.",
        reloadable: true,
        known_as: &["serve_static_files", "public_file_server"],
    }
}
